package hosted

import (
	"errors"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// startFault returns the fault of a start that failed with err. It prefers the most
// useful reason: a lack of resources on this machine, the word of our own remote
// process, or the last line that the server wrote.
func (inst *instance) startFault(u *upstream.Process, err error) error {
	inst.m.hub.Mu.Lock()
	death, alone := u.Death, u.EndedBy != upstream.EndedByHoldline
	inst.m.hub.Mu.Unlock()
	if errors.Is(err, tool.ErrStopping) || inst.m.hub.Life.Err() != nil {
		return tool.ErrStopping
	}
	refusal, refused := errors.AsType[*dialect.Refusal](err)
	if refused {
		limits := inst.srv.Limits()
		if f := limits.Proxied(refusal.Raw); f != nil {
			f.Operation, f.Fault.Generation = dispatch.Starting(inst.key.server), u.Generation
			return f
		}
	}
	if f := fault.Exhausted(dispatch.Starting(inst.key.server), err); f != nil {
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
	if death != nil && (errors.Is(err, upstream.ErrDied) || alone && (!refused || refusal.Method == mcp.Discover)) {
		why = death.Fault.Detail + lastWords(death.Cause)
	}
	r := fault.New(fault.SpawnFailure, fault.Server, dispatch.Starting(inst.key.server), "server %s did not come up: %s", inst.key.server,
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

// slowFault returns the fault of a start that was ended after took because it was too
// slow.
func (inst *instance) slowFault(u *upstream.Process, took time.Duration) *fault.Record {
	inst.m.hub.Mu.Lock()
	death, again := u.Death, "It is started again by itself. "
	if inst.use == onTrial {
		again = ""
	}
	inst.m.hub.Mu.Unlock()
	f := fault.New(fault.Timeout, fault.Server, dispatch.Starting(inst.key.server),
		"server %s was ended by Holdline: it had not come up after %v. %s"+
			"If it needs more time, set start_timeout in its \"holdline\" object",
		inst.key.server, took.Round(time.Second), again)
	f.Fault.Generation = u.Generation
	if death != nil {
		f.Cause = death.Cause
		if words := lastWords(death.Cause); words != "" {
			f.Fault.Detail += "; the last that it wrote" + words
		}
	}
	return f
}
