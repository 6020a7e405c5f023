package rollout

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"holdline/daemon/filewatch"
	"holdline/daemon/telemetry"
	"holdline/protocol/fault"
)

// Times of a watcher, unless its options say otherwise.
const (
	DefaultPoll   = time.Second // the path is looked at so often
	DefaultSettle = time.Second // a changed file must stay as it is for so long
)

var (
	// ErrCurrent is returned by [Watcher.Upgrade] if the file is the one that
	// runs.
	ErrCurrent = errors.New("already the running version")
	// errChanging means that the file changed while it was looked at: it will
	// be looked at again.
	errChanging = errors.New("the file is changing, try again")
)

// Options are a watcher's settings. Every func is called from the goroutine
// of [Watcher.Run].
type Options struct {
	Log  *slog.Logger
	Path string // absolute, links kept
	// Running are the stamps of the file that runs: more than one, since a
	// file system may show one file in two ways.
	Running []filewatch.Stamp
	// Stat looks at the path; nil takes [filewatch.Stat].
	Stat func(path string) (filewatch.Stamp, error)
	// Verify runs the file and tells what it found, or why it will not do.
	Verify func(ctx context.Context, path string) (Found, error)
	// HandOver replaces this process and returns only if that failed. The file
	// must still have the stamp.
	HandOver func(ctx context.Context, s filewatch.Stamp, found Found) error
	// Report is told each change of state. The fault is set if, and only if,
	// the state is rejected.
	Report func(state telemetry.Rollout, f *fault.Record)
	// Poll and Settle, 0 for the defaults.
	Poll, Settle time.Duration
}

// Watcher waits for another file to take the place of the one that runs. Make
// it with [New]; what it keeps belongs to the goroutine of [Watcher.Run].
type Watcher struct {
	o      Options
	asks   chan ask
	forget chan struct{} // holds a token if what was rejected may be tried again

	state    telemetry.Rollout
	settler  filewatch.Settler
	rejected filewatch.Stamp // the file that was refused last; zero if it may be tried again
}

// ask is a wish to hand over now.
type ask struct {
	begin func(Found)
	done  chan error // takes one
}

// New makes a watcher, which does nothing before [Watcher.Run].
func New(o Options) *Watcher {
	if o.Stat == nil {
		o.Stat = filewatch.Stat
	}
	if o.Poll == 0 {
		o.Poll = DefaultPoll
	}
	if o.Settle == 0 {
		o.Settle = DefaultSettle
	}
	return &Watcher{
		o: o, asks: make(chan ask), forget: make(chan struct{}, 1), state: telemetry.Stable,
		settler: filewatch.Settler{After: o.Settle},
	}
}

// Run watches until ctx is done, whose cause it returns.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(w.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a := <-w.asks:
			a.done <- w.now(ctx, a.begin)
		case <-w.forget:
			w.rejected = filewatch.Stamp{}
		case <-tick.C:
			w.poll(ctx)
		}
	}
}

// Upgrade hands over now, whether or not the file has settled or has failed
// before, and so returns only if that does not happen: with [ErrCurrent], or
// with the reason, a rollout_failure. begin is called once everything is
// verified, immediately before the hand-over. It needs [Watcher.Run] to run.
func (w *Watcher) Upgrade(ctx context.Context, begin func(Found)) error {
	a := ask{begin, make(chan error, 1)}
	select {
	case w.asks <- a:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Forget lets a file that was rejected be tried once more: something that it
// may have failed for has changed.
func (w *Watcher) Forget() {
	select {
	case w.forget <- struct{}{}:
	default:
	}
}

// poll looks at the path once.
func (w *Watcher) poll(ctx context.Context) {
	s, err := w.o.Stat(w.o.Path)
	switch {
	case err != nil || w.runs(s): // missing for the moment, or back to what it was
		w.settler.Reset()
		w.tell(telemetry.Stable, nil)
	case s == w.rejected:
		w.settler.Reset()
	case w.settler.Settled(s, time.Now()):
		_ = w.take(ctx, s, nil) // told and logged there
	default:
		w.tell(telemetry.Pending, nil)
	}
}

// now does what [Watcher.Upgrade] asks for.
func (w *Watcher) now(ctx context.Context, begin func(Found)) error {
	s, err := w.o.Stat(w.o.Path)
	switch {
	case err != nil:
		return failure(err) // nothing is there that could be remembered
	case w.runs(s):
		w.settler.Reset()
		w.tell(telemetry.Stable, nil)
		return ErrCurrent
	}
	return w.take(ctx, s, begin)
}

// take verifies the file of stamp s and hands over to it. It returns only if
// that did not succeed.
func (w *Watcher) take(ctx context.Context, s filewatch.Stamp, begin func(Found)) error {
	w.tell(telemetry.Pending, nil)
	found, err := w.o.Verify(ctx, w.o.Path)
	if ctx.Err() != nil { // the daemon stops: that says nothing about the file
		return context.Cause(ctx)
	}
	if now, serr := w.o.Stat(w.o.Path); serr != nil || now != s {
		w.settler.Reset()
		return failure(errChanging)
	}
	if err == nil {
		w.o.Log.InfoContext(ctx, "handing over", "path", w.o.Path, "to", found.Version, "commit", found.Commit)
		w.tell(telemetry.Reloading, nil)
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
	w.o.Log.WarnContext(ctx, "the new program is not used", "path", w.o.Path, "err", err)
	w.tell(telemetry.Rejected, f)
	return f
}

func (w *Watcher) runs(s filewatch.Stamp) bool { return slices.ContainsFunc(w.o.Running, s.Same) }

// tell reports a state if it is news.
func (w *Watcher) tell(state telemetry.Rollout, f *fault.Record) {
	if state == w.state && f == nil {
		return
	}
	w.state = state
	w.o.Report(state, f)
}

func failure(err error) *fault.Record {
	return fault.New(fault.RolloutFailure, fault.Rollout, "upgrade", "%v", err)
}
