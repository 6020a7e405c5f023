package daemoncmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"holdline/cmd/holdline/starter"
	"holdline/daemon/service"
)

// retryLog is the pause between two attempts to open a log file that could not be opened.
const retryLog = 5 * time.Second

// strayLog writes the log of a daemon that was started on demand and cannot open its log file:
// something else has the path, the directory is closed to it, or the disk is full. The lines go
// to stderr, and to systemd's journal once the daemon serves, if there is one. They go to the
// log file as soon as that can be opened.
type strayLog struct {
	getenv func(string) string
	path   string
	stdout *os.File
	stderr *os.File

	why atomic.Pointer[error] // of the latest attempt to open the file; nil after one that succeeded

	mu      sync.Mutex  // guards what follows
	serving bool        // stderr is no more needed by the process that has started the daemon
	next    time.Time   // earliest time of the next attempt
	size    int64       // bytes that were written to stderr since it was last emptied
	found   *boundedLog // the log file; nil until it is open
}

// newStrayLog returns the log of a daemon without a log file. It reports false if the streams
// are no files of this process, or if the file can be opened after all.
func newStrayLog(getenv func(string) string, path string, stdout, stderr io.Writer) (*strayLog, bool) {
	out, isFile := stdout.(*os.File)
	errs, areFiles := stderr.(*os.File)
	if !isFile || !areFiles {
		return nil, false
	}
	f, why := openLog(getenv)
	if why == nil {
		f.Close()
		return nil, false
	}
	l := &strayLog{getenv: getenv, path: path, stdout: out, stderr: errs, next: time.Now().Add(retryLog)}
	l.why.Store(&why)
	return l, true
}

// serve takes stderr over. Until the daemon serves, it is a file of the process that has
// started it, which reads there why a start has failed.
func (l *strayLog) serve() {
	journal, err := service.OpenJournal("holdline")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serving = true
	if err != nil {
		return // there is no journal
	}
	defer journal.Close()
	_ = unix.Dup2(int(journal.Fd()), int(l.stderr.Fd())) // on failure stderr stays as it is
}

// Write writes one line or several.
func (l *strayLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.find()
	if l.found != nil {
		return l.found.Write(b)
	}
	if l.size += int64(len(b)); l.size > maxLog {
		l.size = int64(len(b))
		// stderr may be a file without a name, which would take the disk unseen. Anything but a file refuses.
		if err := l.stderr.Truncate(0); err == nil {
			_, _ = l.stderr.Seek(0, io.SeekStart)
		}
	}
	return l.stderr.Write(b)
}

// find makes the log file the streams of the process, if it can be opened by now and an attempt
// is due. The caller must hold l.mu.
func (l *strayLog) find() {
	if l.found != nil || !l.serving || time.Now().Before(l.next) {
		return
	}
	l.next = time.Now().Add(retryLog)
	if err := becomeLog(l.getenv, []*os.File{l.stdout, l.stderr}); err != nil {
		l.why.Store(&err)
		return
	}
	if found, ok := logOf(l.path, l.stderr, l.stdout).(*boundedLog); ok { // else it was replaced meanwhile
		l.found = found
		l.why.Store(nil)
	}
}

// trouble returns for people why the log file is not written; "" if it is.
func (l *strayLog) trouble() string {
	if l.mu.TryLock() { // a write may hang
		l.find()
		l.mu.Unlock()
	}
	why := l.why.Load()
	if why == nil {
		return ""
	}
	err := *why
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		err = file.Err
	}
	return fmt.Sprintf("the log %s cannot be opened: %v; the daemon logs to stderr or the journal instead", l.path, err)
}

// prepareLog returns where the daemon's log is written. startedBy says what has started the
// daemon, which must call serve once it serves. trouble returns for people why the log is
// not where it should be; "" if it is.
func prepareLog(getenv func(string) string, path, startedBy string, stdout, stderr io.Writer) (
	to io.Writer, serve func() error, trouble func() string,
) {
	serve, trouble = func() error { return nil }, func() string { return "" }
	to = logOf(path, stderr, stdout)
	if startedBy != starter.StartedBy {
		return to, serve, trouble
	}
	if bounded, ok := to.(*boundedLog); ok {
		if file, ok := stderr.(*os.File); ok {
			// Until the daemon serves, stderr is a file of the proxy's, from which it reports a failed start.
			serve = func() error { return bounded.adopt(file) }
		}
		return bounded, serve, trouble
	}
	if stray, ok := newStrayLog(getenv, path, stdout, stderr); ok {
		return stray, func() error { stray.serve(); return nil }, stray.trouble
	}
	return to, serve, trouble
}
