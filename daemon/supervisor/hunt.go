package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/bootclock"
	"holdline/protocol/process"
)

// Alive reports whether the worker of dir lives: whether its lock is held,
// whatever any pid says. It leaves nothing in dir, which may be about to be removed.
func Alive(dir string) (bool, error) {
	alive, err := statedir.Held(filepath.Join(dir, process.FileLock))
	if errors.Is(err, os.ErrNotExist) {
		_, err = os.Lstat(dir)
	}
	return alive, err
}

// lockDir takes the lock of a worker's directory. A directory that is not
// there is an error that wraps [os.ErrNotExist].
func lockDir(dir string) (*statedir.Lock, error) {
	return statedir.TryLock(filepath.Join(dir, process.FileLock))
}

// Reap removes the directory of a dead worker; the error wraps
// [statedir.ErrLocked] if it lives. The caller has made sure that nothing in
// it is still to be told to anybody.
func (s *Supervisor) Reap(dir string) error {
	lock, err := lockDir(dir)
	for range looks {
		if !errors.Is(err, statedir.ErrLocked) {
			break
		}
		<-time.After(pollPause)
		lock, err = lockDir(dir)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	defer func() { _ = lock.Unlock() }()
	// The socket of a consult has a directory of its own, named by its id.
	if spec, err := process.ReadSpec(dir); err == nil && process.ValidID(spec.ID) && s.Dir(spec.ID) != dir {
		_ = os.RemoveAll(s.Dir(spec.ID))
	}
	if err := removeAll(dir); err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	return nil
}

// ReapSettled removes the directories of those dead servers' workers of whose
// calls no client can ask any more, and returns how many they were. A daemon does
// that before anything else if it finds no room.
func (s *Supervisor) ReapSettled() int {
	dirs, err := s.ServerDirs()
	if err != nil {
		s.log.Warn("looking for what can be removed", "err", err)
	}
	n := 0
	for _, dir := range dirs {
		if f, _, err := LookServer(dir); err != nil || Decide(f) != Remove {
			continue
		}
		if err := s.Reap(dir); err != nil {
			s.log.Warn("a dead worker's directory stays", "dir", dir, "err", err)
			continue
		}
		n++
	}
	return n
}

// looks is how often the lock of a dead worker is tried again: who looks whether
// it lives holds it for an instant.
const looks = 10

// removals bounds how often a directory is emptied that fills again.
const removals = 100

// removeAll removes dir although a last file may still be written into it: by the
// daemon, which had just read what the server said when it was ended, or by a worker
// that comes late and finds nothing to do. Neither makes the directory again.
func removeAll(dir string) (err error) {
	for range removals {
		if err = os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
			break
		}
	}
	return err
}

// killLeft kills the processes that the dead worker of dir left, until there are none
// or five seconds have passed.
func (s *Supervisor) killLeft(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	for {
		all, err := process.Carriers()
		if err != nil {
			return fmt.Errorf("hunt: %w", err)
		}
		if s.killAll(ctx, dir, all[dir]) == 0 {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("kill what %s left: %w", dir, err)
		}
	}
}

// HuntAll kills the processes that dead workers of this daemon's directories left.
// A directory may have been removed meanwhile: its processes are then those that
// do not run under its worker. A daemon calls HuntAll when it starts.
func (s *Supervisor) HuntAll(ctx context.Context) error {
	all, err := process.Carriers()
	if err != nil {
		return fmt.Errorf("hunt: %w", err)
	}
	var errs []error
	for dir, procs := range all {
		if !slices.Contains(s.parents(), filepath.Dir(dir)) {
			continue
		}
		if dead, known := deadByLock(dir); known {
			if dead {
				errs = append(errs, s.killLeft(ctx, dir))
			}
			continue
		}
		for _, p := range procs {
			if !process.HasWorker(p, dir) {
				s.killAll(ctx, dir, []process.Proc{p})
			}
		}
	}
	for _, dir := range s.dirs() {
		if lock, err := lockDir(dir); err == nil {
			errs = append(errs, s.killGroup(ctx, dir))
			_ = lock.Unlock()
		}
	}
	return errors.Join(errs...)
}

// EndAll ends all workers of these directories that live, with their trees. It
// is for when no daemon runs that has them.
func (s *Supervisor) EndAll(ctx context.Context) (ended int, err error) {
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	var errs []error
	for _, dir := range s.dirs() {
		alive, err := Alive(dir)
		if err != nil || !alive {
			continue
		}
		spec, err := process.ReadSpec(dir)
		if err == nil {
			err = s.destroy(ctx, dir, &spec, false)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		ended++
	}
	return ended, errors.Join(append(errs, s.HuntAll(ctx))...)
}

// parents returns the directories that hold those of this daemon's workers.
func (s *Supervisor) parents() []string {
	return []string{filepath.Join(s.o.RuntimeDir, "w"), filepath.Join(s.o.StateDir, "consults")}
}

// dirs returns the directories of this daemon's workers.
func (s *Supervisor) dirs() []string {
	var found []string
	for _, parent := range s.parents() {
		all, _ := filepath.Glob(filepath.Join(parent, "*", process.FileState))
		for _, f := range all {
			found = append(found, filepath.Dir(f))
		}
	}
	return found
}

// ServerDirs lists the directories in which a server's worker runs, ran or was
// to run. Those that hold the socket of a consult, which has its directory
// elsewhere, are not among them.
func (s *Supervisor) ServerDirs() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.o.RuntimeDir, "w"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() || !process.ValidID(e.Name()) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.o.StateDir, "consults", e.Name())); errors.Is(err, os.ErrNotExist) {
			found = append(found, s.Dir(e.Name()))
		}
	}
	return found, nil
}

