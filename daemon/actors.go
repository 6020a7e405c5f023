package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/oklog/run"

	"holdline/daemon/config"
	"holdline/daemon/guests"
	"holdline/daemon/notify"
	"holdline/protocol/control"
)

// errEnded is the error of an actor that ended without one.
var errEnded = errors.New("ended")

// addActor makes an actor of serve: its interrupt cancels the context that serve
// was given and returns at once, since run.Group calls interrupts one by one.
func addActor(ctx context.Context, g *run.Group, log *slog.Logger, name string, serve func(context.Context) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	g.Add(func() error {
		begin := time.Now()
		err := serve(ctx)
		log.InfoContext(ctx, "part stopped", "part", name, "dur", time.Since(begin), "err", err)
		if err == nil {
			err = fmt.Errorf("%s: %w", name, errEnded)
		}
		return err
	}, func(err error) { cancel(err) })
}

// notifier returns what shows notifications of what happens from now on.
func (d *daemon) notifier() *notify.Notifier {
	return &notify.Notifier{
		Log: d.Log.With("component", "notify"), Environ: d.env.List,
		Kinds: func() []string { return d.file.Current().Notify },
		Follow: func(ctx context.Context, show func(control.Event)) error {
			return d.events.Follow(ctx, 0, show)
		},
	}
}

// buildGuests makes the part that serves the sockets of the configuration.
func (d *daemon) buildGuests() {
	d.guests = guests.New(guests.Options{
		Log: d.Log.With("component", "guests"), UID: os.Geteuid(), Private: d.place.Dir(), Dir: d.place.File("guests"),
		Current: func() map[string]config.Socket { return d.file.Current().Sockets },
		Serve:   d.sessions.ServeConn, Expel: func(socket string) { d.sessions.Expel(0, socket) },
	})
}

// untilDone blocks until ctx is done and returns the cause.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// stopAfter blocks until ctx is done and then calls stop, which has stopGrace to end
// politely.
func stopAfter(ctx context.Context, stop func(context.Context) error) error {
	why := untilDone(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	return errors.Join(why, stop(ctx))
}

// endTime returns how much longer than others the workers may take that are to end with this
// daemon: one of them may be renewing a login.
func (d *daemon) endTime() time.Duration {
	if !d.endAll.Load() {
		return 0
	}
	return d.workers.EndTime()
}

// poll blocks until done returns true, ctx is done or limit is over.
func poll(ctx context.Context, every, limit time.Duration, done func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watchdog ends the process if it does not manage to stop in time: it flushes the log, writes
// all goroutines to w, so that the one that hangs can be found, and exits. It also exits if
// nothing reads w.
func watchdog(grace time.Duration, w io.Writer, flushLog func()) {
	time.AfterFunc(grace, func() {
		time.AfterFunc(lastWords, func() { os.Exit(1) }) //nolint:forbidigo // as below
		flushLog()
		buf := make([]byte, 1<<20)
		fmt.Fprintf(w, "holdline: the daemon did not stop within %v; it is ended now. Its goroutines:\n%s\n",
			grace, buf[:runtime.Stack(buf, true)])
		os.Exit(1) //nolint:forbidigo // nothing else is left to be done
	})
}
