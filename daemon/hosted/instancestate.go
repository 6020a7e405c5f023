package hosted

import (
	"time"

	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/upstream"
	"holdline/protocol/fault"
)

// stageLocked returns what the instance is doing.
func (inst *instance) stageLocked() stage.Stage {
	f := stage.Facts{
		Adopting: inst.adopting != nil, Starting: inst.starting != nil, BackingOff: inst.skipBackoff != nil,
		Ejected: inst.guards.Restarts.Ejected(), Up: inst.up != nil,
	}
	if f.Up {
		f.Process = inst.up.State
	}
	return stage.Of(f)
}

// Limits returns the time that a call may take without progress, and in all.
func (inst *instance) Limits() (answer, most time.Duration) {
	spec := inst.srv.Entry()
	return spec.Timeout, spec.MaxTimeout
}

// Blame records why Holdline ends the process of the instance.
func (inst *instance) Blame(f *fault.Record) { inst.srv.verdict.Blame(f) }

// Exited forgets a process that has exited.
func (inst *instance) Exited(u *upstream.Process) {
	if inst.up == u {
		inst.up = nil
	}
}

// Died counts a failure if neither Holdline nor the user wanted the end of a process
// that was in the state before. It starts the instance again if sessions use it.
func (inst *instance) Died(u *upstream.Process, before stage.State) {
	if u.Condemned != nil {
		inst.guards.Breaker.Reset() // what was wrong ended with the process
	}
	if before != stage.Ending || u.Condemned != nil {
		// a start that fails is counted as such
		if (before == stage.Serving || u.Condemned != nil) && inst.use != stage.Retired {
			inst.failedLocked(u.Death)
			inst.mustRecover = true
		}
		inst.m.o.Watch.WorkerLost(inst.name, inst.use != stage.Retired)
		u.Log.Warn("server is gone", "err", u.Death)
	}
	inst.recoverLocked()
	inst.missedLocked()
}

// instanceOf returns the instance that a process belongs to.
func instanceOf(u *upstream.Process) *instance {
	return u.Instance.(*instance) //nolint:forcetypeassert // no other is made
}
