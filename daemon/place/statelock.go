package place

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/shellword"
	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// InUseError is returned by [Take] if a daemon at another socket uses the state
// directory. Two daemons there would lose each other's records.
type InUseError struct {
	Dir    string // the state directory
	PID    int    // of the daemon that uses it
	Socket string // where that daemon listens
}

// Error names the daemon and the directory.
func (e *InUseError) Error() string {
	return fmt.Sprintf("daemon %d at %s uses the state directory %s, and only one may", e.PID, e.Socket, e.Dir)
}

// StateLock returns the path of the lock of the state directory dir. The lock's
// file names the daemon that holds it and that daemon's socket.
//
// The lock does not pass at a hand-over: the new image takes it anew. Meanwhile
// the file names a living process, and [TryState] does not take the lock from it.
func StateLock(dir string) string { return filepath.Join(dir, socket.LockFile) }

// LockFileError says that a lock's file cannot be opened. Without it nobody knows whether a daemon runs.
type LockFileError struct {
	Path string
	Err  error
}

// Error returns what is wrong, and what to do.
func (e *LockFileError) Error() string {
	return fmt.Sprintf("no daemon can start: %v. %s", e.Err, e.WayOut())
}

// WayOut returns what a person can do. A daemon that holds the lock of a file that was removed stops.
func (e *LockFileError) WayOut() string {
	if errors.Is(e.Err, os.ErrPermission) {
		return "Run: chmod 600 " + shellword.Quote(e.Path)
	}
	return "Run: rm " + shellword.Quote(e.Path)
}

// Unwrap returns the error of the file.
func (e *LockFileError) Unwrap() error { return e.Err }

// LockFile returns err, of an attempt to take the lock at path, as a [*LockFileError] if the file cannot be opened.
func LockFile(path string, err error) error {
	of, ok := errors.AsType[*os.PathError](err)
	if !ok || of.Path != path || errors.Is(err, statedir.ErrLocked) || errors.Is(err, os.ErrNotExist) ||
		fault.Exhausted("", err) != nil {
		return err
	}
	return &LockFileError{path, err}
}

// TryState takes the lock of the state directory dir for process pid, without
// waiting for its holder. The error wraps [statedir.ErrLocked] if a daemon holds the lock, or is
// about to take it again because it is replacing its program. A process that holds it and is none of
// Holdline's does not count: see [statedir.SeizeUnnamed].
func TryState(dir string, pid int) (*statedir.Lock, error) {
	lock, err := statedir.SeizeUnnamed(StateLock(dir))
	if err != nil {
		return nil, LockFile(StateLock(dir), err)
	}
	holder, start, err := statedir.Holder(StateLock(dir))
	if err != nil || holder == pid {
		return lock, nil //nolint:nilerr // the file names no daemon
	}
	if !process.IsAlive(holder, start) {
		return lock, nil
	}
	_ = lock.Unlock()
	return nil, fmt.Errorf("lock %s: process %d is replacing its program: %w",
		StateLock(dir), holder, statedir.ErrLocked)
}

// takeState takes the lock of the state directory. It waits while the holder
// neither answers nor ends: the holder may be dying, or just starting.
func (p *Place) takeState(ctx context.Context, o Options) error {
	limit := time.Now().Add(lockWait)
	for signalled := false; ; {
		lock, err := TryState(o.StateDir, o.PID)
		if err == nil {
			p.state = lock
			return lock.Write(o.PID, process.Self().Start, p.socket)
		}
		if !errors.Is(err, statedir.ErrLocked) {
			return err
		}
		if err := p.checkLock(); err != nil { // most likely the holder has taken it
			return err
		}
		holder, start, at, err := statedir.HolderOf(StateLock(o.StateDir))
		switch {
		case err != nil: // the holder has not written its name yet
		case at != p.socket && !p.replaces(o, at):
			if pid, err := askPID(ctx, at, o); err == nil && pid == holder {
				return &InUseError{Dir: o.StateDir, PID: holder, Socket: at}
			}
		case !signalled:
			// Either this daemon replaces the holder, or the holder's runtime
			// directory was removed, so that we could lock the new one. The holder
			// stops by itself when it sees that.
			signalled = true
			o.Log.InfoContext(ctx, "asking the daemon that uses the state directory to stop",
				"pid", holder, "socket", at)
			terminate(holder, start)
		}
		if err := waitForHolder(ctx, limit, StateLock(o.StateDir)); err != nil {
			return err
		}
	}
}

// replaces reports whether the daemon at the socket at must make way for this one.
// It must if this one was handed its socket by the service manager, and the other
// listens at a place where proxies look only after that socket: for want of a
// variable, say. A daemon whose socket the user has named stays.
func (p *Place) replaces(o Options, at string) bool {
	return p.managed && slices.ContainsFunc(o.Paths.Candidates(), func(c socket.Candidate) bool { return c.Path == at })
}
