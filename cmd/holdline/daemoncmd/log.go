package daemoncmd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"holdline/daemon/logfile"
	"holdline/protocol/ownfile"
)

// boundedLog writes to the log file of a daemon that was started on demand. When the file is
// full it is renamed to .1, in place of the former one, and a new file begins. The standard
// streams of the process that are the file follow it, since the Go runtime writes to them when
// the daemon crashes.
type boundedLog struct {
	path    string
	streams []*os.File // standard streams that are the file; Write uses the first
	max     int64      // bytes

	mu   sync.Mutex
	size int64 // estimate of the bytes in the file; guarded by mu
}

// logOf returns where the daemon's log is written: a bounded log if stderr or stdout is the file
// at path, else stderr. A file that the user has chosen is theirs to bound.
func logOf(path string, stderr, stdout io.Writer) io.Writer {
	named, err := os.Lstat(path)
	if err != nil || !named.Mode().IsRegular() {
		return stderr
	}
	l := &boundedLog{path: path, max: maxLog, size: named.Size()}
	for _, w := range []io.Writer{stderr, stdout} {
		f, ok := w.(*os.File)
		if !ok {
			continue
		}
		if info, err := f.Stat(); err == nil && os.SameFile(info, named) {
			l.streams = append(l.streams, f)
		}
	}
	if len(l.streams) == 0 {
		return stderr
	}
	return l
}

// adopt makes another of the process's standard streams the log file, too. Later rotations
// include it. It does nothing if the stream is the log file already.
func (l *boundedLog) adopt(stream *os.File) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.streams, stream) {
		return nil
	}
	if err := unix.Dup2(int(l.streams[0].Fd()), int(stream.Fd())); err != nil {
		return fmt.Errorf("stderr to the log: %w", err)
	}
	l.streams = append(l.streams, stream)
	return nil
}

// Write writes one line or several, and rotates the file first if they do not fit. If the
// rotation fails the file grows on, and the next attempt follows after as many bytes again.
func (l *boundedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size += int64(len(b)); l.size > l.max {
		l.size = int64(len(b)) // a rotation that fails is tried again after l.max bytes more
		if err := l.rotate(); err != nil {
			_, _ = fmt.Fprintf(l.streams[0], "holdline: the log grows on: %v\n", err)
		}
	}
	return l.streams[0].Write(b)
}

// rotate begins a new file at the path of the log. It does not rename a file that was removed
// or replaced by another process. The caller must hold l.mu.
func (l *boundedLog) rotate() error {
	old, err := l.streams[0].Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(l.path); err == nil && os.SameFile(old, named) {
		if err := logfile.Rotate(l.path, 1); err != nil {
			return err
		}
	}
	f, err := ownfile.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close()
	// The descriptors of the standard streams stay the same and lead to the new file.
	for _, stream := range l.streams {
		if err := unix.Dup2(int(f.Fd()), int(stream.Fd())); err != nil {
			return fmt.Errorf("take %s: %w", filepath.Base(l.path), err)
		}
	}
	return nil
}
