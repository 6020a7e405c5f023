package upstream

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// MaxAsks bounds the open requests of one process.
const MaxAsks = 256

// An ask is an open request of a server to its session's client. It is guarded by the
// manager's mutex.
type ask struct {
	id   string // under which the client sees it
	up   *Process
	raw  jsonrpc.ID // the server's own
	line []byte     // for the client; nil if the daemon answers itself

	method string
	params json.RawMessage // as the server spelled them
	token  json.RawMessage // for progress, the server's own; nil if it wants none
	shown  *Call           // whose client was told of it, by the answer to a request; nil if none was
	by     *Call           // whose client has answered it so

	done    bool // the server has its answer, or will never read one
	sent    bool // an answer is on its way
	written bool // it stands in a file
}

// asked handles a request of the server: the daemon answers it, refuses it, or relays
// it to the client. kept says that the request was read from a file, so the worker
// need not keep a line for it.
func (u *Process) asked(msg jsonrpc.Message, id string, kept bool) {
	raw := jsonrpc.ID(append([]byte(nil), msg.ID...))
	switch msg.Method {
	case mcp.Ping:
		u.reply(msg, raw, id, kept, jsonrpc.AppendResult(nil, raw, json.RawMessage(`{}`)))
		return
	case mcp.RootsList:
		if u.Owner.Root != "" {
			u.reply(msg, raw, id, kept, jsonrpc.AppendResult(nil, raw, dialect.Roots(u.Owner.Root)))
			return
		}
	}
	if u.Owner.Session == "" {
		u.reply(msg, raw, id, kept, jsonrpc.AppendError(nil, raw, jsonrpc.CodeUnknownMethod,
			msg.Method+" is for servers of scope \"session\", each of which has one client", nil))
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.Instance.Overreaches(msg.Method)
		return
	}
	u.relay(msg, raw, id, kept)
}

// reply answers a request of the server without asking a client. The request is kept in
// the server's output until the worker has taken the answer.
func (u *Process) reply(msg jsonrpc.Message, raw jsonrpc.ID, id string, kept bool, line []byte) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if a := u.askLocked(msg, raw, id, kept); a != nil {
		u.hub.respondLocked(a, 0, line)
	}
}

// askLocked records a request of the server. It returns nil if the request already
// has an answer or a record, or if too many are open; then it is refused.
func (u *Process) askLocked(msg jsonrpc.Message, raw jsonrpc.ID, id string, kept bool) *ask {
	if _, ok := u.told[id]; ok || u.hub.Asks[id] != nil {
		return nil // it has its answer already
	}
	if u.open >= MaxAsks || u.askBytes+len(msg.Params) > maxAskBytes {
		line := jsonrpc.AppendError(nil, raw, jsonrpc.CodeInternal, "too many requests wait for an answer", nil)
		u.queueWriteLocked(backgroundWrite{
			rec:     calls.Record{Kind: calls.KindRespond, ID: json.RawMessage(raw)},
			compose: func(int64) []byte { return line },
		})
		return nil
	}
	a := &ask{id: id, up: u, raw: raw, method: msg.Method, params: bytes.Clone(msg.Params), written: kept}
	u.open++
	u.askBytes += len(a.params)
	u.hub.Asks[id] = a
	if !kept {
		u.marks = append(u.marks, mark{seq: u.stdout.Begin(), ask: a, at: time.Now()})
	}
	return a
}

// relay sends a request of the server to the session's client. The id that the client
// sees is made of the request's place in the output. After a restart of the daemon
// the same request so has the same id, and the client is not asked twice.
func (u *Process) relay(msg jsonrpc.Message, raw jsonrpc.ID, id string, kept bool) {
	quoted, err := json.Marshal(id)
	if err != nil { // strings encode
		return
	}
	params, token := dialect.SetToken(msg.Params, quoted)
	line := jsonrpc.AppendRequest(nil, quoted, msg.Method, params)
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	a := u.askLocked(msg, raw, id, kept)
	if a == nil {
		return
	}
	a.line, a.token = line, token
	if e, ok := u.early[id]; ok {
		delete(u.early, id)
		a.by = e.by
		u.hub.respondLocked(a, e.n, a.answer(e.msg))
		return
	}
	u.putLocked(a)
}

