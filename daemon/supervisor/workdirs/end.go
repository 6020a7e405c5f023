package workdirs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/limits"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/supervisor/near"
	"holdline/daemon/waiting"
	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Reap kills what a dead worker has left, and removes its directory; the error wraps [statedir.ErrLocked] if the
// worker lives. The caller must have made sure that no client can still ask for an answer
// in it.
func (d *Dirs) Reap(dir string) error {
	at := d.mayRun(dir)
	if at == nil {
		at = finding.Far(dir)
	}
	if at != nil { // what is left of it there is ended as soon as its host answers
		err := d.remove(dir)
		d.sweepSoon(at.Host) // only now: a sweep spares what has a directory here
		return err
	}
	lock, err := near.Lock(dir)
	for range looks {
		if !errors.Is(err, statedir.ErrLocked) {
			break
		}
		_ = near.Pause(context.Background())
		lock, err = near.Lock(dir)
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
		if err := d.hunter.KillLeft(context.Background(), dir); err != nil {
			return fmt.Errorf("reap: %w", err)
		}
	}
	// The socket of a consult has a directory of its own, named by its id.
	if spec, err := process.ReadSpec(dir); err == nil && process.ValidID(spec.ID) && d.Dir(spec.ID) != dir {
		_ = os.RemoveAll(d.Dir(spec.ID))
	}
	limits.Remove(filepath.Base(dir))
	if err := d.remove(dir); err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	return nil
}

// remove removes a directory, and takes it out of the register.
func (d *Dirs) remove(dir string) error {
	d.settle(dir)
	err := near.RemoveAll(dir)
	if err == nil {
		d.TakeOut(dir)
	}
	return err
}

// Clear ends what is left of a worker whose directory is not in the runtime directory and
// stays: it kills the worker with its tree if it lives, and removes its output, with the
// files of long lines, its socket and half-written files. The caller must need none of the
// output any more.
func (d *Dirs) Clear(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, near.DeathTimeout)
	defer cancel()
	id := filepath.Base(dir)
	alive, err := finding.Alive(dir)
	if err == nil && alive {
		err = d.Destroy(ctx, dir, false)
	}
	if err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	statedir.Sweep(dir, false)
	near.RemoveFiles(dir, process.FileSpool, calls.File+".new", process.FileLong, process.FileInput)
	return os.RemoveAll(d.Dir(id))
}

// Left is what there is in the directory of a server's worker.
type Left struct {
	finding.Facts
	Spec process.Spec // if Facts.Spec is true
	calls.Journaled
}

// LookServer finds what the files of a server's directory tell. It returns an error for a file that
// cannot be read now and may be read later, see [ownfile.Passes], and if the directory is gone. What
// cannot be believed is no error: see Damage of the result.
func (d *Dirs) LookServer(dir string) (l Left, err error) {
	if d.mayRun(dir) != nil {
		_, _ = d.Spec(dir) // whether it lives is asked of its host, which the spec names
	}
	if l.Alive, err = finding.Alive(dir); err != nil {
		return l, err
	}
	if l.Journaled, err = calls.Load(dir, l.Alive); err != nil {
		return l, err
	}
	st, err := process.ReadState(dir)
	there := !errors.Is(err, os.ErrNotExist)
	_, untaken := os.Lstat(filepath.Join(dir, process.FileTaken)) // a worker makes it with its state
	switch {
	case ownfile.Passes(err):
		return l, err
	case err == nil:
		l.State, l.Boot = true, st.BootID != "" && st.BootID == bootclock.ID()
	case there, untaken == nil, len(l.Records) > 0, l.Damage != nil: // without its boot it must be believed to be this one
		l.State, l.Boot = true, true
	}
	spec := d.Spec
	if !l.State {
		spec = process.ReadSpec // it was never begun, or begins now: nothing is missing
	}
	switch l.Spec, err = spec(dir); {
	case err == nil:
		l.Facts.Spec = true
	case ownfile.Passes(err):
		return l, err
	case l.State && l.Damage == nil:
		l.Damage = fmt.Errorf("%s is %w: %w", filepath.Join(dir, process.FileSpec), calls.ErrDamaged, err)
	}
	l.Server = calls.HasServed(dir)
	l.Damaged = l.Damage != nil
	// Confirmed or not, the clients that are back will tell.
	l.Unconfirmed = slices.ContainsFunc(l.Records, func(r calls.Record) bool { return r.Kind == calls.KindCall })
	return l, nil
}

