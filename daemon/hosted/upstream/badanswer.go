package upstream

import (
	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/lines"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// badAnswer returns the fault for an answer that cannot be read; why is what the server did.
func (u *Process) badAnswer(operation, why string) *fault.Record {
	return fault.New(fault.DownstreamFailure, fault.Server, operation, "server %s %s", u.Server, why).
		WithReason(fault.BadOutput)
}

// failAnswer fails the open call, or the daemon's own request, if there is one, to which an answer
// with that id has arrived that cannot be read; why is that of badAnswer. hub.Mu must not be held.
func (u *Process) failAnswer(id jsonrpc.ID, why string) {
	if own, ok := u.takeInquiry(dialect.Number(id)); ok {
		u.refuseInquiry(&own, id, u.badAnswer("run:"+u.Server, why).Fault.Detail)
		return
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if c := u.namedLocked(dialect.ID, id); c != nil && c.Phase() == calls.Open {
		u.failLocked(c, why)
	}
}

// refuseInquiry answers the daemon's own request of that id with an error that says why. The caller
// must not hold hub.Mu.
func (u *Process) refuseInquiry(own *inquiry, id jsonrpc.ID, why string) {
	f := u.badAnswer("run:"+u.Server, why)
	line := jsonrpc.AppendError(nil, id, f.JSONRPCCode, why, nil)
	own.take(jsonrpc.Message{Error: jsonrpc.Field(line, "error")}) // of no kind, since it is not the server's
}

// failSkipped fails the call, or the daemon's own request, whose answer was too long to be read, if
// the line's beginning or end has its id. The caller must not hold hub.Mu.
func (u *Process) failSkipped(l *lines.Line) {
	if id := dialect.AnswerID(l.Head, l.Tail); id != nil {
		u.failAnswer(id, dialect.TooLong())
	}
}

// condemnEndless ends a serving process that writes a line without end. It takes hub.Mu.
func (u *Process) condemnEndless() {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if u.State == stage.Serving {
		u.giveUpLocked("Holdline ended server %s: it wrote %d MiB to stdout without a newline, "+
			"so no answer could come from it any more", u.Server, int64(lines.MaxSkipped)>>20)
	}
}

// failLocked settles a call with the fault of [Process.badAnswer]. The caller must hold hub.Mu.
func (u *Process) failLocked(c *Call, why string) {
	c.Answer.Fault = u.badAnswer(mcp.ToolsCall+":"+c.Name, why+". The call was made")
	u.settledLocked(c)
}

// settledLocked records that the line being read answers the call, and keeps it with the worker, or
// drops a call that no client wants. The caller, the reader, must hold hub.Mu.
func (u *Process) settledLocked(c *Call) {
	c.Apply(calls.Reply)
	if !c.Claim().Wanted() {
		u.hub.DropLocked(c)
		return
	}
	u.output.Keep(c)
}
