package workdirs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/far"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/waiting"
	"holdline/protocol/bootclock"
	"holdline/protocol/farwire"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Elsewhere is another machine or a container, for one worker.
type Elsewhere struct {
	d  *Dirs
	at *process.Far
}

// At returns the place of a worker elsewhere.
func (d *Dirs) At(at *process.Far) Elsewhere { return Elsewhere{d, at} }

// endTimeout bounds the end of a worker elsewhere whose caller must not wait for a network for long.
const endTimeout = 20 * time.Second

// Dial begins a session with the machine on which the worker was started. The error is an
// [*far.UnreachableError], or the cause of ctx. The caller must hang up.
func (p Elsewhere) Dial(ctx context.Context) (*far.Session, error) {
	session, err := p.d.hosts.Dial(ctx, p.at.Host)
	if err != nil {
		return nil, err
	}
	if p.at.Node != "" && session.Node != p.at.Node && far.Moves(p.at.Host) {
		session.HangUp()
		return nil, &far.UnreachableError{Host: p.at.Host, Words: fmt.Sprintf(
			"%s answers, and the server runs on %s", session.Node, p.at.Node)}
	}
	return session, nil
}

// A start dials a host so often before it gives up, unless it would have to wait for longer: one
// connection that breaks says little.
const (
	startTries = 3
	startPause = time.Second
)

// DialStart is [Elsewhere.Dial] for a start: it tries again if the host may answer soon.
func (p Elsewhere) DialStart(ctx context.Context) (*far.Session, error) {
	session, err := p.Dial(ctx)
	for try := 1; err != nil && try < startTries; try++ {
		pause := p.d.hosts.Pause(p.at.Host)
		if pause > startPause || waiting.Pause(ctx, pause) != nil {
			break
		}
		session, err = p.Dial(ctx)
	}
	return session, err
}

// Start starts a worker there, and returns when it listens. Before that it ends what this daemon
// has given up there: no call is made again beside one that may still run. After an error the
// caller must hang up.
func (p Elsewhere) Start(ctx context.Context, session *far.Session, spec *process.Spec, env []string) error {
	err := p.d.sweep(ctx, session)
	if err == nil {
		_, err = session.Ask(ctx, farwire.Request{Op: farwire.Start, ID: spec.ID, Spec: spec, Env: env})
	}
	if err != nil {
		return fmt.Errorf("on %s: %w", p.at.Host, err)
	}
	return nil
}

// Bury kills what is left of a worker there, and puts its state and its spool into its directory
// here; then that directory is like one of a dead worker of this machine.
func (p Elsewhere) Bury(ctx context.Context, dir string, session *far.Session) error {
	id := filepath.Base(dir)
	left, err := session.Ask(ctx, farwire.Request{Op: farwire.End, ID: id})
	if err != nil {
		return err
	}
	whole := true // all that the other side sends was read
	if left.Spool > 0 {
		if whole, err = p.fetchSpool(ctx, dir, session, left.Spool); err != nil {
			return fmt.Errorf("fetch the output of %s: %w", id, err)
		}
	}
	if err := writeLeft(dir, left.State); err != nil {
		return err
	}
	if !whole {
		p.d.sweepSoon(p.at.Host)
		return nil
	}
	if _, err := session.Ask(ctx, farwire.Request{Op: farwire.Remove, ID: id}); err == nil { // else a sweep does
		p.d.back(id)
	}
	return nil
}

