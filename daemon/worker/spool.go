package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck"
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

// startSpool writes all stdout that is not acknowledged into a new spool, which replaces an older
// one, and frees that stdout in memory and its files. The new file gets its name only when it is
// complete: a daemon that finds a spool must find all of it. It returns an error if a file cannot
// be read or written; then the older spool and the output in memory stay.
//
// It takes w.spooling, so that meanwhile no stdout is added, and w.mu, which it does not hold
// while it reads and writes: a daemon may attach then, and acknowledge output. What is left of the
// output is in the new spool all the same. The caller must hold neither.
func (w *worker) startSpool() error {
	w.spooling.Lock()
	defer w.spooling.Unlock()
	w.endLong(false)
	w.mu.Lock()
	old, entries := w.spool, slices.Clone(w.out.entries)
	w.mu.Unlock()
	tmp := filepath.Join(w.dir, process.FileSpool+".new")
	f, err := ownfile.Create(tmp)
	if err != nil {
		return fmt.Errorf("make spool: %w", err)
	}
	s := &spool{f: f}
	offs := make(map[int64]int64, len(entries)) // by seq, where an entry is in the new file
	for i := range entries {
		e := &entries[i]
		if e.kind != stdout {
			continue
		}
		data := e.data
		if e.spooled {
			data, err = old.readEntry(e)
		} else if e.file != "" {
			data, err = w.readFiled(e)
		}
		if err == nil {
			_, err = f.WriteAt(data, s.size)
		}
		if err != nil {
			break
		}
		offs[e.seq] = s.size
		s.size += int64(e.size)
	}
	faultpoint.At("worker.spooled")
	if err == nil {
		err = os.Rename(tmp, filepath.Join(w.dir, process.FileSpool))
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(tmp)
		return fmt.Errorf("write spool: %w", err)
	}
	if old != nil {
		_ = old.f.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.out.entries {
		e := &w.out.entries[i]
		off, copied := offs[e.seq]
		if !copied {
			continue
		}
		if !e.spooled {
			w.out.in.Release(e.size, 1)
		}
		w.dropFileLocked(e)
		e.data, e.file, e.spooled, e.off = nil, "", true, off
	}
	w.spool = s
	return nil
}

// spoolStdout writes data to the end of the spool file if stdout goes there, and returns true; the
// caller must then add the bytes to the output and to the size of the spool. It returns false if
// stdout goes to memory. It also returns false if data does not fit or cannot be written: then the
// spool is full for good, and the caller keeps data in memory, as all that follows, up to the limit
// of stdout. The caller must hold w.spooling, and must not hold w.mu, which spoolStdout takes.
func (w *worker) spoolStdout(data []byte) bool {
	w.mu.Lock()
	s, spools := w.spool, w.attendance == spooling
	w.mu.Unlock()
	if !spools {
		return false
	}
	if !s.full && s.size+int64(len(data)) <= w.spec.Orphan.SpoolMax {
		lockcheck.Blocking("write spool")
		if _, err := s.f.WriteAt(data, s.size); err == nil {
			return true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.full = true
	return false
}

// readEntry reads the bytes of an entry in the spool. The caller must hold w.spooling.
func (s *spool) readEntry(e *entry) ([]byte, error) {
	lockcheck.Blocking("read spool")
	b := make([]byte, e.size)
	_, err := s.f.ReadAt(b, e.off)
	return b, err
}

// loaded are the bytes of an event that the spool has.
type loaded struct {
	seq  int64
	data []byte // nil after an error
	err  error  // the spool cannot be read
}

// loadEvent reads the data of the connection's next event, if the spool has them, into c.loaded, or
// keeps the error there, and logs it. It takes w.spooling and then w.mu, which it does not hold
// while it reads. The caller must hold neither.
func (c *conn) loadEvent() {
	w := c.w
	w.spooling.Lock()
	defer w.spooling.Unlock()
	w.mu.Lock()
	var e entry
	if c.pendingLocked() {
		e = *c.nextLocked()
	}
	s := w.spool
	w.mu.Unlock()
	if !e.spooled {
		return
	}
	data, err := s.readEntry(&e)
	if err != nil {
		w.logf("read spool: %v", err)
		data = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.loaded = loaded{seq: e.seq, data: data, err: err}
}

// ackedSpoolLocked returns how many bytes of the spool were acknowledged. w.mu must be held.
func (w *worker) ackedSpoolLocked() int64 {
	for i := range w.out.entries {
		if e := &w.out.entries[i]; e.kind == stdout && e.spooled {
			return e.off
		}
	}
	return w.spool.size
}
