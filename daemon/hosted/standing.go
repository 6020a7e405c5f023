package hosted

import (
	"context"
	"encoding/json"
	"fmt"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/standing"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// An upstream is the [standing.Process] of its standing requests.
var _ standing.Process = (*upstream)(nil)

// An inquiry is a request of the daemon's own that waits for its answer.
type inquiry struct {
	take  func(jsonrpc.Message) // called once, without the manager's mutex
	stays bool                  // its record is needed although it was answered
}

// reconcileLocked makes all processes compare the log levels and subscriptions that
// sessions want with those that the process has.
func (m *Manager) reconcileLocked() {
	for u := range m.processes {
		u.standing.Wake()
	}
}

// Inquire makes a request whose record stays, as [standing.Process] says. made is
// called with the manager's mutex held, before the worker gets the write, so that an
// early answer finds its place. take is called without the mutex.
func (u *upstream) Inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
	made func(write int64), take func(msg jsonrpc.Message),
) error {
	var write int64
	_, err := u.worker().WriteFunc(ctx, rec, func(id int64) ([]byte, error) {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		write = id
		u.internal[id] = inquiry{take: take, stays: true}
		made(id)
		return append(jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), '\n'), nil
	})
	if err == nil {
		return nil
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	delete(u.internal, write)
	return err
}

// CancelListen tells a modern process to end a subscriptions/listen request.
func (u *upstream) CancelListen(write int64) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	delete(u.internal, write)
	id := jsonrpc.IntID(write)
	line := jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, fmt.Appendf(nil, `{"requestId":%s}`, id))
	u.queueWriteLocked(backgroundWrite{
		rec:     calls.Record{Kind: calls.KindCancel, Name: mcp.Listen, ID: json.RawMessage(id)},
		compose: func(int64) []byte { return line },
	})
}

// Forget drops the records of these writes. The reader does that later.
func (u *upstream) Forget(writes ...int64) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	u.forget = append(u.forget, writes...)
	u.nudge()
}

// Done returns a channel that is closed when the process has exited.
func (u *upstream) Done() <-chan struct{} { return u.exited }

// Desired returns what the sessions that share the process want of it. It is
// provisional as long as sessions of an earlier daemon may come back: what they want
// is not known yet.
func (u *upstream) Desired() standing.Desired {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	d := standing.Desired{Serving: u.state == serving, Provisional: u.restored && !u.m.expected}
	for session, c := range u.m.clients {
		if u.inst.usedByLocked(session, c) {
			d.Level = mcp.Verbose(d.Level, c.Level())
		}
	}
	return d
}

// logged passes a log message of the server to the sessions that share the process
// and want messages of its level. A session wants the level that it has set. While a
// request of the session is under way, it also wants the level of that request.
func (u *upstream) logged(msg jsonrpc.Message) {
	level, _ := mcp.String(jsonrpc.Field(msg.Params, "level"))
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	asked := map[string]bool{}
	for _, c := range u.calls {
		if c.Phase() == calls.Open && c.Claim().Wanted() {
			asked[c.Key.Session] = asked[c.Key.Session] || mcp.Covers(c.level, level)
		}
	}
	for session, c := range u.m.clients {
		in, begun := asked[session]
		switch {
		case u.era == dialect.Modern && !begun: // it speaks of requests only
		case u.inst.usedByLocked(session, c):
			c.Log(level, msg.Params, in)
		}
	}
}

// Tuned makes processes reconcile their log level, since a session wants messages of
// another level than before.
func (m *Manager) Tuned(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[session]
	for u := range m.processes {
		if c != nil && u.inst.usedByLocked(session, c) {
			u.standing.Wake()
		}
	}
}
