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
	last    int64       // number of the last file
	refused bool        // the line has begun and cannot go into a file
}

// intoFile writes to the file of the line that has begun what data has of it, if that line is
// long, and returns the rest of data. The caller must hold w.spooling.
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
	if l.size += int64(len(part)); whole || l.size > jsonrpc.MaxFrame {
		w.endLong(whole)
		l.refused = !whole // the daemon skips the rest, and acknowledges it
	}
	return data[len(part):]
}

// beginLong makes a file for the line that has begun, if that is long, and reports whether it
// has.
func (w *worker) beginLong() bool {
	l := &w.long
	w.mu.Lock()
	long := w.out.in.lineLen >= bulk.Min && !w.spec.Inline
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
		l.name, l.size = fmt.Sprint(process.FileLong, l.last), 0
		err = l.create(w.dir, pieces)
	}
	if l.refused = !ok || err != nil; l.refused {
		return false
	}
	l.sent = int64(size)
	return true
}

// create makes the file, with these pieces in it.
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

// endLong adds what is in the file to the output. whole reports whether the line ends there.
// It does nothing if there is no file. The caller must hold w.spooling.
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
	w.out.addFiled(l.name, l.sent, int(l.size-l.sent), whole)
	w.cond.Broadcast()
}

// readFiled returns the bytes of an entry that has a file.
func (w *worker) readFiled(e *entry) ([]byte, error) {
	f, err := ownfile.Open(filepath.Join(w.dir, e.file))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, e.size)
	_, err = f.ReadAt(b, e.off)
	return b, err
}

// dropFileLocked has the file of an entry removed, if it has one. The caller must hold w.mu.
func (w *worker) dropFileLocked(e *entry) {
	if e.file != "" {
		path := filepath.Join(w.dir, e.file)
		w.later = append(w.later, func() { _ = os.Remove(path) })
		w.wakeConduct()
	}
}
