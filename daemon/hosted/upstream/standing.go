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

// Inquire writes a request of the daemon's own whose record stays. made is called with the number
// of the write and with hub.Mu held, before the worker gets the write; take later with the answer,
// without hub.Mu, but not after an error. The caller must not hold hub.Mu.
func (u *Process) Inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
	made func(write int64), take func(msg jsonrpc.Message),
) error {
	_, err := u.inquire(ctx, rec, method, params, inquiry{take: take, stays: true}, made)
	return err
}

// CancelListen queues a cancellation of the subscriptions/listen request that has that write, which
// a full queue drops, and has its answers ignored. It takes hub.Mu.
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

// Forget has the reader drop the records of these writes later. It takes hub.Mu.
func (u *Process) Forget(writes ...int64) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.records.Forget(writes...)
	u.nudge()
}

// Done returns a channel that is closed when the process has exited.
func (u *Process) Done() <-chan struct{} { return u.Exited }

// Desired returns whether the process serves. That is provisional while sessions of an earlier
// daemon may come back. It takes hub.Mu.
func (u *Process) Desired() standing.Desired {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return standing.Desired{Serving: u.State == stage.Serving, Provisional: u.Restored && !u.hub.Expected}
}

// Level returns the most verbose log level that a session wants, or "". It takes hub.Mu.
func (u *Process) Level() string {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.audience.Level()
}

// URIs returns the resources to which sessions of the process have subscribed. It takes hub.Mu.
func (u *Process) URIs() map[string]struct{} {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.audience.URIs()
}

// Agreed records that the process notifies of changes to a resource from now on. Earlier
// subscribers get a notification at once. It takes hub.Mu.
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

// logged passes a log message to the sessions that want its level: the one they have set, or that
// of a request under way; a modern server only knows the latter. It takes hub.Mu.
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
