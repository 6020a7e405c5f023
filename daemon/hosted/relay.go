package hosted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// maxAsks bounds the open requests of one process.
const maxAsks = 256

// An ask is an open request of a server to its session's client. It is guarded by the
// manager's mutex.
type ask struct {
	id   string // under which the client sees it
	up   *upstream
	raw  jsonrpc.ID // the server's own
	line []byte     // for the client; nil if the daemon answers itself

	method string
	params json.RawMessage // as the server spelled them
	token  json.RawMessage // for progress, the server's own; nil if it wants none
	shown  *call           // whose client was told of it, by the answer to a request; nil if none was
	by     *call           // whose client has answered it so

	done    bool // the server has its answer, or will never read one
	sent    bool // an answer is on its way
	written bool // it stands in a file
}

// asked handles a request of the server: the daemon answers it, refuses it, or relays
// it to the client. kept says that the request was read from a file, so the worker
// need not keep a line for it.
func (u *upstream) asked(msg jsonrpc.Message, id string, kept bool) {
	raw := jsonrpc.ID(append([]byte(nil), msg.ID...))
	switch msg.Method {
	case mcp.Ping:
		u.reply(msg, raw, id, kept, jsonrpc.AppendResult(nil, raw, json.RawMessage(`{}`)))
		return
	case mcp.RootsList:
		if u.inst.key.scope == Project && u.inst.root != "" {
			u.reply(msg, raw, id, kept, jsonrpc.AppendResult(nil, raw, dialect.Roots(u.inst.root)))
			return
		}
	}
	if u.owner.Session == "" {
		u.reply(msg, raw, id, kept, jsonrpc.AppendError(nil, raw, jsonrpc.CodeUnknownMethod,
			msg.Method+" is for servers of scope \"session\", each of which has one client", nil))
		u.overreaches(msg.Method)
		return
	}
	u.relay(msg, raw, id, kept)
}

// overreaches records that the server asks for what its scope does not offer. The status
// then names the scope that does.
func (u *upstream) overreaches(method string) {
	u.m.mu.Lock()
	s := u.inst.srv
	known := s.beyond != ""
	if !known {
		s.beyond = fault.Quote([]byte(method))
	}
	u.m.mu.Unlock()
	if !known {
		u.log.Warn("server asks for what its scope does not offer", "method", fault.Quote([]byte(method)))
	}
}

// overreachLocked returns a note for the user if the server has asked for what its
// scope does not offer; it names the scope that does.
func (s *server) overreachLocked() []string {
	if s.beyond == "" {
		return nil
	}
	other := Session
	if s.beyond == mcp.RootsList && s.spec.Scope == Shared {
		other = Project
	}
	return []string{fmt.Sprintf("asks its client for %s, which scope %s does not offer: "+
		"\"scope\": %q in its holdline object would", s.beyond, s.spec.Scope, other)}
}

// reply answers a request of the server without asking a client. The request is kept in
// the server's output until the worker has taken the answer.
func (u *upstream) reply(msg jsonrpc.Message, raw jsonrpc.ID, id string, kept bool, line []byte) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if a := u.askLocked(msg, raw, id, kept); a != nil {
		u.m.respondLocked(a, 0, line)
	}
}

// askLocked records a request of the server. It returns nil if the request already
// has an answer or a record, or if too many are open; then it is refused.
func (u *upstream) askLocked(msg jsonrpc.Message, raw jsonrpc.ID, id string, kept bool) *ask {
	if _, ok := u.told[id]; ok || u.m.asks[id] != nil {
		return nil // it has its answer already
	}
	if u.open >= maxAsks || u.askBytes+len(msg.Params) > maxAskBytes {
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
	u.m.asks[id] = a
	if !kept {
		u.marks = append(u.marks, mark{seq: u.stdout.Begin(), ask: a, at: time.Now()})
	}
	return a
}

// relay sends a request of the server to the session's client. The id that the client
// sees is made of the request's place in the output. After a restart of the daemon
// the same request so has the same id, and the client is not asked twice.
func (u *upstream) relay(msg jsonrpc.Message, raw jsonrpc.ID, id string, kept bool) {
	quoted, err := json.Marshal(id)
	if err != nil { // strings encode
		return
	}
	params, token := dialect.SetToken(msg.Params, quoted)
	line := jsonrpc.AppendRequest(nil, quoted, msg.Method, params)
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	a := u.askLocked(msg, raw, id, kept)
	if a == nil {
		return
	}
	a.line, a.token = line, token
	if e, ok := u.early[id]; ok {
		delete(u.early, id)
		a.by = e.by
		u.m.respondLocked(a, e.n, a.answer(e.msg))
		return
	}
	u.putLocked(a)
}

// Respond takes the answer of a session's client, its line n, to the server that asked.
// It reports whether a server did.
func (m *Manager) Respond(session string, n int64, msg jsonrpc.Message) bool {
	id, ok := mcp.String(json.RawMessage(msg.ID))
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.asks[id]
	if ok && a == nil && m.repliedLocked(session, n, id, msg) {
		return true
	}
	if ok && a == nil {
		return m.earlyLocked(session, n, id, msg)
	}
	if !ok || a.up.owner.Session != session {
		return false
	}
	if !a.sent {
		m.respondLocked(a, n, a.answer(msg))
	}
	return true
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
	by  *call // of a modern client: whose request has it
}

// earlyLocked stores an early answer under the request's relayed id.
func (u *upstream) earlyLocked(id string, e early) {
	if u.early == nil {
		u.early = map[string]early{}
	}
	u.early[id] = e
}

// earlyLocked keeps an answer for a process whose earlier output is still unread. It
// returns false if no such process can have asked.
func (m *Manager) earlyLocked(session string, n int64, id string, msg jsonrpc.Message) bool {
	for u := range m.processes {
		if strings.HasPrefix(id, u.id+":") && u.owner.Session == session && !u.caughtUp.isSet() && u.state != exited &&
			len(u.early) < maxAsks {
			u.earlyLocked(id, early{n: n, msg: clone(msg)})
			return true
		}
	}
	return false
}

// dropEarlyLocked drops early answers to which no request was read, and confirms
// their lines to the client.
func (u *upstream) dropEarlyLocked() {
	if c := u.m.clients[u.owner.Session]; c != nil {
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
func (m *Manager) respondLocked(a *ask, n int64, line []byte) {
	a.sent = true
	a.restartClocksLocked()
	session := a.up.owner.Session
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
			m.mu.Lock()
			c := m.clients[session]
			m.closeAskLocked(a)
			m.mu.Unlock()
			if c != nil && n > 0 {
				c.Seen(n)
			}
		},
	})
}

// closeAskLocked forgets a request of the server that needs no answer any more. It
// may be called twice.
func (m *Manager) closeAskLocked(a *ask) {
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
	delete(m.asks, a.id)
	a.up.nudge()
}

// refuseAsksLocked answers the open requests to a session that is over with an error.
func (m *Manager) refuseAsksLocked(session string) {
	for _, a := range m.asks {
		if a.up.owner.Session == session && !a.sent {
			m.respondLocked(a, 0, jsonrpc.AppendError(nil, a.raw, jsonrpc.CodeInternal, "the client is gone", nil))
		}
	}
}

// refuseAsksOfLocked forgets the open requests of a process that has exited.
func (m *Manager) refuseAsksOfLocked(u *upstream) {
	for _, a := range m.asks {
		if a.up == u {
			m.closeAskLocked(a)
		}
	}
}
