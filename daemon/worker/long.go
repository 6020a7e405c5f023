package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"holdline/protocol/bulk"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/rawio"
)

// longLine is a long line of stdout that goes into a file of its own, until its end: then the
// daemon finds the whole line there, and need not be sent it. Its first pieces were sent
// before it was known to be long; the file has them once more.
type longLine struct {
	f       *rawio.File // nil if there is no such line
	name    string      // of the file, in the worker's directory
	sent    int64       // bytes at the beginning of the file that were sent
	size    int64       // bytes of the file
	sum     uint32      // of the bytes that were not sent
	last    int64       // number of the last file
	refused bool        // the line has begun and cannot go into a file
}

// intoFile takes new stdout, and returns the rest of it that belongs into memory or into the
// spool. If a line has begun and is long, intoFile writes its part of data to the file of that
// line. It makes that file if need be, and closes it at the end of the line, or when the line
// exceeds [jsonrpc.MaxFrame]; then it adds the file to the output. If there is no such line, or
// the file cannot be made or written, it returns data, and the rest of the line goes into no file.
// The caller must hold w.spooling, and must not hold w.mu, which intoFile takes.
func (w *worker) intoFile(data []byte) (rest []byte) {
	l := &w.long
	if l.f == nil && !w.beginLong() {
		return data
	}
	part, whole := data, false
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		part, whole = data[:i+1], true
	}
	if _, err := l.f.WriteAt(part, l.size); err != nil {
		w.endLong(false)
		l.refused = true
		return data
	}
	l.sum = bulk.AddSum(l.sum, part)
	if l.size += int64(len(part)); whole || l.size > jsonrpc.MaxFrame {
		w.endLong(whole)
		l.refused = !whole // the daemon skips the rest, and acknowledges it
	}
	return data[len(part):]
}

// beginLong makes a file for the line that has begun, with the part of it that is in memory, and
// returns true. It returns false if the line is not long, if stdout goes to the spool, if a part
// of the line is not in memory, or if the file cannot be made; after the last two it does not try
// again for this line. The caller must hold w.spooling, and must not hold w.mu, which it takes.
func (w *worker) beginLong() bool {
	l := &w.long
	w.mu.Lock()
	long := w.out.in.LineLen >= bulk.Min && !w.spec.Inline
	l.refused = l.refused && long
	if !long || l.refused || w.attendance == spooling {
		w.mu.Unlock()
		return false
	}
	pieces, size, ok := w.out.lineSoFar()
	w.mu.Unlock()
	var err error
	if ok {
		l.last++
		l.name, l.size, l.sum = fmt.Sprint(process.FileLong, l.last), 0, 0
		err = l.create(w.dir, pieces)
	}
	if l.refused = !ok || err != nil; l.refused {
		return false
	}
	l.sent = int64(size)
	return true
}

// create makes the file l.name in dir, and writes these pieces into it. On success l.f is the file
// and l.size its size. It returns an error if dir has too little room, or if the file cannot be
// made or written; then it leaves no open file, and l.f is nil. The caller must hold w.spooling.
func (l *longLine) create(dir string, pieces [][]byte) error {
	if err := bulk.HasRoom(dir); err != nil {
		return err
	}
	f, err := ownfile.Create(filepath.Join(dir, l.name))
	if err != nil {
		return err
	}
	l.f = rawio.NewFile(f)
	for _, piece := range pieces {
		n, err := l.f.WriteAt(piece, l.size)
		if l.size += int64(n); err != nil {
			_ = l.f.Close()
			_ = os.Remove(l.f.Name())
			l.f = nil
			return err
		}
	}
	return nil
}

// endLong closes the file of a long line, and adds to the output what the file has beyond the
// bytes that were sent; if it has no more, endLong removes it. whole says whether the line ends
// with the file. It wakes all that wait for w.cond. It does nothing if no file is open. The caller
// must hold w.spooling, and must not hold w.mu, which endLong takes.
func (w *worker) endLong(whole bool) {
	l := &w.long
	if l.f == nil {
		return
	}
	_ = l.f.Close()
	l.f = nil
	if l.size == l.sent {
		_ = os.Remove(filepath.Join(w.dir, l.name))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out.addFiled(l.name, l.sent, int(l.size-l.sent), l.sum, whole)
	w.cond.Broadcast()
}

// readFiled reads the bytes of the entry e, which must have a file, from that file. It returns an
// error if the file cannot be opened, or has too few or other bytes. The caller must not hold w.mu.
func (w *worker) readFiled(e *entry) ([]byte, error) {
	f, err := ownfile.Open(filepath.Join(w.dir, e.file))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, e.size)
	if _, err = f.ReadAt(b, e.off); err == nil && bulk.Sum(b) != e.sum {
		err = fmt.Errorf("%w: %s is damaged", bulk.ErrSpan, f.Name())
	}
	return b, err
}

// dropFileLocked adds to w.later that the file of the entry e is removed, and wakes conduct, which
// does it. It does nothing if the entry has no file. The caller must hold w.mu.
func (w *worker) dropFileLocked(e *entry) {
	if e.file != "" {
		path := filepath.Join(w.dir, e.file)
		w.later = append(w.later, func() { _ = os.Remove(path) })
		w.wakeConduct()
	}
}
