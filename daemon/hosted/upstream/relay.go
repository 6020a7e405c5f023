package upstream

import (
	"bytes"
	"encoding/json"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/daemon/hosted/question"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/supervisor"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// asked handles a request of the server, which clients see by id: the daemon answers it, refuses
// it, or relays it to the client. It ignores a known one. inFile says that it was read from a file,
// so the worker need not keep its line. It takes hub.Mu.
func (u *Process) asked(msg jsonrpc.Message, id string, inFile bool) {
	raw := jsonrpc.ID(bytes.Clone(msg.ID))
	own, overreaches := dialect.OwnAnswer(msg.Method, raw, u.Owner.Session, u.Owner.Root)
	if err := mcp.ParamsObject.Check(msg.Params); err != nil {
		own, overreaches = jsonrpc.AppendError(nil, raw, jsonrpc.CodeInvalidParams, "params: "+err.Error(), nil), false
	}
	var line, token []byte // the request for the client, and the server's progress token in it
	if own == nil {
		quoted := jsonrpc.AppendString(nil, id)
		var params json.RawMessage
		params, token = dialect.SetToken(msg.Params, quoted)
		line = jsonrpc.AppendRequest(nil, quoted, msg.Method, params)
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if overreaches {
		u.Instance.Overreaches(msg.Method)
	}
	q := u.openLocked(msg, raw, id, inFile)
	switch {
	case q == nil:
	case own != nil:
		u.respondLocked(q, calls.Record{}, own)
	default:
		q.Line, q.Token = line, token
		u.relayLocked(q)
	}
}

// openLocked records a request of the server, and keeps its line with the worker until the request
// is closed, unless it is in a file. It returns nil if the request is known, or if too many are
// open; then the server gets an error. The caller, the reader, must hold hub.Mu.
func (u *Process) openLocked(msg jsonrpc.Message, raw jsonrpc.ID, id string, inFile bool) *question.Question {
	if u.questions.Knows(id) {
		return nil
	}
	q := u.questions.Add(id, raw, &msg, inFile)
	if q == nil {
		line := jsonrpc.AppendError(nil, raw, jsonrpc.CodeInternal, "too many requests wait for an answer", nil)
		u.writes.Push(background.Write{
			Rec:  calls.Record{Kind: calls.KindRespond, ID: json.RawMessage(raw)},
			Line: line,
		})
		return nil
	}
	if !inFile {
		u.output.Keep(q)
	}
	return q
}

// relayLocked sends a request of the server to the session's client, see [Process.putLocked]. If
// the client has answered it already, since an earlier daemon has sent it, that answer is queued
// for the server instead. The caller must hold hub.Mu.
func (u *Process) relayLocked(q *question.Question) {
	if e, ok := u.questions.TakeEarly(q.ID); ok {
		by := calls.Record{N: e.N, Call: e.Write}
		if e.By != nil {
			by.N = e.By.Key.N
		}
		u.respondLocked(q, by, q.Answer(e.Msg))
		return
	}
	u.putLocked(q)
}

// RespondedLocked queues the answer of a session's client, its line n, to the server's request id.
// If this daemon has yet to read the request again, it keeps the answer. It returns false if it
// does neither: no process of the session can have made the request, or has an answer of another
// line, or too many answers are kept. The caller must hold hub.Mu.
func (h *Hub) RespondedLocked(session string, n int64, id string, msg jsonrpc.Message) bool {
	for u := range h.Processes {
		if u.Owner.Session != session || !u.questions.Owns(id) {
			continue
		}
		q := u.questions.Find(id)
		switch {
		case q == nil:
			return u.mayAskLocked() && u.questions.KeepEarly(id, question.Early{N: n, Msg: msg.Clone()})
		case !q.IsAnswered():
			u.respondLocked(q, calls.Record{N: n}, q.Answer(msg))
		}
		return q.IsAnsweredBy(n) // also if the proxy has sent the line again
	}
	return false
}

// mayAskLocked reports whether requests from before the attach may be unread. hub.Mu must be held.
func (u *Process) mayAskLocked() bool { return !u.hasCaughtUp() && u.State != stage.Exited }

// dropEarlyLocked drops, and confirms, early answers without a request. hub.Mu must be held.
func (u *Process) dropEarlyLocked() {
	lines := u.questions.DropEarly()
	if c := u.hub.Clients[u.Owner.Session]; c != nil {
		for _, n := range lines {
			c.Seen(n)
		}
	}
}

// respondLocked queues the answer line to a request of the server; a full queue drops it. The
// request counts as answered, and is closed once the worker has the write. by has in N the client's
// line with the answer, 0 if the daemon answers itself; that line is confirmed only after the
// worker has the write. If the answer came with a call, by has the call's line and, in Call, its
// write; then the line is not confirmed. The caller must hold hub.Mu.
func (u *Process) respondLocked(q *question.Question, by calls.Record, line []byte) {
	u.questions.Answer(q, by.N)
	u.restartClocksLocked(q)
	rec := calls.Record{
		N: by.N, Call: by.Call, Session: u.Owner.Session,
		Kind: calls.KindRespond, ID: json.RawMessage(q.Raw), Name: q.ID,
	}
	u.writes.Push(background.Write{
		Rec:  rec,
		Line: line,
		Done: func(err error) {
			if err != nil {
				return // the next process, or the next daemon, asks again
			}
			u.hub.Mu.Lock()
			c := u.hub.Clients[u.Owner.Session]
			u.closeLocked(q)
			u.hub.Mu.Unlock()
			if c != nil && by.N > 0 && by.Call == 0 {
				c.Seen(by.N)
			}
		},
	})
}

// refuseLocked queues a JSON-RPC error as the answer. The caller must hold hub.Mu.
func (u *Process) refuseLocked(q *question.Question, code int, why string) {
	u.respondLocked(q, calls.Record{}, jsonrpc.AppendError(nil, q.Raw, code, why, nil))
}

// closeLocked removes a request of the server, if open, and wakes the reader. If a person had yet
// to answer it, the time of the process's open calls starts again. The caller must hold hub.Mu.
func (u *Process) closeLocked(q *question.Question) {
	waited := !q.IsAnswered()
	if !u.questions.Close(q) {
		return
	}
	if waited {
		u.restartClocksLocked(q)
	}
	u.nudge()
}

// restartClocksLocked restarts the time of open calls if q asks a person. hub.Mu must be held.
func (u *Process) restartClocksLocked(q *question.Question) {
	if !q.AsksPerson() {
		return
	}
	for _, c := range u.Calls {
		if c.Phase() == calls.Open {
			u.restartClockLocked(c)
		}
	}
}

// AsksPersonLocked reports whether a person has yet to answer a request of the process. Meanwhile
// the calls of the process do not time out. The caller must hold hub.Mu.
func (u *Process) AsksPersonLocked() bool { return u.questions.AwaitPerson() }

// RefuseAsksLocked queues an error as the answer to each open request for the client of a session
// that is over. The client of a task may still answer. The caller must hold hub.Mu.
func (h *Hub) RefuseAsksLocked(session string) {
	for u := range h.Processes {
		if u.Owner.Session != session || u.HasDetachedLocked() { // the client of a task may answer
			continue
		}
		for _, q := range u.questions.All() {
			if !q.IsAnswered() {
				u.refuseLocked(q, jsonrpc.CodeInternal, "the client is gone")
			}
		}
	}
}

// writeQuestion writes a request of the server, and whose client was told of it, to its file. After
// that the worker need not keep its line; after an error it must. It takes u.asking, and hub.Mu,
// but that not while it writes.
func (u *Process) writeQuestion(q *question.Question) error {
	u.asking.Lock()
	defer u.asking.Unlock()
	u.hub.Mu.Lock()
	var shown question.Shown
	if with := q.With(); with != nil {
		shown.N = with.Key.N
		for write, c := range u.Calls {
			if c.Call == with {
				shown.Call = write
			}
		}
	}
	u.hub.Mu.Unlock()
	line := jsonrpc.AppendRequest(nil, q.Raw, q.Method, q.Params)
	err := question.Write(u.Dir, question.FileName(q.ID), line, shown)
	faultpoint.At("hosted.askwritten")
	if err == nil {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.questions.Written(q)
	}
	return err
}

// reopen handles the requests that an earlier daemon has written to files as if they were read now,
// or has the files removed if the process is dead. The reader calls it first. It takes hub.Mu.
func (u *Process) reopen(w *supervisor.Worker) {
	state := w.Status().State
	u.hub.Mu.Lock()
	kept := u.questions.Kept(state == supervisor.Ready || state == supervisor.Recovering)
	u.hub.Mu.Unlock()
	for _, k := range kept {
		u.asked(k.Msg, question.ID(u.ID, k.Seq, k.Nth), true)
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.questions.Reopened()
}
