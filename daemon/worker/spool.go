package worker

import (
	"fmt"
	"os"
	"path/filepath"

	"holdline/protocol/faultpoint"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// spool is the file that takes the child's stdout while no daemon is there. It holds, without
// gaps, all stdout that was not acknowledged when it was begun, and all that followed. The
// next daemon reads it if the worker has left by then.
type spool struct {
	f    *os.File
	size int64 // bytes in the file
	lost int64 // bytes that could not be written
	full bool  // nothing more is taken
}

// startSpoolLocked writes all stdout that is not acknowledged into a new spool, which
// replaces an older one. The new file gets its name only when it is complete: a daemon that
// finds a spool must find all of it. On an error the older spool stays. The caller must hold
// w.mu.
func (w *worker) startSpoolLocked() error {
	tmp := filepath.Join(w.dir, process.FileSpool+".new")
	f, err := ownfile.Create(tmp)
	if err != nil {
		return fmt.Errorf("make spool: %w", err)
	}
	s := &spool{f: f}
	offs := make([]int64, len(w.out.entries))
	for i := range w.out.entries {
		e := &w.out.entries[i]
		if e.kind != stdout {
			continue
		}
		data, err := w.bytesOf(e)
		if err == nil {
			_, err = f.WriteAt(data, s.size)
		}
		if err != nil {
			_ = f.Close()
			_ = os.Remove(tmp)
			return fmt.Errorf("write spool: %w", err)
		}
		offs[i] = s.size
		s.size += int64(e.size)
	}
	faultpoint.At("worker.spooled")
	if err := os.Rename(tmp, filepath.Join(w.dir, process.FileSpool)); err != nil {
		_ = f.Close()
		_ = os.Remove(tmp)
		return fmt.Errorf("name spool: %w", err)
	}
	for i := range w.out.entries {
		e := &w.out.entries[i]
		if e.kind != stdout {
			continue
		}
		if !e.spooled {
			w.out.in.release(e.size, 1)
		}
		e.data, e.spooled, e.off = nil, true, offs[i]
	}
	if w.spool != nil {
		_ = w.spool.f.Close()
	}
	w.spool = s
	return nil
}

// spoolLocked appends data to the spool. Data that does not fit or cannot be written
// stays in memory, and no more is read of stdout. The caller must hold w.mu.
func (w *worker) spoolLocked(data []byte) {
	s := w.spool
	if !s.full && s.size+int64(len(data)) <= w.spec.Orphan.SpoolMax {
		if _, err := s.f.WriteAt(data, s.size); err == nil {
			w.out.addSpooled(s.size, len(data))
			s.size += int64(len(data))
			return
		}
	}
	s.full = true
	w.out.addStdout(data)
}

// bytesOf returns the bytes of an entry, from the spool if they are there. The caller
// must hold w.mu.
func (w *worker) bytesOf(e *entry) ([]byte, error) {
	if !e.spooled {
		return e.data, nil
	}
	b := make([]byte, e.size)
	if _, err := w.spool.f.ReadAt(b, e.off); err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	return b, nil
}

// ackedSpoolLocked returns how many bytes at the beginning of the spool were acknowledged
// since they were written there. The caller must hold w.mu.
func (w *worker) ackedSpoolLocked() int64 {
	for i := range w.out.entries {
		if e := &w.out.entries[i]; e.kind == stdout && e.spooled {
			return e.off
		}
	}
	return w.spool.size
}
