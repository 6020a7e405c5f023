package near

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdline/daemon/statedir"
	"holdline/daemon/waiting"
	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// DeathTimeout is how long a killed process may take to be gone.
const DeathTimeout = 5 * time.Second

// pollPause is the pause of [Pause].
const pollPause = 10 * time.Millisecond

// A Hunter kills workers and what they left. It logs what it kills.
type Hunter struct{ Log *slog.Logger }

// Lock takes the lock of a worker's directory, also if a process holds it that is not the worker: see
// [statedir.Seize]. It does not take the lock of a worker that lives and whose lock's file was removed or
// replaced: then the error wraps [statedir.ErrLocked], too. A directory that is not there is an error
// that wraps [os.ErrNotExist].
func Lock(dir string) (*statedir.Lock, error) {
	path := filepath.Join(dir, process.FileLock)
	lock, err := statedir.Seize(path)
	if err != nil {
		return nil, err
	}
	if p, lives := process.WorkerIn(dir); lives {
		_ = lock.Unlock()
		return nil, fmt.Errorf("lock %s: process %d is the worker, and holds the lock of another file: %w",
			path, p.PID, statedir.ErrLocked)
	}
	return lock, nil
}

// KillLeft kills the processes that the dead worker of dir left, until there are none
// or five seconds have passed.
func (h Hunter) KillLeft(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, DeathTimeout)
	defer cancel()
	for {
		all, err := process.Carriers()
		if err != nil {
			return fmt.Errorf("hunt: %w", err)
		}
		if h.KillAll(ctx, dir, all.Of(dir)) == 0 {
			return nil
		}
		if err := Pause(ctx); err != nil {
			return fmt.Errorf("kill what %s left: %w", dir, err)
		}
	}
}

// KillAll kills procs, which the worker of dir left, except this process, and
// returns how many there were.
func (h Hunter) KillAll(ctx context.Context, dir string, procs []process.Proc) int {
	n := 0
	for _, p := range procs {
		if p.PID == os.Getpid() {
			continue
		}
		n++
		err := process.Signal(p, syscall.SIGKILL)
		if err != nil && !errors.Is(err, process.ErrGone) {
			h.Log.WarnContext(ctx, "orphan not killed", "worker", filepath.Base(dir), "pid", p.PID, "err", err)
			continue
		}
		h.Log.InfoContext(ctx, "orphan killed", "worker", filepath.Base(dir), "pid", p.PID)
	}
	return n
}

// Destroy kills the worker of dir with its tree, whatever state it is in, and returns when
// all of that is gone. With revoke it also removes spec.json: then a worker process that was
// started and does not hold its lock yet cannot begin. A lock that a process holds which is not the
// worker does not count, whatever the directory's files say.
func (h Hunter) Destroy(ctx context.Context, dir string, revoke bool) error {
	path := filepath.Join(dir, process.FileLock)
	var killed []process.Proc
	for begin := time.Now(); ; {
		lock, err := Lock(dir)
		// Anything may lie in the place of the lock's file, and the disk may not give it out.
		unusable := errors.Is(err, ownfile.ErrRefused) || errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EIO)
		gone := errors.Is(err, os.ErrNotExist) // the directory
		var workers []process.Proc
		if err == nil && !isOwn(dir) { // the lock's file may be another one
			if workers = h.workers(dir); len(workers) > 0 {
				_ = lock.Unlock()
				err = statedir.ErrLocked
			}
		}
		if errors.Is(err, statedir.ErrLocked) || unusable || gone {
			// The tree comes first. Else the child could still act after the client
			// has learned that the call's outcome is unknown.
			if err := h.KillGroup(ctx, dir); err != nil {
				return err
			}
			workers = h.workers(dir)
			if len(workers) == 0 && !unusable && !gone && time.Since(begin) > squatTime {
				lock, err = statedir.SeizeUnnamed(path)
			}
		}
		if err == nil || (unusable || gone) && len(workers) == 0 {
			err = untilEnded(ctx, killed) // a process that ends has no lock and no arguments any more
			if err == nil && revoke {
				err = os.Remove(filepath.Join(dir, process.FileSpec))
			}
			if err == nil || errors.Is(err, os.ErrNotExist) {
				err = h.bury(ctx, dir)
			}
			if lock != nil {
				_ = lock.Unlock()
			}
			return err
		}
		if !errors.Is(err, statedir.ErrLocked) && !unusable && !gone {
			return err
		}
		for _, p := range workers {
			if err := process.Signal(p, syscall.SIGKILL); err != nil && !errors.Is(err, process.ErrGone) {
				return fmt.Errorf("kill worker %d: %w", p.PID, err)
			}
			if !slices.Contains(killed, p) {
				killed = append(killed, p)
			}
		}
		if err := Pause(ctx); err != nil {
			return fmt.Errorf("worker %s does not die: %s holds the lock of its directory %s: %w",
				filepath.Base(dir), statedir.WhoHolds(path), dir, err)
		}
	}
}

