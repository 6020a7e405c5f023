package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/finding"
	"holdline/protocol/bootclock"
	"holdline/protocol/process"
)

// lockDir takes the lock of a worker's directory. A directory that is not
// there is an error that wraps [os.ErrNotExist].
func lockDir(dir string) (*statedir.Lock, error) {
	return statedir.TryLock(filepath.Join(dir, process.FileLock))
}

// Reap kills what a dead worker has left, and removes its directory; the error wraps [statedir.ErrLocked] if the
// worker lives. The caller must have made sure that no client can still ask for an answer
// in it.
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
	// A worker that was killed a moment ago may have lived when the daemon last looked for what
	// the dead had left.
	if st, err := process.ReadState(dir); err != nil || st.Phase != process.PhaseExited {
		if err := s.killLeft(context.Background(), dir); err != nil {
			return fmt.Errorf("reap: %w", err)
		}
	}
	// The socket of a consult has a directory of its own, named by its id.
	if spec, err := process.ReadSpec(dir); err == nil && process.ValidID(spec.ID) && s.Dir(spec.ID) != dir {
		_ = os.RemoveAll(s.Dir(spec.ID))
	}
	if err := removeAll(dir); err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	return nil
}

// Clear ends what is left of a worker whose directory is not in the runtime directory and
// stays: it kills the worker with its tree if it lives, and removes its output, with the
// files of long lines, its socket and half-written files. The caller must need none of the
// output any more.
func (s *Supervisor) Clear(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	id := filepath.Base(dir)
	alive, err := finding.Alive(dir)
	if err == nil && alive {
		err = s.destroy(ctx, dir, &process.Spec{ID: id}, false)
	}
	if err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	statedir.Sweep(dir, false)
	removeFiles(dir, process.FileSpool, calls.File+".new", process.FileLong, process.FileInput)
	return os.RemoveAll(s.Dir(id))
}