// ReapSettled removes the directories of dead servers' workers about whose calls no client
// can ask any more. It returns their number. A daemon whose disk is full calls it before
// anything else.
func (d *Dirs) ReapSettled() int {
	dirs, err := d.ServerDirs()
	if err != nil {
		d.o.Log.Warn("looking for what can be removed", "err", err)
	}
	n := 0
	for _, dir := range dirs {
		if l, err := d.LookServer(dir); err != nil || finding.Decide(l.Facts) != finding.Remove {
			continue
		}
		if err := d.Reap(dir); err != nil {
			d.o.Log.Warn("a dead worker's directory stays", "dir", dir, "err", err)
			continue
		}
		n++
	}
	return n
}

// looks is how often Reap tries the lock of a dead worker again: each process that checks
// whether the worker lives holds the lock for an instant.
const looks = 10

// HuntAll kills the processes that dead workers of this daemon's directories left.
// A directory may have been removed meanwhile: its processes are then those that
// do not run under its worker. A daemon calls HuntAll when it starts.
func (d *Dirs) HuntAll(ctx context.Context) error {
	all, err := process.Carriers()
	if err != nil {
		return fmt.Errorf("hunt: %w", err)
	}
	var errs []error
	for dir, procs := range all.ByDir() {
		if !slices.Contains(d.parents(), filepath.Dir(dir)) {
			continue
		}
		if dead, known := deadByLock(dir); known {
			if dead {
				errs = append(errs, d.hunter.KillLeft(ctx, dir))
			}
			continue
		}
		for _, p := range procs {
			if !process.HasWorker(p, dir) {
				d.hunter.KillAll(ctx, dir, []process.Proc{p})
			}
		}
	}
	marked := all.Marked()
	for _, dir := range d.All() {
		isIts := func(m process.Marked) bool { return m.Mark.Is(dir) }
		if lock, err := near.Lock(dir); err == nil {
			errs = append(errs, d.hunter.KillGroup(ctx, dir))
			if slices.ContainsFunc(marked, isIts) {
				errs = append(errs, d.hunter.KillLeft(ctx, dir))
			}
			_ = lock.Unlock()
		}
		marked = slices.DeleteFunc(marked, isIts)
	}
	for _, m := range marked { // the directory of its worker is gone
		for _, parent := range d.parents() {
			if m.Mark.Under(parent) {
				d.hunter.KillAll(ctx, parent, []process.Proc{m.Proc})
			}
		}
	}
	return errors.Join(errs...)
}

// EndTime returns how long the children of living workers may take to end by themselves: see
// [process.Spec]. It is 0 if none of them needs more than the usual time.
func (d *Dirs) EndTime() time.Duration {
	_, most := d.unhurried()
	return most
}

// unhurried returns the directories of living workers whose children must not be killed at once,
// and how long they may take to end.
func (d *Dirs) unhurried() (dirs []string, most time.Duration) {
	for _, dir := range d.All() {
		spec, err := process.ReadSpec(dir)
		if alive, _ := finding.Alive(dir); err == nil && alive && spec.EndGraceMS > 0 {
			dirs, most = append(dirs, dir), max(most, 2*spec.EndGrace())
		}
	}
	if notes, _ := d.away(); len(notes) > 0 || len(d.Far()) > 0 {
		most = max(most, endTimeout)
	}
	return dirs, most
}

// endUnhurried has the workers of [Dirs.unhurried] end their children, waits until they
// have, for [Dirs.EndTime] at most, and returns how many did.
func (d *Dirs) endUnhurried(ctx context.Context) (ended int) {
	all, limit := d.unhurried()
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
				_ = near.Pause(ctx)
			} else {
				ended++
			}
		}
	}
	return ended
}

