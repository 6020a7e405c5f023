package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/commands"
	"holdline/daemon/filewatch"
	"holdline/daemon/rollout"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/faultpoint"
)

// flushTime bounds the wait for answers to reach their sockets before a
// hand-over. What does not is asked for again, as after a crash.
const flushTime = 50 * time.Millisecond

// Why a hand-over that was prepared is not made.
var (
	errLeaving  = errors.New("the daemon is stopping")
	errReplaced = errors.New("the file has changed since it was verified, try again")
)

// buildRollout makes the part that replaces this program by a newer one.
func (l *life) buildRollout() {
	var running []filewatch.Stamp
	owner := os.Geteuid()
	if image, err := rollout.Image(); err == nil {
		if s, err := filewatch.Stat(image); err == nil {
			running, owner = append(running, s), s.UID
		}
	}
	if h := l.Handover; h != nil {
		running = append(running, h.Verified)
	}
	check := rollout.Checker{
		UID: os.Geteuid(), Owner: owner, Env: []string{"PATH=/usr/bin:/bin", "HOME=" + l.Home, "LANG=C.UTF-8"},
		Needs: l.versions,
		Also:  l.wouldStart,
	}
	l.rollout = rollout.New(rollout.Options{
		Log: l.Log.With("component", "rollout"), Path: l.Exe, Running: running,
		Verify: check.Check, HandOver: l.handOver,
		Report: l.telemetry.SetRollout,
	})
}

// versions are what a successor has to know: what this daemon would begin at
// any time, and what workers of earlier ones speak.
func (l *life) versions() rollout.Versions {
	return rollout.Versions{
		Greeting: []int{protocol.Version}, Worker: l.workers.Versions(), Record: []int{calls.RecordVersion},
		Handover: []int{rollout.Version},
	}
}

// rollouts returns how many hand-overs, one after the other, have led to this program.
func (l *life) rollouts() int64 {
	if l.Handover == nil {
		return 0
	}
	return l.Handover.Rollouts + 1
}

// wouldStart is what a new program must be able to do besides: read the
// configuration. A daemon that cannot would not come up, while this one goes
// on with what was read when it was well.
func (l *life) wouldStart() [][]string {
	if _, err := os.Stat(l.file.Path()); err != nil {
		return nil
	}
	return [][]string{{"config", "check", "--config", l.file.Path()}}
}

// handOver makes the program at the path that is watched the image of this
// process. It returns only if that failed, and then all goes on as before.
func (l *life) handOver(ctx context.Context, s filewatch.Stamp, found rollout.Found) error {
	if err := l.Notifier.Reloading(); err != nil {
		l.Log.WarnContext(ctx, "service manager not told", "err", err)
	}
	err := l.place.CheckRoom()
	if err == nil {
		err = l.execPaused(ctx, s)
	}
	l.Log.ErrorContext(ctx, "hand-over failed, going on as before", "to", found.Version, "err", err)
	if err := l.Notifier.Ready("serving at " + l.place.Socket()); err != nil {
		l.Log.WarnContext(ctx, "service manager not told", "err", err)
	}
	return err
}

// execPaused is [life.exec] while no connection is accepted, after all that waits in
// memory for clients and for the call log is written.
func (l *life) execPaused(ctx context.Context, s filewatch.Stamp) error {
	l.telemetry.Through(true)
	defer l.telemetry.Through(false)
	err := l.listener.Pause(l.place.Listener())
	if err == nil {
		l.flush(ctx)
		faultpoint.At("rollout.flushed")
		err = l.exec(s)
	}
	return errors.Join(err, l.listener.Resume(l.place.Listener()))
}

// flush waits until clients have been sent what is queued for them.
func (l *life) flush(ctx context.Context) {
	limit := time.After(flushTime)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !l.sessions.Flushed() {
		select {
		case <-ctx.Done():
			return
		case <-limit:
			return
		case <-tick.C:
		}
	}
}

// exec does not return if it succeeds. Nobody who asks the daemon to stop is
// overheard: asking waits until this is over.
func (l *life) exec(s filewatch.Stamp) error {
	l.leave.Lock()
	defer l.leave.Unlock()
	if l.leaving {
		return errLeaving
	}
	if now, err := filewatch.Stat(l.Exe); err != nil || now != s {
		return errReplaced
	}
	return rollout.Exec(l.Exe, l.Argv, l.Environ, l.place.Listener(), l.place.LockFile(), rollout.Handover{
		PID: l.PID, Managed: l.place.Managed(), Path: l.Exe, Verified: s,
		From: l.Version, Epoch: l.place.Generation(), Rollouts: l.rollouts(),
	})
}

// reap waits for what the image before this one has started.
func (l *life) reap(ctx context.Context) error {
	if l.Handover != nil {
		rollout.Reap(ctx, l.Handover.Children)
	}
	return untilDone(ctx)
}

// upgrade answers the command of that name.
func (l *life) upgrade(ctx context.Context, progress commands.Progress) (any, error) {
	err := l.rollout.Upgrade(ctx, func(found rollout.Found) {
		progress(control.Progress{Message: "handing over to " + found.Version})
	})
	if errors.Is(err, rollout.ErrCurrent) {
		return control.UpgradeAnswer{Path: l.Exe, Version: l.Version}, nil
	}
	return nil, err
}
