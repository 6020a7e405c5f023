package upstream

import (
	"encoding/json"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/daemon/hosted/stage"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Of what a server and a client tell each other without being asked, only that is passed on by
// itself which has one place to go to: between a process of scope session and its client, if both
// are of the legacy era. The modern one knows no such messages.

// withdrawn handles the server's cancellation of its own request: it closes the request and tells a
// legacy client. After a restart of the daemon the cancellation is read once more with the request,
// so that the client is not asked in vain. It takes hub.Mu.
func (u *Process) withdrawn(msg jsonrpc.Message) {
	raw := jsonrpc.ID(jsonrpc.Field(msg.Params, "requestId"))
	if raw == nil {
		return
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	q := u.questions.FindRaw(raw)
	if q == nil {
		return
	}
	if c := u.hub.Clients[u.Owner.Session]; c != nil && c.Era() == dialect.Legacy {
		c.Ask(q.Withdrawal(msg.Params))
	}
	for _, c := range u.Calls {
		if c.Call == q.With() {
			c.interrupt() // the client of its task need not answer any more
		}
	}
	u.closeLocked(q)
}

// remarked passes any other notification to the session's legacy client, if any. It takes hub.Mu.
func (u *Process) remarked(msg jsonrpc.Message) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	c := u.hub.Clients[u.Owner.Session]
	if u.Owner.Session == "" || c == nil || c.Era() != dialect.Legacy || msg.Method == mcp.Initialized ||
		msg.Method == mcp.RootsChanged {
		return
	}
	c.Ask(jsonrpc.AppendRequest(nil, nil, msg.Method, msg.Params))
}

// Notified queues a notification of a session's client for the legacy servers that it concerns:
// that its roots have changed, for all that serve this session alone, or its progress with what a
// server has asked for, for that server. Any other is dropped. It takes hub.Mu.
func (h *Hub) Notified(session string, msg jsonrpc.Message) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	switch msg.Method {
	case mcp.RootsChanged:
		for u := range h.Processes {
			if u.Owner.Session == session && u.State == stage.Serving {
				u.noteLocked(msg.Method, msg.Params)
			}
		}
	case mcp.ProgressNote:
		token, _ := mcp.String(jsonrpc.Field(msg.Params, mcp.MetaProgress))
		for u := range h.Processes {
			if q := u.questions.Find(token); q != nil && u.Owner.Session == session {
				if params := q.Progress(msg.Params); params != nil {
					u.noteLocked(msg.Method, params)
				}
			}
		}
	}
}

// noteLocked queues a notification for a legacy server; a full queue drops it. hub.Mu must be held.
func (u *Process) noteLocked(method string, params json.RawMessage) {
	if u.era != dialect.Legacy {
		return
	}
	u.writes.Push(background.Write{
		Rec:  calls.Record{Session: u.Owner.Session, Kind: calls.KindNote, Name: method},
		Line: jsonrpc.AppendRequest(nil, nil, method, params),
	})
}
