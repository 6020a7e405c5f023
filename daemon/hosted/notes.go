package hosted

import (
	"encoding/json"
	"fmt"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Of what a server and a client tell each other without being asked, only that
// is passed on by itself which has one place to go to: between a process of
// scope session and its client, if both are of the legacy era. The modern one
// knows no such messages.

// withdrawn handles the server's cancellation of its own request: the request is taken
// back from the client. After a restart of the daemon the cancellation is read once more
// with the request, so that the client is not asked in vain.
func (u *upstream) withdrawn(msg jsonrpc.Message) {
	raw := jsonrpc.ID(jsonrpc.Field(msg.Params, "requestId"))
	if raw == nil {
		return
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	for _, a := range u.m.asks {
		if a.up != u || a.line == nil || a.sent || a.raw.Key() != raw.Key() {
			continue
		}
		if c := u.m.clients[u.owner.Session]; c != nil && c.Era() == dialect.Legacy {
			c.Ask(a.withdrawal(msg.Params))
		}
		u.m.closeAskLocked(a)
		return
	}
}

// withdrawal returns the notification that cancels the request at the client. It has
// the server's params, with the id that the client knows.
func (a *ask) withdrawal(params json.RawMessage) []byte {
	quoted := fmt.Appendf(nil, "%q", a.id)
	told, err := jsonrpc.Rewrite(params, func(key string, value []byte) []byte {
		if key == "requestId" {
			return quoted
		}
		return value
	})
	if err != nil { // a key stands twice
		told = fmt.Appendf(nil, `{"requestId":%s}`, quoted)
	}
	return jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, told)
}

// remarked passes any other notification of the server to the legacy client of its
// session. Without a legacy client it is dropped.
func (u *upstream) remarked(msg jsonrpc.Message) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	c := u.m.clients[u.owner.Session]
	if u.owner.Session == "" || c == nil || c.Era() != dialect.Legacy || msg.Method == mcp.Initialized ||
		msg.Method == mcp.RootsChanged {
		return
	}
	c.Ask(jsonrpc.AppendRequest(nil, nil, msg.Method, msg.Params))
}

// Notified passes a notification of a session's client on to the servers that it
// concerns: that its roots have changed, or its progress with what a server has asked
// for.
func (m *Manager) Notified(session string, msg jsonrpc.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch msg.Method {
	case mcp.RootsChanged:
		for u := range m.processes {
			if u.owner.Session == session && u.state == serving {
				u.noteLocked(msg.Method, msg.Params)
			}
		}
	case mcp.ProgressNote:
		token, _ := mcp.String(jsonrpc.Field(msg.Params, mcp.MetaProgress))
		a := m.asks[token]
		if a == nil || a.token == nil || a.sent || a.up.owner.Session != session {
			return
		}
		params, err := jsonrpc.Rewrite(msg.Params, func(key string, value []byte) []byte {
			if key == mcp.MetaProgress {
				return a.token
			}
			return value
		})
		if err == nil {
			a.up.noteLocked(msg.Method, params)
		}
	}
}

// noteLocked queues a notification to the server, if the server is legacy.
func (u *upstream) noteLocked(method string, params json.RawMessage) {
	if u.era != dialect.Legacy {
		return
	}
	line := jsonrpc.AppendRequest(nil, nil, method, params)
	u.queueWriteLocked(backgroundWrite{
		rec:     calls.Record{Session: u.owner.Session, Kind: calls.KindNote, Name: method},
		compose: func(int64) []byte { return line },
	})
}