// fetchSpool puts the spool of the worker of dir, size bytes from the other side, into that directory. A
// spool that is too long counts as lost: then whole is false, since its bytes still come.
func (p Elsewhere) fetchSpool(ctx context.Context, dir string, session *far.Session, size int64) (whole bool, err error) {
	path := filepath.Join(dir, process.FileSpool)
	_ = os.Remove(path) // of an attempt that failed
	done, err := p.d.takeSpool(p.at.Host, dir, size)
	if errors.Is(err, errSpoolTooLong) {
		p.d.o.Log.WarnContext(ctx, "the output of a server on another machine is left out",
			"worker", filepath.Base(dir), "host", p.at.Host, "err", err)
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer done()
	f, err := ownfile.Create(path)
	if err != nil {
		return true, err
	}
	if err = errors.Join(session.CopyTo(ctx, f, size), f.Close()); err != nil {
		_ = os.Remove(path)
	}
	return true, err
}

// writeLeft writes the last state of a worker elsewhere into its directory here, where it means
// that the worker is dead. The processes in it are no processes of this machine.
func writeLeft(dir string, st *process.State) error {
	left := process.State{Version: process.Newest(), Phase: process.PhaseStarting}
	if st != nil {
		left = *st
	}
	left.ID = filepath.Base(dir)
	left.PID, left.Start, left.ChildPID, left.ChildStart, left.BootID = 0, 0, 0, 0, bootclock.ID()
	return statedir.WriteFile(filepath.Join(dir, process.FileState), jsonrpc.Encode(left))
}

// destroy ends the worker there, and fetches what it left.
func (p Elsewhere) destroy(ctx context.Context, dir string) error {
	session, err := p.Dial(ctx)
	if err != nil {
		return err
	}
	defer session.HangUp()
	return p.Bury(ctx, dir, session)
}

// Abandon takes the worker of a directory, which cannot be reached, for dead. What may be left of
// it is ended as soon as its host answers.
func (p Elsewhere) Abandon(dir string) error {
	if err := writeLeft(dir, nil); err != nil {
		return err
	}
	p.d.sweepSoon(p.at.Host)
	return nil
}

// sweep ends the workers of this daemon on a host that are over, as far as this machine knows: there is no directory
// here any more, or they are taken for dead.
func (d *Dirs) sweep(ctx context.Context, session *far.Session) error {
	_, err := d.endThere(ctx, session, d.isOver)
	return err
}

// endThere ends the workers of this daemon on a host for which over returns true, and returns how many there were.
func (d *Dirs) endThere(ctx context.Context, session *far.Session, over func(id string) bool) (ended int, err error) {
	there, err := session.Ask(ctx, farwire.Request{Op: farwire.List})
	if err != nil {
		return 0, err
	}
	for _, id := range there.IDs {
		if !process.ValidID(id) || !over(id) {
			continue
		}
		d.o.Log.InfoContext(ctx, "orphan elsewhere ended", "worker", id, "host", session.Host)
		if _, err := session.Ask(ctx, farwire.Request{Op: farwire.Remove, ID: id}); err != nil {
			return ended, err
		}
		d.back(id)
		ended++
	}
	d.settleNotes(session, there.IDs)
	return ended, nil
}

// isOver reports whether no worker of that name may run any more, as far as this machine knows. A
// spec that cannot be read for another reason proves nothing.
func (d *Dirs) isOver(id string) bool {
	for _, name := range []string{process.FileState, process.FileSpec} {
		_, err := os.Lstat(filepath.Join(d.Dir(id), name))
		if over := name == process.FileState; err == nil || !errors.Is(err, os.ErrNotExist) {
			return err == nil && over
		}
	}
	return true
}

// sweepSoon has a goroutine sweep a host as soon as that answers. It does not block.
func (d *Dirs) sweepSoon(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if _, runs := d.sweeping[host]; runs {
		d.sweeping[host] = true // that one may have passed the worker already
		return
	}
	d.sweeping[host] = false
	d.wg.Go(func() {
		for {
			if d.sweepHost(d.life, host) == nil {
				if !d.sweepAgain(host) {
					return
				}
			} else if waiting.Pause(d.life, max(d.hosts.Pause(host), time.Second)) != nil {
				return
			}
		}
	})
}

// sweepAgain reports whether a sweep of a host was wanted while one was made. If not, none is due.
func (d *Dirs) sweepAgain(host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.sweeping[host] {
		delete(d.sweeping, host)
		return false
	}
	d.sweeping[host] = false
	return true
}

// sweepHost is [Dirs.sweep] with a session of its own.
func (d *Dirs) sweepHost(ctx context.Context, host string) error {
	session, err := d.hosts.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer session.HangUp()
	return d.sweep(ctx, session)
}

// Far returns the directories of workers elsewhere that are not known to be dead.
func (d *Dirs) Far() (dirs []string) {
	all, _ := d.ServerDirs()
	for _, dir := range all {
		if finding.Far(dir) != nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// endFar ends the workers elsewhere, all hosts at the same time, and returns how many. The errors name those that may
// run on: their hosts do not answer, or it is not known where they are. They end by themselves after their windows.
func (d *Dirs) endFar(ctx context.Context) (ended int, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	own := New(d.o) // d may be closed
	defer func() { _ = own.CloseHosts(ctx) }()
	dirs := map[string][]string{} // by host
	for _, dir := range d.Far() {
		if at := finding.Far(dir); at != nil {
			dirs[at.Host] = append(dirs[at.Host], dir)
		}
	}
	notes, unread := d.away()
	for i := range notes {
		dirs[notes[i].Host] = slices.Clip(dirs[notes[i].Host])
	}
	unknown := d.farUnknown(notes, unread)
	var sum atomic.Int64
	errs = waiting.Each(maps.Keys(dirs), func(host string) error {
		n, err := own.endOn(ctx, host, dirs[host])
		sum.Add(int64(n))
		return err
	})
	return int(sum.Load()), append(errs, unknown...)
}

// endOn ends all workers of this daemon on a host; those of dirs leave what can be read of them.
func (d *Dirs) endOn(ctx context.Context, host string, dirs []string) (ended int, err error) {
	var errs []error
	for _, dir := range dirs {
		at := finding.Far(dir)
		if at == nil {
			continue
		}
		if err := d.At(at).destroy(ctx, dir); err != nil {
			spec, _ := process.ReadSpec(dir)
			errs = append(errs, fmt.Errorf("%s may still run on %s; it ends there %v after the last contact: %w",
				spec.Name, host, time.Duration(spec.Orphan.AfterMS)*time.Millisecond, err))
			continue
		}
		ended++
	}
	if len(errs) == 0 { // a start that a daemon of before had asked for may have come late
		var n int
		n, err = d.endNoted(ctx, host)
		ended, errs = ended+n, append(errs, err)
	}
	return ended, errors.Join(errs...)
}

// endNoted ends the workers on a host that have no directory here, or a damaged one.
func (d *Dirs) endNoted(ctx context.Context, host string) (ended int, err error) {
	session, err := d.hosts.Dial(ctx, host)
	if err == nil {
		defer session.HangUp()
		ended, err = d.endThere(ctx, session, func(string) bool { return true })
	}
	left, _ := d.away()
	left = slices.DeleteFunc(left, func(n note) bool {
		return n.Host != host || err == nil && n.isThere(session)
	})
	if len(left) == 0 {
		return ended, err
	}
	ids := make([]string, 0, len(left))
	for i := range left {
		ids = append(ids, left[i].ID)
	}
	if err == nil {
		err = fmt.Errorf("%s answers, and they were started on %s", session.Node, left[0].Node)
	}
	return ended, fmt.Errorf("%s may still run on %s; each ends there %v after the last contact: %w",
		strings.Join(ids, ", "), host, time.Duration(left[0].WindowMS)*time.Millisecond, err)
}

// farUnknown returns an error for each worker that may run elsewhere, nobody knows where: its note cannot be read, or
// its directory is damaged and it has no note.
func (d *Dirs) farUnknown(notes []note, unread []string) (errs []error) {
	all, _ := d.ServerDirs()
	for _, dir := range all {
		_, heard := os.Lstat(filepath.Join(dir, process.FileContact))
		_, over := os.Lstat(filepath.Join(dir, process.FileState))
		_, err := process.ReadSpec(dir)
		noted := slices.ContainsFunc(notes, func(n note) bool { return d.Dir(n.ID) == dir })
		if err != nil && heard == nil && over != nil && !noted {
			unread = append(unread, dir)
		}
	}
	for _, path := range unread {
		errs = append(errs, fmt.Errorf("a server on another machine may run on, and ends by itself after its host_window: "+
			"%s is damaged, and does not say where it is", path))
	}
	return errs
}

// aloneMargin is how much later than after its window a worker has certainly ended its child: it
// learns late that the connection is lost, and then has to end the child.
const aloneMargin = farwire.Silence + 30*time.Second

// EndedAlone reports whether the worker of a directory was last heard from so long ago that it
// has ended itself by now, as its spec wants it.
func EndedAlone(dir string, spec *process.Spec) bool {
	for _, name := range []string{process.FileContact, process.FileSpec} { // heard from, or to be started
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return time.Since(info.ModTime()) > time.Duration(spec.Orphan.AfterMS)*time.Millisecond+aloneMargin
		}
	}
	return false
}
