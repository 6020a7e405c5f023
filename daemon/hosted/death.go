package hosted

import (
	"errors"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// die handles the event that the process has ended. It decides what ended it, counts
// a failure if neither Holdline nor the user wanted the end, and wakes the callers
// that wait. The instance is started again if sessions use it.
//
// The reader has already handled what came before the end: events arrive in order, so an
// answer that the server wrote just before it died still counts.
func (u *upstream) die(w *supervisor.Worker, ev *supervisor.Event) {
	death := ev.Fault
	if ev.Kind == supervisor.Closed {
		death = w.ExitFault("run:"+u.name(), ev.Exit)
	}
	faultpoint.At("hosted.dead")
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	death = u.secrets.Load().Fault(death)
	if u.condemned != nil {
		u.condemned.Cause, death = death.Cause, u.condemned
	}
	served, ended := u.state == serving || u.condemned != nil, u.state == ending && u.condemned == nil
	by := endedByItself
	switch {
	case u.state == ending, u.state == draining:
		by = endedByHoldline
	case ev.Exit.KilledByOthers(), ev.Kind == supervisor.Lost && ev.Exit == process.Exit{}:
		by = endedByOthers
	}
	u.exitLocked(death, by)
	inst := u.inst
	if u.condemned != nil {
		inst.guards.breaker.Reset() // what was wrong ended with the process
	}
	if !ended {
		if served && inst.use != retired { // a start that fails is counted as such
			inst.failedLocked(death)
			inst.mustRecover = true
		}
		u.m.o.Watch.WorkerLost(inst.name, inst.use != retired)
		u.log.Warn("server is gone", "err", death)
	}
	u.m.refuseAsksOfLocked(u)
	u.caughtLocked()
	inst.recoverLocked()
	inst.missedLocked()
}

func (u *upstream) name() string { return u.inst.key.server }

// outlive keeps the directory of a dead process until no client may ask for one of
// its calls any more, then removes it. It returns early if the manager closes: the
// next daemon goes on.
func (u *upstream) outlive(w *supervisor.Worker) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := u.settle(w)
		u.m.mu.Lock()
		removable := u.m.ending || calls.MayRemoveDir(len(u.calls))
		u.m.mu.Unlock()
		if removable {
			break
		}
		timer.Reset(next)
		select {
		case <-u.poke:
		case <-timer.C:
		case <-u.m.life.Done():
			return
		}
	}
	w.Ack(u.last) // it leaves
	select {
	case <-w.Done():
	case <-u.m.life.Done():
		return
	}
	faultpoint.At("hosted.reaping")
	if err := u.m.o.Workers.Reap(u.dir); err != nil {
		u.log.Warn("directory of a dead worker cannot be removed", "err", err)
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	delete(u.m.processes, u)
}

// startFault returns the fault of a start that failed with err. It prefers the most
// useful reason: a lack of resources on this machine, the word of our own remote
// process, or the last line that the server wrote.
func (u *upstream) startFault(err error) error {
	u.m.mu.Lock()
	death, alone := u.death, u.endedBy != endedByHoldline
	u.m.mu.Unlock()
	if errors.Is(err, tool.ErrStopping) || u.m.life.Err() != nil {
		return tool.ErrStopping
	}
	refusal, refused := errors.AsType[*dialect.Refusal](err)
	if refused {
		if f := u.inst.srv.proxied(refusal.Raw); f != nil {
			f.Operation, f.Fault.Generation = operation(u.name()), u.generation
			return f
		}
	}
	if f := fault.Exhausted(operation(u.name()), err); f != nil {
		return f
	}
	if f, ok := errors.AsType[*fault.Record](err); ok && isOurs(f) {
		return f
	}
	if isOurs(death) {
		return death
	}
	why := err.Error()
	// A process that has refused the handshake, or that was ended for what it
	// answered, says by its exit code nothing of the reason. Any server may refuse
	// the question which era it is of.
	if death != nil && (errors.Is(err, errDied) || alone && (!refused || refusal.Method == mcp.Discover)) {
		why = death.Fault.Detail + lastWords(death.Cause)
	}
	r := fault.New(fault.SpawnFailure, fault.Server, operation(u.name()), "server %s did not come up: %s", u.name(),
		why)
	if death != nil {
		r.Fault.Generation, r.Cause = death.Fault.Generation, death.Cause
	}
	return r
}

// lastWords returns the last line that a process wrote to stderr, with a colon before
// it, or "". It often says why the process ended.
func lastWords(c *fault.Cause) string {
	if c == nil || len(c.StderrTail) == 0 {
		return ""
	}
	return ": " + fault.Quote([]byte(c.StderrTail[len(c.StderrTail)-1]))
}
