package upstream

import (
	"strings"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/lines"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// quoteBytes is how much of a line that cannot be read is quoted, in bytes.
const quoteBytes = 200

// unreadable returns a function that makes the fault for a call whose answer is no
// message. err says why; the fault quotes the begin of the line, without secrets. The
// quoted bytes are copied now, so line may be reused.
func (u *Process) unreadable(line []byte, err error) func(server, operation string) *fault.Record {
	begin := strings.ToValidUTF8(string(line[:min(len(line), 8*quoteBytes)]), "\uFFFD")
	begin = u.Secrets.Load().Text(begin)
	return func(server, operation string) *fault.Record {
		return fault.New(fault.DownstreamFailure, fault.Server, operation,
			"server %s answered with a line that cannot be read: %v; it begins: %s",
			server, err, fault.Quote([]byte(begin[:min(len(begin), quoteBytes)]))).WithReason(fault.BadOutput)
	}
}

// failAnswer fails the call, or the daemon's own request, whose answer has arrived
// and cannot be read. describe makes the fault.
func (u *Process) failAnswer(id jsonrpc.ID, describe func(server, operation string) *fault.Record) {
	if own, ok := u.takeInquiry(dialect.Number(id)); ok {
		f := describe(u.Server, "run:"+u.Server)
		line := jsonrpc.AppendError(nil, id, f.JSONRPCCode, f.Fault.Detail, nil)
		own.take(jsonrpc.Message{Error: jsonrpc.Field(line, "error")}) // of no kind, since it is not the server's
		return
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	c := u.answeredLocked(id)
	if c == nil || c.Phase() != calls.Open {
		return
	}
	u.failLocked(c, describe)
}

// failSkipped fails the call whose answer was too long to be read. The id is looked
// for in the begin and the end of the line; without one no call fails.
func (u *Process) failSkipped(l *lines.Line) {
	if id := dialect.AnswerID(l.Head, l.Tail); id != nil {
		u.failAnswer(id, tooLong)
	}
}

// tooLong returns the fault of a call whose answer exceeds the limit of a message.
func tooLong(server, operation string) *fault.Record {
	return fault.New(fault.DownstreamFailure, fault.Server, operation,
		"server %s gave an answer of more than %d MiB, the most that a message may have: it was left out",
		server, jsonrpc.MaxFrame>>20).WithReason(fault.BadOutput)
}

// condemnEndless ends a process that writes a line without end: no answer could
// follow.
func (u *Process) condemnEndless() {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if u.State != Serving || u.Condemned != nil {
		return
	}
	f := fault.New(fault.ProcessFailure, fault.Server, "run:"+u.Server,
		"Holdline ended server %s: it wrote %d MiB to stdout without a newline, "+
			"so no answer could come from it any more",
		u.Server, int64(lines.MaxSkipped)>>20)
	f.Fault.Generation = u.Generation
	u.CondemnLocked(f)
}

// failLocked ends a call with the fault of its answer.
func (u *Process) failLocked(c *Call, describe func(server, operation string) *fault.Record) {
	c.Answer.Fault = describe(u.Server, mcp.ToolsCall+":"+c.Name)
	c.Answer.Fault.Fault.Detail += ". The call was made"
	u.settledLocked(c)
}

// settledLocked records that the line being read answers the call. The line gets a
// mark, which keeps it with the worker until the client has the answer or a file
// holds it.
func (u *Process) settledLocked(c *Call) {
	c.Apply(calls.Reply)
	if !c.Claim().Wanted() {
		u.hub.DropLocked(c)
		return
	}
	u.markLine(c, nil)
}