// untilEnded waits until processes that were killed have ended.
func untilEnded(ctx context.Context, killed []process.Proc) error {
	for _, p := range killed {
		for !process.HasEnded(p.PID, p.Start) {
			if err := Pause(ctx); err != nil {
				return fmt.Errorf("worker %d was killed and does not end: %w", p.PID, err)
			}
		}
	}
	return nil
}

// squatTime is how long the lock of a worker that no process seems to be may be held before it counts
// for held by another program.
const squatTime = time.Second

// isOwn reports whether the files of a directory name its worker: its lock a process, and its state this directory.
// After two directories were exchanged the worker of one holds the lock that lies in the other.
func isOwn(dir string) bool {
	_, _, err := statedir.Holder(filepath.Join(dir, process.FileLock))
	if err == nil {
		_, err = process.ReadState(dir)
	}
	return err == nil
}

// workers returns the processes that are the worker of dir: the one that its state names, or else those
// that say so themselves. Its files may be damaged, so what a process says decides.
func (h Hunter) workers(dir string) []process.Proc {
	if p, lives := process.WorkerIn(dir); lives {
		return []process.Proc{p}
	}
	all, err := process.List()
	if err != nil {
		h.Log.Warn("processes cannot be listed", "worker", filepath.Base(dir), "err", err)
	}
	return slices.DeleteFunc(all, func(p process.Proc) bool { return !process.IsWorker(p.PID, dir) })
}

// bury kills the processes that the dead worker of dir left: the child's process group, and
// the processes that carry the worker's mark. The caller must hold the directory's lock.
func (h Hunter) bury(ctx context.Context, dir string) error {
	if err := h.KillGroup(ctx, dir); err != nil {
		return err
	}
	return h.KillLeft(ctx, dir)
}

// KillGroup kills the process group of the child that state.json in dir names, and returns
// when the group is empty, or five seconds have passed. It kills nothing if the group is not that child's any more: pid,
// start time and boot must be the same. Another program may have the pid by now.
func (h Hunter) KillGroup(ctx context.Context, dir string) error {
	st, err := process.ReadState(dir)
	whole := err == nil && st.ChildPID > 1 && st.ChildStart != 0 && st.BootID != ""
	if !whole || st.BootID != bootclock.ID() {
		return nil // without a whole state no child was ever let run
	}
	ctx, cancel := context.WithTimeout(ctx, DeathTimeout)
	defer cancel()
	leader := process.Proc{PID: st.ChildPID, Start: st.ChildStart}
	led := func() bool {
		now, err := process.Lookup(leader.PID)
		return err == nil && now.Start == leader.Start
	}
	for {
		// This check comes first, since listing all processes takes long, and a
		// daemon does it for every consult that is kept. It is repeated after
		// the listing: the pid may have changed hands meanwhile.
		if process.Exact && !led() {
			return nil // KillLeft finds the rest, by the worker's mark
		}
		members, err := process.Group(leader.PID)
		if err != nil {
			return fmt.Errorf("kill group: %w", err)
		}
		// The system does not reuse a group's number while the group has members. So
		// a member that is older than the child is not one of its group.
		mine := members[:0]
		for _, p := range members {
			if p.PID == leader.PID && p.Start != leader.Start {
				return nil
			}
			if p.Start >= leader.Start {
				mine = append(mine, p)
			}
		}
		if process.Exact && !led() {
			return nil
		}
		if h.KillAll(ctx, filepath.Base(dir), mine) == 0 {
			return nil
		}
		if err := Pause(ctx); err != nil {
			return fmt.Errorf("kill group: %w", err)
		}
	}
}

// Pause blocks for pollPause, for a caller that must poll. It returns the cause of ctx if
// that is done before.
func Pause(ctx context.Context) error { return waiting.Pause(ctx, pollPause) }

// removals bounds how often RemoveAll empties a directory that fills again.
const removals = 100

// RemoveAll removes dir, even if a last file is written into it meanwhile. That file may be
// the daemon's, with a last answer of the server, or that of a worker that comes late and
// finds nothing to do. Neither makes the directory again.
func RemoveAll(dir string) (err error) {
	for range removals {
		if err = os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
			break
		}
	}
	return err
}

// RemoveFiles removes the files of a directory whose names have one of the beginnings. Those
// that cannot be removed stay.
func RemoveFiles(dir string, beginnings ...string) {
	entries, _ := os.ReadDir(dir) // what is not there need not be removed
	for _, e := range entries {
		if slices.ContainsFunc(beginnings, func(begin string) bool { return strings.HasPrefix(e.Name(), begin) }) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
