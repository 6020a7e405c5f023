package hosted

import (
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/lines"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// quoteBytes is how much of a line that cannot be read is quoted, in bytes.
const quoteBytes = 200

// unreadable makes the fault of a call whose answer is a line that is no
// message, for the reason err.
func (u *upstream) unreadable(line []byte, err error) func(server, operation string) *fault.Record {
	begin := strings.ToValidUTF8(string(line[:min(len(line), 8*quoteBytes)]), "\uFFFD")
	begin = u.secrets.Load().Text(begin)
	return func(server, operation string) *fault.Record {
		return fault.New(fault.DownstreamFailure, fault.Server, operation,
			"server %s answered with a line that cannot be read: %v; it begins: %s",
			server, err, fault.Quote([]byte(begin[:min(len(begin), quoteBytes)]))).WithReason(fault.BadOutput)
	}
}

// failAnswer ends whatever waits for the answer with an id, which came and cannot
// be read: a call, or a request of the daemon's own.
func (u *upstream) failAnswer(id jsonrpc.ID, describe func(server, operation string) *fault.Record) {
	if own, ok := u.takeInquiry(dialect.Number(id)); ok {
		f := describe(u.name(), "run:"+u.name())
		line := jsonrpc.AppendError(nil, id, f.JSONRPCCode, f.Fault.Detail, nil)
		own.take(jsonrpc.Message{Error: jsonrpc.Field(line, "error")}) // of no kind, since it is not the server's
		return
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	c := u.answeredLocked(id)
	if c == nil || c.Phase() != calls.Open {
		return
	}
	u.failLocked(c, describe)
}

// failSkipped ends whatever waits for the answer that a skipped line is, as far as
// the line's ends show which.
func (u *upstream) failSkipped(l *lines.Line) {
	if id := dialect.AnswerID(l.Head, l.Tail); id != nil {
		u.failAnswer(id, tooLong)
	}
}

// tooLong returns the fault of a call whose answer is left out.
func tooLong(server, operation string) *fault.Record {
	return fault.New(fault.DownstreamFailure, fault.Server, operation,
		"server %s gave an answer of more than %d MiB, the most that a message may have: it was left out",
		server, jsonrpc.MaxFrame>>20).WithReason(fault.BadOutput)
}

// condemnEndless ends a process that writes a line without end.
func (u *upstream) condemnEndless() {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if u.state != serving || u.condemned != nil {
		return
	}
	f := fault.New(fault.ProcessFailure, fault.Server, "run:"+u.name(),
		"Holdline ended server %s: it wrote %d MiB to stdout without a newline, "+
			"so no answer could come from it any more",
		u.name(), int64(lines.MaxSkipped)>>20)
	f.Fault.Generation = u.generation
	u.condemnLocked(f)
}

// failLocked ends a call with the fault of its answer.
func (u *upstream) failLocked(c *call, describe func(server, operation string) *fault.Record) {
	c.Answer.Fault = describe(u.name(), mcp.ToolsCall+":"+c.Name)
	c.Answer.Fault.Fault.Detail += ". The call was made"
	u.settledLocked(c)
}

// settledLocked notes that a call has its answer, in the line that is being read.
func (u *upstream) settledLocked(c *call) {
	c.Apply(calls.Reply)
	if !c.Claim().Wanted() {
		u.m.dropLocked(c)
		return
	}
	u.marks = append(u.marks, mark{seq: u.stdout.Begin(), c: c, at: time.Now()})
}
