package proxy

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"holdline/daemon/statedir"
	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
	"holdline/protocol/rawio"
	"holdline/protocol/socket"
)

// sharesFiles reports whether files that this process makes in dir are seen by the daemon of
// that welcome: both may have another view of the file system.
func sharesFiles(dir string, w *protocol.Welcome) bool {
	if dir == "" {
		return false
	}
	store, err := ownfile.Read(filepath.Join(dir, socket.StoreFile), ownfile.MaxNumber)
	return err == nil && len(store) > 0 && string(store) == w.Store
}

// spillFile makes a file for a long line of the client. It returns nil if there can be none.
// The daemon removes what a killed proxy leaves.
func (p *proxy) spillFile() *os.File {
	l := p.link.Load()
	if l == nil || !l.sharesFiles || p.store.isFull() || bulk.HasRoom(l.dir) != nil {
		return nil
	}
	f, err := statedir.CreateTemp(filepath.Join(l.dir, "line"))
	if err != nil {
		return nil
	}
	return f
}

// addSpilled adds a line of so many bytes to the store, which lies in a file. If the line is
// kept until it is answered, the daemon gets the name of the file, and finds it whenever it
// looks. Else it gets the bytes.
func (p *proxy) addSpilled(ctx context.Context, f *os.File, size int) {
	var e *entry
	var sum uint32
	kept := false
	_ = bulk.Use(f, size, func(line []byte) { // after an error there is no entry
		if protocol.IsControl(line) || len(bytes.TrimRight(line, "\r")) == 0 { // the daemon does not count it
			return
		}
		e = &entry{line: line}
		e.describeAs(e.read()) // a long line is parsed once
		kept = e.kind != kindOther && e.kind != kindInitialized && e.kind != kindCancel
		if kept {
			sum = bulk.Sum(line)
		} else {
			e.line = append(bytes.Clone(line), '\n')
		}
	})
	if e == nil {
		p.refuse(ctx, nil, 0, fault.New(fault.InvalidRequest, fault.Protocol, "jsonrpc.message",
			"a long line is no message, or its file cannot be read"))
	}
	if !kept {
		_ = f.Close()
		_ = os.Remove(f.Name())
	} else {
		e.spill = spill{f, filepath.Dir(f.Name()), sum}
		e.line = nameOf(e, size)
	}
	if e != nil {
		p.store.add(e, size)
	}
}

// nameOf returns what the daemon gets for a line of so many bytes that lies in a file.
func nameOf(e *entry, size int) []byte {
	c := protocol.Control{
		Holdline: protocol.Version, ID: []byte(e.id), Call: e.call,
		Long: &protocol.Long{Span: protocol.Span{File: filepath.Base(e.file.Name()), Size: int64(size), Sum: e.sum}},
	}
	if e.kind == kindResponse {
		c.Answered = new(true)
	}
	return protocol.Append(nil, c)
}

// lineOf returns the bytes that the daemon gets of a line that may lie in a file. A daemon in
// another directory gets the line itself, and so does one that cannot find the file any more.
func (l *link) lineOf(line []byte, s spill) []byte {
	if s.file == nil {
		return line
	}
	info, err := s.file.Stat()
	if err == nil && s.dir == l.dir && l.sharesFiles && rawio.Still(s.file.Name(), info, false) {
		return line
	}
	var whole []byte
	if err == nil {
		whole = make([]byte, info.Size(), info.Size()+1)
		_, err = s.file.ReadAt(whole, 0)
	}
	if err != nil || s.sum != 0 && bulk.Sum(whole) != s.sum {
		return line // the daemon answers that it cannot be read
	}
	return append(whole, '\n')
}
