package lines

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/jsonrpc"
)

// errInMemory is returned by [Line.Keep] for a line that is not in a file.
var errInMemory = errors.New("the line is in memory")

// InFile reports whether [Line.Keep] can keep the line.
func (l *Line) InFile() bool { return l.file != "" }

// Keep gives the file in which the line lies a second name, path, which stays when the worker
// removes its own. It may be called until the reader returns.
func (l *Line) Keep(path string) error {
	if l.file == "" {
		return errInMemory
	}
	return os.Link(l.file, path)
}

// splitFile reads a piece that lies in a file. If the line ends with the piece, the file has
// the whole line, which is read there; else the piece is read into memory.
func (s *Splitter) splitFile(p Piece) {
	span := p.Span
	p.Span = protocol.Span{}
	f, err := bulk.Open(s.dir, span)
	if err == nil {
		defer func() { _ = f.Close() }()
		if !p.Gap && s.skip == nil && span.Offset == int64(len(s.rest)) && s.readFile(f, &p, span) {
			return
		}
		p.Data = make([]byte, span.Size)
		_, err = f.ReadAt(p.Data, span.Offset)
	}
	if err != nil {
		s.log.Error("output of the server is lost: its file cannot be read", "err", err)
		p.Data, p.Gap = nil, true
	}
	s.Split(p)
}

// readFile reads the line that ends with the span of f. It returns false if no line ends there,
// or one that is too long.
func (s *Splitter) readFile(f *os.File, p *Piece, span protocol.Span) (whole bool) {
	size := span.Offset + span.Size
	if size > jsonrpc.MaxFrame {
		return false
	}
	s.seq, s.old, s.nth = p.Seq, p.Old, 0
	if size == span.Size {
		s.begin = p.Seq
	}
	err := bulk.Use(f, int(size), func(b []byte) {
		if b[size-1] != '\n' {
			return
		}
		whole = true
		l := s.line(Whole)
		l.file = filepath.Join(s.dir, span.File)
		l.Text, l.Torn = bytes.TrimSuffix(b[:size-1], []byte("\r")), s.torn
		s.torn = false
		s.read(l)
		s.rest = nil
	})
	return whole && err == nil
}
