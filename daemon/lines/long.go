package lines

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
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
	err := s.retry(func() error { return s.readSpan(p, span) })
	if err != nil {
		s.log.Error("output of the server is lost: its file cannot be read", "err", err)
		if p.Gap {
			s.lose(&p, true, errDropped)
		}
		s.lose(&p, false, err)
	}
}

// Waits for a file that cannot be read.
const (
	firstWait = 5 * time.Millisecond // it doubles
	allWaits  = 5 * time.Second
)

// retry calls read again after an error, and for up to allWaits while the error is one that passes.
func (s *Splitter) retry(read func() error) error {
	again := true
	for wait := firstWait; ; wait *= 2 {
		err := read()
		if err == nil || !again && (!ownfile.Passes(err) || wait > allWaits) {
			return err
		}
		again = false
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-s.Stop:
			t.Stop()
			return err
		}
	}
}

// readSpan reads the span of a file. Before it returns an error it has read nothing.
func (s *Splitter) readSpan(p Piece, span protocol.Span) error {
	f, err := bulk.Open(s.dir, span)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if !p.Gap && s.skip == nil && span.Offset == int64(len(s.rest)) {
		if whole, err := s.readFile(f, &p, span); whole || err != nil {
			return err
		}
	}
	p.Data = make([]byte, span.Size)
	if _, err = f.ReadAt(p.Data, span.Offset); err != nil {
		return err
	}
	if bulk.Sum(p.Data) != p.Sum {
		return damaged(f)
	}
	s.Split(p)
	return nil
}

// damaged returns the error about a file that has other bytes than were written to it.
func damaged(f *os.File) error {
	return fmt.Errorf("%w: %s is damaged", bulk.ErrSpan, f.Name())
}

// readFile reads the line that ends with the span of f. It returns false if no line ends there,
// or one that is too long. Before it returns an error it has read nothing.
func (s *Splitter) readFile(f *os.File, p *Piece, span protocol.Span) (whole bool, err error) {
	size := span.Offset + span.Size
	if size > jsonrpc.MaxFrame {
		return false, nil
	}
	var bad error
	err = bulk.Use(f, int(size), func(b []byte) {
		if !bytes.HasPrefix(b, s.rest) || bulk.Sum(b[span.Offset:]) != p.Sum {
			bad = damaged(f)
			return
		}
		if b[size-1] != '\n' {
			return
		}
		s.seq, s.old, s.nth = p.Seq, p.Old, 0
		if size == span.Size {
			s.begin = p.Seq
		}
		whole = true
		l := s.line(Whole)
		l.file = filepath.Join(s.dir, span.File)
		l.Text, l.Torn = bytes.TrimSuffix(b[:size-1], []byte("\r")), s.torn
		s.torn = false
		s.read(l)
		s.rest = nil
	})
	return whole, cmp.Or(err, bad)
}
