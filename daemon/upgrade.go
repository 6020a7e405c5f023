package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/commands"
	"holdline/daemon/events"
	"holdline/daemon/filewatch"
	"holdline/daemon/rollout"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/faultpoint"
)

// flushTime bounds the wait for answers to be written to their sockets before a hand-over.
// Proxies ask again for answers that are not, as after a crash.
const flushTime = 50 * time.Millisecond

// Why a hand-over that was prepared is not made.
var (
	errLeaving  = errors.New("the daemon is stopping")
	errReplaced = errors.New("the file has changed since it was verified, try again")
)

// buildRollout makes the part that replaces this program by a newer one.
func (d *daemon) buildRollout() {
	var running []filewatch.Stamp
	owner := os.Geteuid()
	if image, err := rollout.Image(); err == nil {
		if s, err := filewatch.Stat(image); err == nil {
			running, owner = append(running, s), s.UID
		}
	}
	if h := d.Handover; h != nil {
		running = append(running, h.Verified)
	}
	check := rollout.Checker{
		UID: os.Geteuid(), Owner: owner, Env: []string{"PATH=/usr/bin:/bin", "HOME=" + d.Home, "LANG=C.UTF-8"},
		Needs: d.versions,
		Also:  d.wouldStart,
	}
	d.rollout = rollout.New(rollout.Options{
		Log: d.Log.With("component", "rollout"), Path: d.Exe, Running: running,
		Verify: check.Check, HandOver: d.handOver,
		Report: d.telemetry.SetRollout,
	})
}

// versions returns the versions of the formats that a successor has to know: those that this
// daemon writes, and those that workers of earlier daemons speak.
func (d *daemon) versions() rollout.Versions {
	return rollout.Versions{
		Greeting: []int{protocol.Version}, Worker: d.workers.Versions(), Record: []int{calls.RecordVersion},
		Handover: []int{rollout.Version},
	}
}

// rollouts returns how many hand-overs, one after the other, have led to this program.
func (d *daemon) rollouts() int64 {
	if d.Handover == nil {
		return 0
	}
	return d.Handover.Rollouts + 1
}

// started returns the event that this program serves.
func (d *daemon) started() events.Note {
	if h := d.Handover; h != nil {
		return events.New(control.Upgraded, "", "upgraded from %s to %s; nothing was lost", h.From, d.Version)
	}
	return events.New(control.Started, "", "Holdline %s has started", d.Version)
}

// wouldStart returns the command that a new program must be able to run: it must accept the
// configuration file, or it would not start. This daemon may have read an earlier state of
// the file. Without a file there is nothing to run.
func (d *daemon) wouldStart() [][]string {
	if _, err := os.Stat(d.file.Path()); err != nil {
		return nil
	}
	return [][]string{{"config", "check", "--config", d.file.Path()}}
}

// handOver executes the program at the path that is watched, in this process. It returns
// only if that failed; then the daemon goes on as before.
func (d *daemon) handOver(ctx context.Context, s filewatch.Stamp, found rollout.Found) error {
	if err := d.Notifier.Reloading(); err != nil {
		d.Log.WarnContext(ctx, "service manager not told", "err", err)
	}
	err := d.place.CheckRoom()
	if err == nil {
		err = d.execPaused(ctx, s)
	}
	d.Log.ErrorContext(ctx, "hand-over failed, going on as before", "to", found.Version, "err", err)
	if err := d.Notifier.Ready("serving at " + d.place.Socket()); err != nil {
		d.Log.WarnContext(ctx, "service manager not told", "err", err)
	}
	return err
}

// execPaused is [daemon.exec] while no connection is accepted, after all that waits in
// memory for clients and for the call log is written.
func (d *daemon) execPaused(ctx context.Context, s filewatch.Stamp) error {
	d.telemetry.Through(true)
	defer d.telemetry.Through(false)
	err := d.listener.Pause(d.place.Listener())
	if err == nil {
		poll(ctx, time.Millisecond, flushTime, d.sessions.Flushed)
		d.FlushLog() // what waits would be lost with this program
		faultpoint.At("rollout.flushed")
		err = d.exec(s)
	}
	return errors.Join(err, d.listener.Resume(d.place.Listener()))
}

// exec does not return if it succeeds. It holds the lock under which a stop begins, so that a
// request to stop is not lost: it comes before, and exec fails, or it waits for the end of
// exec.
func (d *daemon) exec(s filewatch.Stamp) error {
	d.leave.Lock()
	defer d.leave.Unlock()
	if d.leaving {
		return errLeaving
	}
	if now, err := filewatch.Stat(d.Exe); err != nil || now != s {
		return errReplaced
	}
	return rollout.Exec(d.Exe, d.Argv, d.Environ, d.place.Listener(), d.place.LockFile(), rollout.Handover{
		PID: d.PID, Managed: d.place.Managed(), Path: d.Exe, Verified: s,
		From: d.Version, Epoch: d.place.Generation(), Rollouts: d.rollouts(),
	})
}

// reap waits for what the image before this one has started.
func (d *daemon) reap(ctx context.Context) error {
	if d.Handover != nil {
		rollout.Reap(ctx, d.Handover.Children)
	}
	return untilDone(ctx)
}

// upgrade answers the command of that name.
func (d *daemon) upgrade(ctx context.Context, progress commands.Progress) (any, error) {
	err := d.rollout.Upgrade(ctx, func(found rollout.Found) {
		progress(control.Progress{Message: "handing over to " + found.Version})
	})
	if errors.Is(err, rollout.ErrCurrent) {
		return control.UpgradeAnswer{Path: d.Exe, Version: d.Version}, nil
	}
	return nil, err
}
