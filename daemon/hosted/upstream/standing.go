package upstream

import (
	"context"
	"encoding/json"
	"fmt"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/standing"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Process is the [standing.Process] of its standing requests.
var _ standing.Process = (*Process)(nil)

// Inquire writes a request of the daemon's own whose record stays, as [standing.Process] says, and
// does not wait for the answer. made is called with the number of the write and with hub.Mu held,
// before the worker gets the write, so that an early answer finds its place. take is called later
// with the answer, without hub.Mu. After an error take is not called. The caller must not hold
// hub.Mu.
func (u *Process) Inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
	made func(write int64), take func(msg jsonrpc.Message),
) error {
	_, err := u.inquire(ctx, rec, method, params, inquiry{take: take, stays: true}, made)
	return err
}

// CancelListen ends a subscriptions/listen request to a modern process, whose write has that
// number: it queues a cancellation, which is dropped if the queue is full, and ignores answers from
// now on. It does not wait. It takes hub.Mu.
func (u *Process) CancelListen(write int64) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	delete(u.internal, write)
	id := jsonrpc.IntID(write)
	line := jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, fmt.Appendf(nil, `{"requestId":%s}`, id))
	u.writes.Push(background.Write{
		Rec:  calls.Record{Kind: calls.KindCancel, Name: mcp.Listen, ID: json.RawMessage(id)},
		Line: line,
	})
}

// Forget has the reader drop the records of these writes, and does not wait for that. It takes
// hub.Mu.
func (u *Process) Forget(writes ...int64) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.records.Forget(writes...)
	u.nudge()
}

// Done returns a channel that is closed when the process has exited.
func (u *Process) Done() <-chan struct{} { return u.Exited }

// Desired returns whether the process serves, so that it can be asked for what its sessions want.
// The result is provisional while sessions of an earlier daemon may come back to a process of that
// daemon: what they want is not known yet. It takes hub.Mu.
func (u *Process) Desired() standing.Desired {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return standing.Desired{Serving: u.State == stage.Serving, Provisional: u.Restored && !u.hub.Expected}
}

// Level returns the most verbose level of log messages that a session of the process wants, or ""
// if none wants messages. It takes hub.Mu.
func (u *Process) Level() string {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.audience.Level()
}

// URIs returns the set of the resources to which sessions of the process have subscribed, a copy.
// It takes hub.Mu.
func (u *Process) URIs() map[string]struct{} {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.audience.URIs()
}

// Agreed records that the process notifies of changes to a resource from now on. Sessions that had
// subscribed before get a notification at once, as [audience.Audience.Agreed] says. It takes
// hub.Mu.
func (u *Process) Agreed(uri string) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.audience.Agreed(uri)
}

// updated forwards the server's notification that a resource has changed to the sessions that have
// subscribed to it, or to a resource that contains it. A malformed one is dropped. It takes hub.Mu.
func (u *Process) updated(msg jsonrpc.Message) {
	uri, ok := mcp.String(jsonrpc.Field(msg.Params, "uri"))
	params, err := dialect.DropSubscription(msg.Params)
	if !ok || err != nil {
		return
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.audience.Updated(uri, params)
}

// logged passes a log message of the server to the sessions that share the process and want
// messages of its level. A session wants the level that it has set. While a request of the session
// is under way, it also wants the level of that request. From a modern server only sessions with
// such a request get messages. It takes hub.Mu.
func (u *Process) logged(msg jsonrpc.Message) {
	level, _ := mcp.String(jsonrpc.Field(msg.Params, "level"))
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	asked := map[string]bool{} // has the sessions with a request under way, and whether one wants the message
	for _, c := range u.Calls {
		if c.Phase() == calls.Open && c.Claim().Wanted() {
			asked[c.Key.Session] = asked[c.Key.Session] || mcp.Covers(c.Level, level)
		}
	}
	for session, c := range u.audience.All() {
		if wanted, begun := asked[session]; begun || u.era != dialect.Modern { // a modern one speaks of requests only
			c.Log(level, msg.Params, wanted)
		}
	}
}
