package hosted

import (
	"time"

	"holdline/daemon/hosted/upstream"
	"holdline/protocol/fault"
)

// instanceUse says whether calls may reach an instance. It moves down this list
// only: a trial that succeeds is in use, and what is retired stays so.
type instanceUse int8

const (
	onTrial instanceUse = iota - 1 // its server takes another's place once its process is up
	inUse
	retired // it gets no process any more
)

// instanceState says what an instance is doing. It is not stored: see
// [instance.stateLocked]. An instance that is idle and wanted becomes launching,
// perhaps after backingOff, and then running; when its process exits it is idle
// again, or ejected if that happened too often.
type instanceState int8

const (
	idle       instanceState = iota // no process
	adopting                        // the process of an earlier daemon is being adopted, or found dead
	backingOff                      // a start waits for its time
	launching                       // a start is under way, up to the end of the handshake
	running                         // its process serves
	stopping                        // its process is being ended
	ejected                         // no process: the last ones ended, or did not start, too often
)

// stateLocked returns what the instance is doing. It is derived from the fields each
// time, since a stored state would have to be kept in step with the process, the
// guards and the timers. The order of the cases matters: an adoption hides all else,
// and a process that serves hides an ejection.
func (inst *instance) stateLocked() instanceState {
	switch {
	case inst.adopting != nil:
		return adopting
	case inst.up != nil && inst.up.State == upstream.Serving:
		return running
	case inst.guards.Restarts.Ejected():
		return ejected
	case inst.starting != nil && inst.skipBackoff != nil:
		return backingOff
	case inst.starting != nil, inst.up != nil && inst.up.State == upstream.Starting:
		return launching
	case inst.up != nil:
		return stopping
	}
	return idle
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
func (inst *instance) Died(u *upstream.Process, before upstream.State) {
	if u.Condemned != nil {
		inst.guards.Breaker.Reset() // what was wrong ended with the process
	}
	if before != upstream.Ending || u.Condemned != nil {
		// a start that fails is counted as such
		if (before == upstream.Serving || u.Condemned != nil) && inst.use != retired {
			inst.failedLocked(u.Death)
			inst.mustRecover = true
		}
		inst.m.o.Watch.WorkerLost(inst.name, inst.use != retired)
		u.Log.Warn("server is gone", "err", u.Death)
	}
	inst.recoverLocked()
	inst.missedLocked()
}

// instanceOf returns the instance that a process belongs to.
func instanceOf(u *upstream.Process) *instance {
	return u.Instance.(*instance) //nolint:forcetypeassert // no other is made
}
