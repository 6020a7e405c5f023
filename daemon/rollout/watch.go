package rollout

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"holdline/daemon/events"
	"holdline/daemon/filewatch"
	"holdline/daemon/telemetry"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Times of a watcher.
const (
	pollEvery   = time.Second // between two looks at the path
	settleAfter = time.Second // a changed file must stay unchanged for that long
)

var (
	// ErrCurrent is returned by [Watcher.Upgrade] if the file is the one that runs.
	ErrCurrent = errors.New("already the running version")
	// errChanging is returned for a file that changed while it was verified. It is verified
	// again once it has settled.
	errChanging = errors.New("the file is changing, try again")
)

// Options are the settings of a [Watcher]. Its functions are called from the goroutine
// of [Watcher.Run].
type Options struct {
	Log  *slog.Logger
	Path string // absolute, links kept
	// Running are the stamps of the file that runs. There may be two of them, since a
	// file system may show one file in two ways.
	Running []filewatch.Stamp
	// Verify runs the file. It returns what the file says about itself, or why the
	// daemon must not run it.
	Verify func(ctx context.Context, path string) (Found, error)
	// HandOver replaces the program of this process, if the file still has the stamp.
	// It returns only if that fails.
	HandOver func(ctx context.Context, s filewatch.Stamp, found Found) error
	// Report is called at each change of the state. The fault is set only for the state
	// Rejected.
	Report func(state telemetry.Rollout, f *fault.Record)
}

// Watcher waits until another file is in the place of the one that runs, and hands over
// to it. Make it with [New]. Its state belongs to the goroutine of [Watcher.Run]:
//
//	state      event                                    next
//	Stable     another file is there                    Pending
//	Pending    the old file is back, or none is there   Stable
//	Pending    the file has settled, and is verified    Reloading: this program is replaced
//	Pending    the file is not accepted                 Rejected
//	Reloading  the hand-over fails                      Rejected
//	Rejected   the file changes, or [Watcher.Forget]    Pending
//
// [Watcher.Upgrade] verifies the file at once, even if it has not settled or was
// rejected.
type Watcher struct {
	o        Options
	stat     func(path string) (filewatch.Stamp, error)
	upgrades chan upgrade
	forget   chan struct{} // holds a token if the rejected file may be tried again

	state    telemetry.Rollout
	settler  filewatch.Settler
	rejected filewatch.Stamp // of the file that was rejected last; zero if it may be tried again
}

// upgrade is a call of [Watcher.Upgrade].
type upgrade struct {
	begin func(Found)
	done  chan error // receives one error
}

// New returns a watcher. It does nothing before [Watcher.Run].
func New(o Options) *Watcher {
	return &Watcher{
		o: o, stat: filewatch.Stat, upgrades: make(chan upgrade), forget: make(chan struct{}, 1),
		state: telemetry.Stable, settler: filewatch.Settler{After: settleAfter},
	}
}

// Run watches the path until ctx is done, and returns the cause. A hand-over that
// succeeds does not return: the process then runs another program.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case u := <-w.upgrades:
			u.done <- w.upgradeNow(ctx, u.begin)
		case <-w.forget:
			w.rejected = filewatch.Stamp{}
		case <-tick.C:
			w.poll(ctx)
		}
	}
}

// Upgrade hands over now, even if the file has not settled or was rejected before. It
// blocks until [Watcher.Run] has done the work, and returns only if there is no
// hand-over: with [ErrCurrent], the cause of ctx, or a rollout_failure fault. begin is
// called when the file is verified, immediately before the hand-over.
func (w *Watcher) Upgrade(ctx context.Context, begin func(Found)) error {
	u := upgrade{begin, make(chan error, 1)}
	select {
	case w.upgrades <- u:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-u.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Forget lets a rejected file be tried once more. Call it when something has changed
// that may have been the reason, for example the configuration. It does not block.
func (w *Watcher) Forget() {
	select {
	case w.forget <- struct{}{}:
	default:
	}
}

// poll looks at the path once, and hands over to a file that has settled.
func (w *Watcher) poll(ctx context.Context) {
	s, err := w.stat(w.o.Path)
	switch {
	case err != nil || w.runs(s): // it is missing for a moment, or the old file is back
		w.settler.Reset()
		w.setState(telemetry.Stable, nil)
	case s == w.rejected:
		w.settler.Reset()
	case w.settler.Settled(s, time.Now()):
		_ = w.handOver(ctx, s, nil) // which reports and logs its error
	default:
		w.setState(telemetry.Pending, nil)
	}
}

// upgradeNow does the work of [Watcher.Upgrade], in the goroutine of Run.
func (w *Watcher) upgradeNow(ctx context.Context, begin func(Found)) error {
	s, err := w.stat(w.o.Path)
	switch {
	case err != nil:
		return failure(err) // there is no file to reject
	case w.runs(s):
		w.settler.Reset()
		w.setState(telemetry.Stable, nil)
		return ErrCurrent
	}
	return w.handOver(ctx, s, begin)
}

// handOver verifies the file of stamp s and hands over to it. It returns only if that
// fails. A file that is not accepted is remembered by its stamp and not tried again. A
// file that changed while it was verified is not rejected: what was verified is not
// what is there now.
func (w *Watcher) handOver(ctx context.Context, s filewatch.Stamp, begin func(Found)) error {
	w.setState(telemetry.Pending, nil)
	found, err := w.o.Verify(ctx, w.o.Path)
	if ctx.Err() != nil { // the daemon stops, which says nothing about the file
		return context.Cause(ctx)
	}
	if now, serr := w.stat(w.o.Path); serr != nil || now != s {
		w.settler.Reset()
		return failure(errChanging)
	}
	if err == nil {
		w.o.Log.InfoContext(ctx, "handing over", "path", w.o.Path, "to", found.Version, "commit", found.Commit)
		w.setState(telemetry.Reloading, nil)
		if begin != nil {
			begin(found)
		}
		err = w.o.HandOver(ctx, s, found)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	f := failure(err)
	w.settler.Reset()
	w.rejected = s
	w.o.Log.WarnContext(ctx, "the new program is not used", "path", w.o.Path, "err", err, "event",
		events.NewBad(control.Upgraded, "", "the new program at %s is not used: %v", w.o.Path, err))
	w.setState(telemetry.Rejected, f)
	return f
}

// runs reports whether s is the stamp of the file that runs.
func (w *Watcher) runs(s filewatch.Stamp) bool { return slices.ContainsFunc(w.o.Running, s.Same) }

// setState changes the state, and reports it if it is another one or if there is a
// fault.
func (w *Watcher) setState(state telemetry.Rollout, f *fault.Record) {
	if state == w.state && f == nil {
		return
	}
	w.state = state
	w.o.Report(state, f)
}

// failure returns err as a rollout_failure fault.
func failure(err error) *fault.Record {
	return fault.New(fault.RolloutFailure, fault.Rollout, "upgrade", "%v", err)
}
