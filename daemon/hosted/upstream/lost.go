package upstream

import (
	"fmt"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/lines"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// If output is lost that a process wrote, nobody can tell any more what a call has come to whose
// answer was in it. If what is left shows whose answer it was, that call ends; else every call
// that was in flight may be the one, and each ends. The process lives on, and is told that these
// calls are cancelled.

// lose ends the calls, and the daemon's own requests, whose answers may have been in output that is
// lost. The caller, the reader, must not hold hub.Mu.
func (u *Process) lose(l *lines.Line) {
	if !l.Many {
		if id := dialect.AnswerID(l.Head, nil); id != nil {
			u.loseAnswer(id, l)
			return
		}
		if dialect.IsNotification(l.Head) {
			u.loseNotices(l)
			return
		}
	}
	u.loseNotices(l)
	why := fmt.Sprintf("a part of what server %s wrote is lost, and its answer may have been in it: %v", u.Server, l.Err)
	u.hub.Mu.Lock()
	own := u.internal
	if l.Old { // it was written before this daemon has asked anything
		own = nil
	} else {
		u.internal = map[int64]*inquiry{}
		for write, kept := range own {
			if !kept.stays {
				u.records.Forget(write)
			}
		}
	}
	for write, c := range u.Calls {
		if c.hasLocked(u, write) && (!l.Old || c.Begun.IsZero()) {
			u.loseLocked(c, why)
		}
	}
	u.hub.Mu.Unlock()
	for write, kept := range own {
		u.refuseInquiry(kept, jsonrpc.IntID(write), why)
	}
}

// loseNotices has all subscribers notified: what is lost may have said that their resources have changed.
// The caller, the reader, must not hold hub.Mu.
func (u *Process) loseNotices(l *lines.Line) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.missedLocked("", placeOf(l))
}

// loseAnswer ends the call, or the daemon's own request, with that id, whose answer is lost. The
// caller, the reader, must not hold hub.Mu.
func (u *Process) loseAnswer(id jsonrpc.ID, l *lines.Line) {
	why := fmt.Sprintf("the answer of server %s is lost: %v", u.Server, l.Err)
	if own, ok := u.takeInquiry(dialect.Number(id)); ok {
		u.refuseInquiry(&own, id, why)
		return
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if c := u.namedLocked(dialect.ID, id); c != nil {
		u.loseLocked(c, why)
	}
}

// loseLocked ends an open call whose answer is lost, by the law, and cancels it for the server. The
// worker keeps the place where output is missing until that is on record, so that the next daemon
// does not wait for the answer. The caller, the reader, must hold hub.Mu.
func (u *Process) loseLocked(c *Call, why string) {
	if c.Phase() != calls.Open {
		return
	}
	u.CancelLocked(c, false)
	f := fault.New(fault.TransportFailure, fault.Server, mcp.ToolsCall+":"+c.Name, "%s", why)
	f.Fault.Generation = u.Generation
	c.lost = f
	facts := c.FactsLocked(true)
	if facts.Taken = false; calls.Decide(facts) == calls.Dispatch {
		u.output.Keep(c.Repeat())
		return
	}
	c.Answer.Fault = UnknownFault(f.Operation, f, c.Repeats, c.Replays)
	u.settledLocked(c)
}

// hasLocked reports whether u has the call, by that write. The caller must hold hub.Mu.
func (c *Call) hasLocked(u *Process, write int64) bool { return c.Up == u && c.write == write }

// UnknownFault returns the fault that says that a call may or may not have had its effect, or that
// it failed twice. end says why there is no answer, nil that its worker is gone.
func UnknownFault(operation string, end *fault.Record, convergent bool, replays int) *fault.Record {
	detail := "its worker is gone"
	if end != nil {
		detail = end.Fault.Detail
	}
	f := fault.New(fault.OutcomeUnknown, fault.Server, operation,
		"whether the call had its effect is not known: %s", detail)
	if convergent && replays > 0 {
		f = fault.New(fault.ProcessFailure, fault.Server, operation, "the call failed twice: %s", detail)
		f.Retried = true
	}
	if end != nil {
		f.Fault.Generation, f.Cause = end.Fault.Generation, end.Cause
	}
	return f
}
