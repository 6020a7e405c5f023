package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// InUseError is returned by [Run] if a daemon at another socket uses the state
// directory: what two of them do there with the same workers, one of them loses.
type InUseError struct {
	Dir    string // the state directory
	PID    int    // of the daemon that uses it
	Socket string // where that listens
}

// Error says who uses what.
func (e *InUseError) Error() string {
	return fmt.Sprintf("daemon %d at %s uses the state directory %s, and only one may", e.PID, e.Socket, e.Dir)
}

// StateLock is the path of the lock by which one daemon alone uses the state
// directory dir. Its file says who and at which socket. Beyond the socket's
// lock, which every daemon takes first, it keeps daemons at different sockets
// apart.
//
// It does not pass a hand-over: the new image takes it anew. Until then the
// file names a process that lives, and nobody else takes it; see [TryState].
func StateLock(dir string) string { return filepath.Join(dir, socket.LockFile) }

// TryState takes the lock of the state directory dir for process pid, without
// waiting. The error wraps [statedir.ErrLocked] if a daemon holds it, or is
// about to take it again since it replaces its program right now.
func TryState(dir string, pid int) (*statedir.Lock, error) {
	lock, err := statedir.TryLock(StateLock(dir))
	if err != nil {
		return nil, err
	}
	holder, start, err := statedir.Holder(StateLock(dir))
	if err != nil || holder == pid {
		return lock, nil //nolint:nilerr // it names nobody
	}
	if now, err := process.Lookup(holder); err != nil || now.Start != start {
		return lock, nil //nolint:nilerr // whom it names is dead
	}
	_ = lock.Unlock()
	return nil, fmt.Errorf("lock %s: process %d is taking it over from itself: %w", StateLock(dir), holder, statedir.ErrLocked)
}

// takeState takes the lock of the state directory. It waits as long as the
// holder neither answers nor ends: that one may be dying or just starting.
func (p *place) takeState(ctx context.Context, o Options) error {
	limit := time.Now().Add(raceWait)
	for told := false; ; {
		lock, err := TryState(o.StateDir, o.PID)
		if err == nil {
			p.state = lock
			return lock.Write(o.PID, process.Self().Start, p.path)
		}
		if !errors.Is(err, statedir.ErrLocked) {
			return err
		}
		holder, start, at, err := statedir.HolderOf(StateLock(o.StateDir))
		switch {
		case err != nil: // it has not said so yet
		case at != p.path && !p.displaces(o, at):
			if who, err := answers(ctx, at, o.Version, o.PID); err == nil && who == holder {
				return &InUseError{Dir: o.StateDir, PID: holder, Socket: at}
			}
		case !told:
			// The lock of its socket is ours (its runtime directory was removed
			// under it, and it ends as soon as it sees that), or its place is.
			told = true
			o.Log.InfoContext(ctx, "asking the daemon that uses the state directory to leave", "pid", holder, "socket", at)
			if now, err := process.Lookup(holder); err == nil && now.Start == start {
				_ = process.Signal(now, syscall.SIGTERM)
			}
		}
		if time.Now().After(limit) {
			return fmt.Errorf("process %d holds %s and neither answers nor ends: kill it", holder, StateLock(o.StateDir))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(racePoll):
		}
	}
}

// displaces tells whether the daemon at the socket at is to leave. One that was
// handed its socket is the one that all proxies find first: beside it one that
// was started where proxies look only then, for want of a variable, say, would
// keep everybody from any. One whose socket the user has named stays.
func (p *place) displaces(o Options, at string) bool {
	return p.handed && slices.ContainsFunc(o.Paths.Candidates(), func(c socket.Candidate) bool { return c.Path == at })
}