// removeFiles removes the files of a directory whose names have one of the beginnings. Those
// that cannot be removed stay.
func removeFiles(dir string, beginnings ...string) {
	entries, _ := os.ReadDir(dir) // what is not there need not be removed
	for _, e := range entries {
		if slices.ContainsFunc(beginnings, func(begin string) bool { return strings.HasPrefix(e.Name(), begin) }) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// LookServer is [finding.Look] for the directory of a server's worker, with what its
// state and its records tell. It returns the records, too.
func LookServer(dir string) (finding.Facts, []calls.Record, error) {
	f, err := finding.Look(dir)
	if err != nil {
		return f, nil, err
	}
	records, err := calls.ReadRecords(dir)
	if err != nil {
		return f, nil, err
	}
	// Confirmed or not, the clients that are back will tell.
	f.Unconfirmed = slices.ContainsFunc(records, func(r calls.Record) bool { return r.Kind == calls.KindCall })
	switch st, err := process.ReadState(dir); {
	case err == nil:
		f.Boot = st.BootID != "" && st.BootID == bootclock.ID()
	case !errors.Is(err, os.ErrNotExist): // which boot it was decides what is said of its calls
		return f, nil, err
	}
	return f, records, nil
}

// ReapSettled removes the directories of dead servers' workers about whose calls no client
// can ask any more. It returns their number. A daemon whose disk is full calls it before
// anything else.
func (s *Supervisor) ReapSettled() int {
	dirs, err := s.ServerDirs()
	if err != nil {
		s.log.Warn("looking for what can be removed", "err", err)
	}
	n := 0
	for _, dir := range dirs {
		if f, _, err := LookServer(dir); err != nil || finding.Decide(f) != finding.Remove {
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

// looks is how often Reap tries the lock of a dead worker again: each process that checks
// whether the worker lives holds the lock for an instant.
const looks = 10

// removals bounds how often removeAll empties a directory that fills again.
const removals = 100

// removeAll removes dir, even if a last file is written into it meanwhile. That file may be
// the daemon's, with a last answer of the server, or that of a worker that comes late and
// finds nothing to do. Neither makes the directory again.
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

// EndTime returns how long the children of living workers may take to end by themselves: see
// [process.Spec]. It is 0 if none of them needs more than the usual time.
func (s *Supervisor) EndTime() time.Duration {
	_, most := s.unhurried()
	return most
}

// unhurried returns the directories of living workers whose children must not be killed at once,
// and how long they may take to end.
func (s *Supervisor) unhurried() (dirs []string, most time.Duration) {
	for _, dir := range s.dirs() {
		spec, err := process.ReadSpec(dir)
		if alive, _ := finding.Alive(dir); err == nil && alive && spec.EndGraceMS > 0 {
			dirs, most = append(dirs, dir), max(most, 2*spec.EndGrace())
		}
	}
	return dirs, most
}

// endUnhurried has the workers of [Supervisor.unhurried] end their children, waits until they
// have, for [Supervisor.EndTime] at most, and returns how many did.
func (s *Supervisor) endUnhurried(ctx context.Context) (ended int) {
	all, limit := s.unhurried()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, dir := range all {
		if pid, start, err := statedir.Holder(filepath.Join(dir, process.FileLock)); err == nil && pid != os.Getpid() {
			_ = process.Signal(process.Proc{PID: pid, Start: start}, syscall.SIGTERM) // else it is killed
		}
	}
	for _, dir := range all {
		for alive := true; alive && ctx.Err() == nil; {
			if alive, _ = finding.Alive(dir); alive {
				_ = pause(ctx)
			} else {
				ended++
			}
		}
	}
	return ended
}

// EndAll ends all workers that live in this daemon's directories, with their trees, and
// then what dead workers left: it kills them at once, but for [Supervisor.EndTime]. It returns
// the number of workers that it has ended. Call it only while no daemon uses these directories.
func (s *Supervisor) EndAll(ctx context.Context) (ended int, err error) {
	ended = s.endUnhurried(ctx)
	ctx, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	var errs []error
	for _, dir := range s.dirs() {
		alive, err := finding.Alive(dir)
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

// ServerDirs lists the directories of servers' workers, living and dead ones, and those whose
// worker never started. It leaves out the directories that only hold the socket of a
// consult: the worker of a consult has its directory elsewhere.
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
	alive, err := finding.Alive(dir)
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

// destroy kills the worker of dir with its tree, whatever state it is in, and returns when
// all of that is gone. With revoke it also removes spec.json: then a worker process that was
// started and does not hold its lock yet cannot begin.
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
		// The tree comes first. Else the child could still act after the client
		// has learned that the call's outcome is unknown.
		if err := s.killGroup(ctx, dir); err != nil {
			return err
		}
		pid, start, err := statedir.Holder(filepath.Join(dir, process.FileLock))
		if err == nil && pid != os.Getpid() {
			if err := process.Signal(process.Proc{PID: pid, Start: start}, syscall.SIGKILL); err != nil &&
				!errors.Is(err, process.ErrGone) {
				return fmt.Errorf("kill worker %d: %w", pid, err)
			}
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("worker %s does not die: %w", spec.ID, err)
		}
	}
}

// SetAside kills the worker of a server's directory, whatever state it is in, and moves the
// directory to the path to, where no daemon looks for workers. It reads no output of the
// child: an earlier daemon crashed while it did. A missing directory is no error.
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

// bury kills the processes that the dead worker of dir left: the child's process group, and
// the processes that carry the worker's mark. The caller must hold the directory's lock.
func (s *Supervisor) bury(ctx context.Context, dir string) error {
	if err := s.killGroup(ctx, dir); err != nil {
		return err
	}
	return s.killLeft(ctx, dir)
}

// killGroup kills the process group of the child that state.json in dir names, and returns
// when the group is empty. It kills nothing if the group is not that child's any more: pid,
// start time and boot must be the same. Another program may have the pid by now.
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
		// This check comes first, since listing all processes takes long, and a
		// daemon does it for every consult that is kept. It is repeated after
		// the listing: the pid may have changed hands meanwhile.
		if process.Exact && !led() {
			return nil // killLeft finds the rest, by the worker's mark
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
		if s.killAll(ctx, filepath.Base(dir), mine) == 0 {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("kill group: %w", err)
		}
	}
}

// pause blocks for pollPause, for a caller that must poll. It returns the cause of ctx if
// that is done before.
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
