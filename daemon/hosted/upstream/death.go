package upstream

import (
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// die handles the event that the process has ended. It decides what ended it, wakes the
// callers that wait, and informs the instance.
//
// The reader has already handled what came before the end: events arrive in order, so an
// answer that the server wrote just before it died still counts.
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
	case before == Ending, before == Draining:
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

// outlive keeps the directory of a dead process until no client may ask for one of
// its calls any more, then removes it. It returns early if the hub closes: the
// next daemon goes on.
func (u *Process) outlive(w *supervisor.Worker) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := u.settle(w)
		u.hub.Mu.Lock()
		removable := u.hub.Ending || calls.MayRemoveDir(len(u.Calls))
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
	w.Ack(u.last) // it leaves
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
