package upstream

import (
	"context"
	"errors"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/hang"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/supervisor"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// die handles the end of the process. It decides what ended it, marks it as exited, closes the
// server's open requests, and informs the instance. Events arrive in order, so an answer that the
// server wrote just before it died still counts. It takes hub.Mu.
func (u *Process) die(w *supervisor.Worker, ev *supervisor.Event) {
	death := ev.Fault
	if ev.Kind == supervisor.Closed {
		death = w.ExitFault("run:"+u.Server, ev.Exit)
	}
	faultpoint.At("hosted.dead")
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	death = u.Secrets.Load().Fault(death)
	before, by := u.State, EndedByItself
	switch {
	case before == stage.Ending, before == stage.Draining:
		by = EndedByHoldline
	case ev.Exit.KilledByOthers(), ev.Kind == supervisor.Lost && ev.Exit == process.Exit{}:
		by = EndedByOthers
	}
	u.exitLocked(death, by)
	for _, q := range u.questions.All() {
		u.closeLocked(q)
	}
	u.caughtLocked()
	u.Instance.Died(u, before)
}

// outlive calls [Process.settle] until no client may ask for a call of a dead process any more, or
// hub.Ending is set. Then it acknowledges all output, waits until the worker has left, and removes
// its directory, and the process from the hub. It returns early if the daemon stops. It takes
// hub.Mu.
func (u *Process) outlive(w *supervisor.Worker) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := u.settle(w)
		u.hub.Mu.Lock()
		// With records that are damaged, calls may have been made of which nothing else tells.
		removable := u.hub.Ending || calls.MayRemoveDir(len(u.Calls)) && (u.Damage == nil || u.hub.Expected)
		u.hub.Mu.Unlock()
		if removable {
			break
		}
		timer.Reset(next)
		select {
		case <-u.poke:
		case <-timer.C:
		case <-u.hub.Life.Done():
			return
		}
	}
	w.Ack(u.output.Last()) // it leaves
	select {
	case <-w.Done():
	case <-u.hub.Life.Done():
		return
	}
	faultpoint.At("hosted.reaping")
	if err := u.hub.o.Workers.Reap(u.Dir); err != nil {
		u.Log.Warn("directory of a dead worker cannot be removed", "err", err)
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	delete(u.hub.Processes, u)
}

// LongWait is the age from which a cancelled call makes its process suspect: no client waits less.
const LongWait = 30 * time.Second

// SuspectLocked starts a goroutine that probes a process which leaves a call unanswered, if it
// serves, no probe is under way and the hub is not closed. The caller must hold hub.Mu.
func (u *Process) SuspectLocked() {
	if u.State != stage.Serving || u.Suspect || u.hub.Closed {
		return
	}
	u.Suspect = true
	u.hub.WG.Go(func() { u.Contain("asked a process for a sign of life", u.probe) })
}

// probe pings a suspect process until it gives a sign of life, and ends it if it hangs, as
// [hang.Probe] decides. It takes hub.Mu, and blocks for longer than a call may take.
func (u *Process) probe() {
	w := u.Worker()
	hung, after := hang.Probe(hang.Process{
		Limits: u.Instance.Limits, LivesAfter: u.livesAfter,
		CPUTime: func() time.Duration { return process.CPUTime(w.Status().PID) },
	})
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.Suspect = false
	if hung && u.State == stage.Serving && !u.hub.Closed {
		u.giveUpLocked("server %s hung, so Holdline ended it: a call had no answer, and it gave no sign of life "+
			"in the %v after that, though it was asked for one again and again", u.Server, after.Round(time.Second))
	}
}

// giveUpLocked condemns a process for what format and args say. The caller must hold hub.Mu.
func (u *Process) giveUpLocked(format string, args ...any) {
	f := fault.New(fault.ProcessFailure, fault.Server, "run:"+u.Server, format, args...)
	f.Fault.Generation = u.Generation
	u.CondemnLocked(f)
}

// livesAfter pings the process and reports whether any message of it arrived before the ping was
// answered, the process exited, or wait was over; an error counts, too. It also returns true if the
// process no longer serves or itself waits for a client's answer, if the hub is closed, or if the
// worker's host cannot be reached. The caller must not hold hub.Mu.
func (u *Process) livesAfter(wait time.Duration) bool {
	before := u.heard.Load()
	ctx, cancel := context.WithTimeout(u.hub.Life, wait)
	defer cancel()
	method, params := u.lifeQuestion()
	_, err := u.Request(ctx, calls.KindProbe, method, params)
	if _, refused := errors.AsType[*dialect.RefusalError](err); err != nil && !refused {
		select { // it could not even be asked: that proves nothing yet
		case <-ctx.Done():
		case <-u.Exited:
		}
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if w := u.attached.Status(); w.Host != "" && !w.Attached { // it is not the server that is silent
		return true
	}
	return u.heard.Load() != before || u.questions.AwaitClient() || u.State != stage.Serving || u.hub.Closed
}

// AwaitExits waits until all have exited, or returns ctx's cause. hub.Mu must not be held.
func AwaitExits(ctx context.Context, all []*Process) error {
	for _, u := range all {
		select {
		case <-u.Exited:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// An Ender is what made a process exit.
type Ender int8

// The enders.
const (
	EndedByHoldline Ender = iota // also while it runs, and for one that was draining
	EndedByItself
	EndedByOthers // it, or its worker, was killed by another program
)
