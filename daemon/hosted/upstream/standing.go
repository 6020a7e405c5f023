package upstream

import (
	"context"
	"encoding/json"
	"fmt"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/daemon/hosted/subscription"
	"holdline/daemon/standing"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Process is the [standing.Process] of its standing requests.
var _ standing.Process = (*Process)(nil)

// An inquiry is a request of the daemon's own that waits for its answer.
type inquiry struct {
	take  func(jsonrpc.Message) // called once, without the hub's mutex
	stays bool                  // its record is needed although it was answered
}

// Inquire makes a request whose record stays, as [standing.Process] says. made is
// called with the hub's mutex held, before the worker gets the write, so that an
// early answer finds its place. take is called without the mutex.
func (u *Process) Inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
	made func(write int64), take func(msg jsonrpc.Message),
) error {
	var write int64
	_, err := u.Worker().WriteFunc(ctx, rec, func(id int64) ([]byte, error) {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		write = id
		u.internal[id] = inquiry{take: take, stays: true}
		made(id)
		return append(jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), '\n'), nil
	})
	if err == nil {
		return nil
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	delete(u.internal, write)
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

// Desired returns what the sessions that share the process want of it. It is
// provisional as long as sessions of an earlier daemon may come back: what they want
// is not known yet.
func (u *Process) Desired() standing.Desired {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	d := standing.Desired{Serving: u.State == Serving, Provisional: u.Restored && !u.hub.Expected}
	for session, c := range u.hub.Clients {
		if u.Instance.Uses(session, c) {
			d.Level = mcp.Verbose(d.Level, c.Level())
		}
	}
	return d
}

// logged passes a log message of the server to the sessions that share the process
// and want messages of its level. A session wants the level that it has set. While a
// request of the session is under way, it also wants the level of that request.
func (u *Process) logged(msg jsonrpc.Message) {
	level, _ := mcp.String(jsonrpc.Field(msg.Params, "level"))
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	asked := map[string]bool{}
	for _, c := range u.Calls {
		if c.Phase() == calls.Open && c.Claim().Wanted() {
			asked[c.Key.Session] = asked[c.Key.Session] || mcp.Covers(c.Level, level)
		}
	}
	for session, c := range u.hub.Clients {
		in, begun := asked[session]
		switch {
		case u.era == dialect.Modern && !begun: // it speaks of requests only
		case u.Instance.Uses(session, c):
			c.Log(level, msg.Params, in)
		}
	}
}

// Tuned makes processes reconcile their log level, since a session wants messages of
// another level than before.
func (h *Hub) Tuned(session string) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	c := h.Clients[session]
	for u := range h.Processes {
		if c != nil && u.Instance.Uses(session, c) {
			u.Standing.Wake()
		}
	}
}

// URIs returns the resources to which sessions of the process have subscribed.
func (u *Process) URIs() map[string]struct{} {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	uris := map[string]struct{}{}
	u.eachSubscriptionLocked(func(_ tool.Client, s *subscription.Subscription) { uris[s.URI] = struct{}{} })
	return uris
}

// eachSubscriptionLocked calls f for each subscription that this process serves and that
// the rules still allow.
func (u *Process) eachSubscriptionLocked(f func(c tool.Client, s *subscription.Subscription)) {
	for session, c := range u.hub.Clients {
		if !u.hub.Subscriptions.Has(session) || !u.Instance.Uses(session, c) {
			continue
		}
		for s := range u.hub.Subscriptions.Of(session, c.Caller().Identity, u.Server) {
			f(c, s)
		}
	}
}

// Agreed notes that the process notifies of changes to a resource from now on.
// Sessions whose subscription was in force before are notified at once: a change
// while no process watched the resource would otherwise be lost. A notification
// without a change does no harm.
func (u *Process) Agreed(uri string) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	params := mcp.OfResource(uri)
	u.eachSubscriptionLocked(func(c tool.Client, s *subscription.Subscription) {
		if s.URI != uri {
			return
		}
		if s.Hold() {
			c.Updated(s.Holder, params)
		}
	})
}

// updated notifies the subscribers of a resource that it has changed. Subscribers of
// a resource that contains it are notified, too, each holder once.
func (u *Process) updated(msg jsonrpc.Message) {
	uri, ok := mcp.String(jsonrpc.Field(msg.Params, "uri"))
	if !ok {
		return
	}
	params, err := dialect.DropSubscription(msg.Params)
	if err != nil {
		return
	}
	type place struct {
		c      tool.Client
		holder string
	}
	told := map[place]struct{}{}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.eachSubscriptionLocked(func(c tool.Client, s *subscription.Subscription) {
		at := place{c, s.Holder}
		if _, ok := told[at]; ok || !dialect.Covers(s.URI, uri) {
			return
		}
		told[at] = struct{}{}
		c.Updated(s.Holder, params)
	})
}
