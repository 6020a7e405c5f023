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

// Inquire makes a request whose record stays, as [standing.Process] says. made is
// called with the hub's mutex held, before the worker gets the write, so that an
// early answer finds its place. take is called without the mutex.
func (u *Process) Inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
	made func(write int64), take func(msg jsonrpc.Message),
) error {
	_, err := u.inquire(ctx, rec, method, params, inquiry{take: take, stays: true}, made)
	return err
}

// CancelListen tells a modern process to end a subscriptions/listen request.
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

// Forget drops the records of these writes. The reader does that later.
func (u *Process) Forget(writes ...int64) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.records.Forget(writes...)
	u.nudge()
}

// Done returns a channel that is closed when the process has exited.
func (u *Process) Done() <-chan struct{} { return u.Exited }

// Desired returns whether the process can be asked for what the sessions that share it want. It is
// provisional as long as sessions of an earlier daemon may come back: what they want
// is not known yet.
func (u *Process) Desired() standing.Desired {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return standing.Desired{Serving: u.State == stage.Serving, Provisional: u.Restored && !u.hub.Expected}
}

// Level returns the most verbose level of log messages that a session of the process wants, or ""
// if none wants messages.
func (u *Process) Level() string {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.audience.Level()
}

// URIs returns the resources to which sessions of the process have subscribed.
func (u *Process) URIs() map[string]struct{} {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.audience.URIs()
}

// Agreed notes that the process notifies of changes to a resource from now on, as
// [audience.Audience.Agreed] says.
func (u *Process) Agreed(uri string) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.audience.Agreed(uri)
}

// updated notifies the subscribers of a resource that it has changed.
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

// logged passes a log message of the server to the sessions that share the process
// and want messages of its level. A session wants the level that it has set. While a
// request of the session is under way, it also wants the level of that request.
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