// answer returns the line that gives the client's answer to the server.
func (a *ask) answer(msg jsonrpc.Message) []byte {
	if msg.Error != nil {
		return jsonrpc.AppendFailure(nil, a.raw, msg.Error)
	}
	return jsonrpc.AppendResult(nil, a.raw, msg.Result)
}

// An early is a client's answer that arrived before this daemon has read the server's
// request again.
type early struct {
	n   int64
	msg jsonrpc.Message
	by  *Call // of a modern client: whose request has it
}

// earlyLocked stores an early answer under the request's relayed id.
func (u *Process) earlyLocked(id string, e early) {
	if u.early == nil {
		u.early = map[string]early{}
	}
	u.early[id] = e
}

// earlyLocked keeps an answer for a process whose earlier output is still unread. It
// returns false if no such process can have asked.
func (h *Hub) earlyLocked(session string, n int64, id string, msg jsonrpc.Message) bool {
	for u := range h.Processes {
		if strings.HasPrefix(id, u.ID+":") && u.Owner.Session == session && !u.caughtUp.isSet() && u.State != Exited &&
			len(u.early) < MaxAsks {
			u.earlyLocked(id, early{n: n, msg: CloneMessage(msg)})
			return true
		}
	}
	return false
}

// dropEarlyLocked drops early answers to which no request was read, and confirms
// their lines to the client.
func (u *Process) dropEarlyLocked() {
	if c := u.hub.Clients[u.Owner.Session]; c != nil {
		for _, e := range u.early {
			if e.n > 0 {
				c.Seen(e.n)
			}
		}
	}
	u.early = nil
}

// respondLocked queues the answer to a request of the server. n is the client's line,
// or 0 if the daemon answers itself; it is confirmed to the client only after the
// worker has the write.
func (h *Hub) respondLocked(a *ask, n int64, line []byte) {
	a.sent = true
	a.restartClocksLocked()
	session := a.up.Owner.Session
	rec := calls.Record{N: n, Session: session, Kind: calls.KindRespond, ID: json.RawMessage(a.raw), Name: a.id}
	if a.by != nil {
		rec.N, rec.Call = a.by.Key.N, a.by.write
	}
	a.up.queueWriteLocked(backgroundWrite{
		rec:     rec,
		compose: func(int64) []byte { return line },
		done: func(err error) {
			if err != nil {
				return // the next process, or the next daemon, asks again
			}
			h.Mu.Lock()
			c := h.Clients[session]
			h.closeAskLocked(a)
			h.Mu.Unlock()
			if c != nil && n > 0 {
				c.Seen(n)
			}
		},
	})
}

// closeAskLocked forgets a request of the server that needs no answer any more. It
// may be called twice.
func (h *Hub) closeAskLocked(a *ask) {
	if a.done {
		return
	}
	a.done = true
	if !a.sent {
		a.restartClocksLocked()
	}
	if a.written {
		a.up.askFiles = append(a.up.askFiles, a.id)
	}
	a.up.open--
	a.up.askBytes -= len(a.params)
	delete(h.Asks, a.id)
	a.up.nudge()
}

// RefuseAsksLocked answers the open requests to a session that is over with an error.
func (h *Hub) RefuseAsksLocked(session string) {
	for _, a := range h.Asks {
		if a.up.Owner.Session == session && !a.sent {
			h.respondLocked(a, 0, jsonrpc.AppendError(nil, a.raw, jsonrpc.CodeInternal, "the client is gone", nil))
		}
	}
}

// refuseAsksOfLocked forgets the open requests of a process that has exited.
func (h *Hub) refuseAsksOfLocked(u *Process) {
	for _, a := range h.Asks {
		if a.up == u {
			h.closeAskLocked(a)
		}
	}
}

// RespondedLocked passes the answer of a session's client, its line n, to the server
// whose request has that id. It reports whether there is or may be one.
func (h *Hub) RespondedLocked(session string, n int64, id string, msg jsonrpc.Message) bool {
	a := h.Asks[id]
	if a == nil {
		return h.earlyLocked(session, n, id, msg)
	}
	if a.up.Owner.Session != session {
		return false
	}
	if !a.sent {
		h.respondLocked(a, n, a.answer(msg))
	}
	return true
}