// EndAll ends all workers that live in this daemon's directories, with their trees, and
// then what dead workers left: it kills them at once, but for [Dirs.EndTime]. It returns
// the number of workers that it has ended. Call it only while no daemon uses these directories.
//
// It also ends workers whose directory is damaged or gone: those that say so themselves. The error names
// the directories of those that it could not end.
func (d *Dirs) EndAll(ctx context.Context) (ended int, err error) {
	ended = d.endUnhurried(ctx)
	there, errs := d.endFar(ctx)
	ended += there
	living, err := d.living()
	if err != nil {
		errs = append(errs, err)
	}
	var killed atomic.Int64
	errs = append(errs, together(slices.Values(living), func(dir string) error {
		if err := d.destroyInTime(ctx, dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		killed.Add(1)
		return nil
	})...)
	gone, err := d.Vanished()
	errs = append(errs, err)
	errs = append(errs, together(slices.Values(gone), func(spec process.Spec) error {
		dir := d.Dir(spec.ID)
		err := d.EndVanished(ctx, dir)
		if err == nil {
			d.TakeOut(dir)
		}
		return err
	})...)
	return ended + int(killed.Load()), errors.Join(append(errs, d.HuntAll(ctx))...)
}

// endsAtOnce is how many workers are ended at the same time: one that does not die holds up no more than its share.
const endsAtOnce = 16

// together calls do for all, [endsAtOnce] at a time, and returns the errors.
func together[T any](all iter.Seq[T], do func(T) error) []error {
	slots := make(chan struct{}, endsAtOnce)
	return waiting.Each(all, func(one T) error {
		slots <- struct{}{}
		defer func() { <-slots }()
		return do(one)
	})
}

// destroyInTime kills the worker of dir with its tree. Each worker has the whole of the time: on a busy
// machine a few of them would use up what is for all.
func (d *Dirs) destroyInTime(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, near.DeathTimeout)
	defer cancel()
	return d.hunter.Destroy(ctx, dir, false)
}

// living returns the directories in which a worker of this machine lives, or may live, whatever is left of
// them.
func (d *Dirs) living() (dirs []string, err error) {
	for _, dir := range d.All() {
		if alive, err := finding.Alive(dir); alive || err != nil && !errors.Is(err, os.ErrNotExist) {
			dirs = append(dirs, dir)
		}
	}
	all, err := process.List()
	for _, p := range all {
		dir := process.WorkerDir(process.Args(p.PID))
		if dir != "" && slices.Contains(d.parents(), filepath.Dir(dir)) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

// parents returns the directories that hold those of this daemon's workers.
func (d *Dirs) parents() []string {
	return []string{filepath.Join(d.o.RuntimeDir, "w"), filepath.Join(d.o.StateDir, "consults")}
}

// All returns the directories of this daemon's workers, also of those whose state.json is lost.
func (d *Dirs) All() []string {
	var found []string
	for _, parent := range d.parents() {
		for _, name := range []string{process.FileState, process.FileLock} {
			all, _ := filepath.Glob(filepath.Join(parent, "*", name))
			for _, f := range all {
				found = append(found, filepath.Dir(f))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// ServerDirs lists the directories of servers' workers, living and dead ones, and those whose
// worker never started. It leaves out the directories that only hold the socket of a
// consult: the worker of a consult has its directory elsewhere.
func (d *Dirs) ServerDirs() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(d.o.RuntimeDir, "w"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() || !process.ValidID(e.Name()) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(d.o.StateDir, "consults", e.Name())); errors.Is(err, os.ErrNotExist) {
			found = append(found, d.Dir(e.Name()))
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

// SetAside kills the worker of a server's directory, whatever state it is in, and moves the
// directory to the path to, where no daemon looks for workers. It reads no output of the
// child: an earlier daemon crashed while it did. A missing directory is no error.
func (d *Dirs) SetAside(ctx context.Context, dir, to string) error {
	ctx, cancel := context.WithTimeout(ctx, near.DeathTimeout)
	defer cancel()
	at := d.farOf(dir)
	err := d.Destroy(ctx, dir, false)
	if at != nil && err != nil {
		err = d.At(at).Abandon(dir)
	}
	if err == nil {
		err = os.Rename(dir, to)
	}
	if err == nil {
		d.TakeOut(dir)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