// deadByLock reports whether the worker of dir is dead. The result known is false
// if dir is gone or cannot be read.
func deadByLock(dir string) (dead, known bool) {
	if _, err := os.Stat(filepath.Join(dir, process.FileSpec)); err != nil {
		return false, false
	}
	alive, err := Alive(dir)
	return !alive, err == nil
}

// killAll kills procs, which the worker of dir left, except this process, and
// returns how many there were.
func (s *Supervisor) killAll(ctx context.Context, dir string, procs []process.Proc) int {
	n := 0
	for _, p := range procs {
		if p.PID == os.Getpid() {
			continue
		}
		n++
		err := process.Signal(p, syscall.SIGKILL)
		if err != nil && !errors.Is(err, process.ErrGone) {
			s.log.WarnContext(ctx, "orphan not killed", "worker", filepath.Base(dir), "pid", p.PID, "err", err)
			continue
		}
		s.log.InfoContext(ctx, "orphan killed", "worker", filepath.Base(dir), "pid", p.PID)
	}
	return n
}

// destroy ends the worker of dir whatever state it is in, with its tree. With
// revoke it takes spec.json away, without which no worker begins that was
// started and has not come to its lock yet.
func (s *Supervisor) destroy(ctx context.Context, dir string, spec *process.Spec, revoke bool) error {
	for {
		lock, err := lockDir(dir)
		if err == nil {
			if revoke {
				err = os.Remove(filepath.Join(dir, process.FileSpec))
			}
			if err == nil || errors.Is(err, os.ErrNotExist) {
				err = s.bury(ctx, dir)
			}
			_ = lock.Unlock()
			return err
		}
		if !errors.Is(err, statedir.ErrLocked) {
			return err
		}
		// The tree first: an answer that comes after it was said that none
		// will would be worse than none.
		if err := s.killGroup(ctx, dir); err != nil {
			return err
		}
		pid, start, err := statedir.Holder(filepath.Join(dir, process.FileLock))
		if err == nil && pid != os.Getpid() {
			if err := process.Signal(process.Proc{PID: pid, Start: start}, syscall.SIGKILL); err != nil && !errors.Is(err, process.ErrGone) {
				return fmt.Errorf("kill worker %d: %w", pid, err)
			}
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("worker %s does not die: %w", spec.ID, err)
		}
	}
}

// SetAside ends the worker of a server's directory, whatever state it is in, and
// moves the directory to another place, where no daemon looks. Nothing is read of
// what its child has said.
func (s *Supervisor) SetAside(ctx context.Context, dir, to string) error {
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	err := s.destroy(ctx, dir, &process.Spec{ID: filepath.Base(dir)}, false)
	if err == nil {
		err = os.Rename(dir, to)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// bury kills the processes that the dead worker of dir left. The caller holds its
// lock.
func (s *Supervisor) bury(ctx context.Context, dir string) error {
	if err := s.killGroup(ctx, dir); err != nil {
		return err
	}
	return s.killLeft(ctx, dir)
}

// killGroup kills the group of the child that is on record in dir, if it is
// still that child's: by pid, start time and boot.
func (s *Supervisor) killGroup(ctx context.Context, dir string) error {
	st, err := process.ReadState(dir)
	if err != nil || st.ChildPID < 2 || st.ChildStart == 0 || st.BootID == "" || st.BootID != bootclock.ID() {
		return nil //nolint:nilerr // without a whole state no child was ever let run
	}
	leader := process.Proc{PID: st.ChildPID, Start: st.ChildStart}
	led := func() bool {
		now, err := process.Lookup(leader.PID)
		return err == nil && now.Start == leader.Start
	}
	for {
		// Before all processes are looked at, which takes long and would be done
		// for every consult that is kept; and again once they are known.
		if process.Exact && !led() {
			return nil // the hunt finds the rest, and nobody else
		}
		members, err := process.Group(leader.PID)
		if err != nil {
			return fmt.Errorf("kill group: %w", err)
		}
		// A group's number is not given to another as long as it has members,
		// so older members than the child itself mean that it is not its.
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
		if s.killAll(ctx, filepath.Base(dir), mine) == 0 {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("kill group: %w", err)
		}
	}
}

// pause waits a moment for something that cannot be waited for.
func pause(ctx context.Context) error {
	t := time.NewTimer(pollPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
