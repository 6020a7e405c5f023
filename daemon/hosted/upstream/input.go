package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/question"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
)

// A legacy server sends requests to its client during a call. A modern client takes no
// requests: its call is answered with what the server asks, and goes on when the client
// calls again with the answers. In between the call is suspended: the server works on
// it, and no request of the client waits for it.

// maxSuspended bounds the calls of one session that are suspended.
const maxSuspended = 64

// putLocked sends a request of the server to its session's client: to a legacy one at once, to a
// modern one as the answer to a call, later if its era is not known yet. hub.Mu must be held.
func (u *Process) putLocked(q *question.Question) {
	c := u.hub.Clients[u.Owner.Session]
	if c == nil {
		u.InterruptLocked() // a task may ask for it
		return
	}
	who := c.Caller()
	switch era := c.Era(); {
	case who.Guest != "":
		u.refuseLocked(q, jsonrpc.CodeUnknownMethod, "the client is a guest, and is not asked "+q.Method)
	case era == dialect.Legacy && !dialect.Knows(c.Revision(), q.Method):
		u.refuseLocked(q, jsonrpc.CodeUnknownMethod, "the client speaks MCP "+c.Revision()+", which has no "+q.Method)
	case era == dialect.Legacy:
		c.Ask(q.Line)
		faultpoint.At("hosted.asked")
	case era == dialect.Modern:
		u.InterruptLocked()
	}
}

// InterruptLocked wakes the oldest call whose client waits, or that is a task: its client gets the
// open requests of the server as the answer. The server gets an error for requests that this client
// cannot be asked, or for which too many calls are suspended. If no such call is under way, all get
// one, unless a client may still come back for a call. It does nothing if output from before the
// attach is still unread, or the client is not modern and no call is a task. hub.Mu must be held.
func (u *Process) InterruptLocked() {
	if !u.questions.AwaitClient() || !u.hasCaughtUp() ||
		u.hub.eraLocked(u.Owner.Session) != dialect.Modern && !u.HasDetachedLocked() {
		return
	}
	oldest, others := u.oldestLocked()
	for _, q := range u.questions.ToShow() {
		to := oldest
		if with := q.With(); with != nil {
			if to = u.awaitedLocked(with); to == nil {
				continue // its client is about to repeat its request
			}
		}
		switch {
		case to != nil && !to.canAskLocked(q.Method):
			u.refuseLocked(q, jsonrpc.CodeUnknownMethod, "the client does not offer "+q.Method)
		case to != nil && !to.Claim().IsDetached() && u.hub.suspendedLocked(u.Owner.Session) >= maxSuspended:
			u.refuseLocked(q, jsonrpc.CodeInternal, "too many requests of the client wait for its answers")
		case to != nil:
			to.interrupt()
		case !others:
			u.refuseLocked(q, jsonrpc.CodeInternal,
				"no request of the client is under way with which it could be asked")
		}
	}
}

// oldestLocked returns the oldest open call of the process that is a task or whose client waits, or
// nil; a task that asks its client something comes after all others. others reports whether there
// are open calls whose client does not wait now: suspended ones, or ones that it is about to repeat
// after a restart of the daemon. The caller must hold hub.Mu.
func (u *Process) oldestLocked() (oldest *Call, others bool) {
	asks := false // oldest does
	for _, c := range u.Calls {
		switch {
		case c.Phase() != calls.Open || c.Up != u:
		case c.Claim() != calls.Awaited && (!c.Claim().IsDetached() || c.Capabilities == nil):
			others = true // or what its client can be asked is not known yet
		default:
			busy := u.questions.HasShown(c.Call)
			if oldest == nil || asks && !busy || asks == busy && c.write < oldest.write {
				oldest, asks = c, busy
			}
		}
	}
	return oldest, others
}

// awaitedLocked returns the call with that state if its client waits for the answer, or nil. The
// caller must hold hub.Mu.
func (u *Process) awaitedLocked(with *calls.Call) *Call {
	for _, c := range u.Calls {
		if c.Call == with && c.Claim() == calls.Awaited {
			return c
		}
	}
	return nil
}

// toAskLocked returns what the server asks the client of a call, an open one of this process: its
// own requests and, if it is the oldest one, those that belong to no call. The caller must hold
// hub.Mu.
func (u *Process) toAskLocked(c *Call) []*question.Question {
	u.InterruptLocked() // it refuses what cannot be asked
	oldest, _ := u.oldestLocked()
	return u.questions.Of(c.Call, oldest == c)
}

// suspendedLocked returns how many calls of a session are suspended. hub.Mu must be held.
func (h *Hub) suspendedLocked(session string) int {
	n := 0
	for key, c := range h.Calls {
		if key.Session == session && c.Claim().IsSuspended() {
			n++
		}
	}
	return n
}

// canAskLocked reports whether the call's client can be asked that method. hub.Mu must be held.
func (c *Call) canAskLocked(method string) bool {
	capability := dialect.CapabilityFor(method)
	return capability != "" && jsonrpc.Field(c.Capabilities, capability) != nil
}

// interrupt wakes the goroutine that waits for the call. It never blocks, and needs no lock.
func (c *Call) interrupt() {
	select {
	case c.Asked <- struct{}{}:
	default:
	}
}

// Suspend suspends the call c of the request rc, and returns the answer with the questions, if its
// server asks something of its client. Otherwise it returns nil, nil, as when the client is not
// modern, the call is not open, or another call gets the questions. That they were asked by this
// call is on disk then: should this daemon die, the next one asks them by no other. After an error
// nothing was asked, and the call goes on. Suspend takes hub.Mu, but not while it writes.
func (h *Hub) Suspend(rc *tool.RemoteCall, c *Call) (json.RawMessage, error) {
	if !rc.Modern {
		return nil, nil
	}
	u, asks, answer, err := h.suspend(c)
	for _, q := range asks {
		if err = u.writeQuestion(q); err != nil {
			break
		}
	}
	if len(asks) == 0 {
		return nil, err
	}
	u.nudge() // one may be answered already
	faultpoint.At("hosted.shown")
	if err == nil {
		return answer, nil
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.unparkLocked(c)
	c.Demand(calls.Ask)
	return nil, fmt.Errorf("writing down what a server asks: %w", err)
}

// suspend is [Hub.Suspend] but for the files of asks, requests to the process u.
func (h *Hub) suspend(c *Call) (u *Process, asks []*question.Question, answer json.RawMessage, err error) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	u = c.Up
	if u == nil || u.Owner.Session != c.Key.Session || c.Phase() != calls.Open || !u.hasCaughtUp() {
		return nil, nil, nil, nil
	}
	if asks = u.toAskLocked(c); len(asks) == 0 {
		return nil, nil, nil, nil
	}
	if answer, err = question.Required(asks, dialect.StatePrefix+c.RefLocked()); err != nil {
		return nil, nil, nil, err
	}
	u.questions.Show(c.Call, asks)
	h.parkLocked(c)
	return u, asks, answer, nil
}

// TakeAsks returns what a legacy server asks during a detached call, by the ids of the requests;
// then the caller must call [Hub.Answered] next. left is closed when the call is not open any more.
// Both are nil if there is nothing for this call. known is false if that may change when more
// of what the server has said is read. TakeAsks takes hub.Mu.
func (h *Hub) TakeAsks(c *Call) (requests map[string]json.RawMessage, left <-chan struct{}, known bool) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	u := c.Up
	if u == nil || c.Phase() != calls.Open || !u.hasCaughtUp() {
		return nil, nil, false
	}
	if u.Owner.Session != c.Key.Session {
		return nil, nil, true
	}
	asks := u.toAskLocked(c)
	if len(asks) == 0 {
		return nil, nil, true
	}
	select {
	case <-c.Asked: // these are among them
	default:
	}
	u.questions.Show(c.Call, asks)
	requests = map[string]json.RawMessage{}
	for _, q := range asks {
		requests[q.ID] = q.Request()
	}
	return requests, c.Left(), true
}

// AskedLocked records that an earlier daemon has told the client of the task of a call of requests
// of the server, by their ids. The caller must hold hub.Mu.
func (c *Call) AskedLocked(ids []string) {
	for _, id := range ids {
		if c.Up != nil && c.Up.questions.Owns(id) {
			c.Up.questions.WasShown(c.Call, id)
		}
	}
}

// Answered queues the client's answers, by request id, for the server. It takes hub.Mu.
func (h *Hub) Answered(c *Call, answers map[string]json.RawMessage) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for id, answer := range answers {
		h.tellLocked(c, id, answer)
	}
}

// parkLocked suspends a call, whose client is shown what the server asks. A goroutine of the hub
// drops the call if the client has not continued it within the longest time of a call; none is
// started if the hub is closed. The caller must hold hub.Mu.
func (h *Hub) parkLocked(c *Call) {
	h.unparkLocked(c)
	back := make(chan struct{})
	c.Demand(calls.Suspend)
	c.back = back
	if h.Closed {
		return // the next daemon sees to it
	}
	_, wait := c.Up.Instance.Limits() // the client's user is asked meanwhile
	h.WG.Go(func() {
		if h.Pause(wait, back) != nil {
			return
		}
		h.Mu.Lock()
		defer h.Mu.Unlock()
		h.ContainLocked(c.Up, "gave up a suspended call", func() {
			if u := c.Up; c.back == back && c.Claim().IsSuspended() {
				h.DropLocked(c)
				u.InterruptLocked()
			}
		})
	})
}

// unparkLocked ends the wait for a suspended call, so that it is not given up. The caller must hold
// hub.Mu, and changes the claim.
func (h *Hub) unparkLocked(c *Call) {
	if c.back == nil {
		return
	}
	close(c.back)
	c.back = nil
}

// ReviewLocked asks the owner o whether it wants the answer to a call, and drops the call if not.
// The caller must hold hub.Mu.
func (h *Hub) ReviewLocked(c *Call, o calls.Owner) {
	if c.Review(o) {
		h.DropLocked(c)
	}
}

// MetLocked acts on the era of a session's client, once known. It sends the requests that wait. A
// legacy client never continues a call: its suspended ones are dropped. hub.Mu must be held.
func (h *Hub) MetLocked(session string) {
	era := h.eraLocked(session)
	for key, c := range h.Calls {
		if key.Session == session && c.Claim().IsSuspended() && era == dialect.Legacy { // it answers by itself
			h.DropLocked(c)
		}
	}
	for u := range h.Processes {
		if u.Owner.Session != session {
			continue
		}
		for _, q := range u.questions.Waiting() {
			u.putLocked(q)
		}
	}
}

// Resumed gives a suspended call, named by worker and write, to the request rc that continues it,
// with its full time again, and queues the answers in rc for the server. It returns a fault, and
// changes nothing, if the call is unknown, over, or not one of this session and of the operation o
// ([fault.OutcomeUnknown]), or awaited already ([fault.InvalidInput]). It takes hub.Mu.
func (h *Hub) Resumed(o *listing.Offer, rc *tool.RemoteCall, worker string, write int64) (*Call, error) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	var c *Call
	for u := range h.Processes {
		if u.ID == worker {
			c = u.Calls[write]
		}
	}
	switch {
	case c == nil, c.Key.Session != rc.Caller.Session, c.Name != o.Own, c.Phase() == calls.Over:
		return nil, fault.New(fault.OutcomeUnknown, fault.Server, o.Operation(),
			"the call that these answers are for is not under way any more: whether it had its effect is not known")
	case c.Claim() == calls.Awaited:
		return nil, fault.New(fault.InvalidInput, fault.Server, o.Operation(),
			"params.requestState was used already, by a request under way")
	}
	h.unparkLocked(c)
	h.RemoveLocked(c)
	c.Key.N = rc.N
	c.Demand(calls.Ask)
	c.Up.restartClockLocked(c) // it is another request
	h.Calls[c.Key] = c
	// none, if it is no object
	_ = jsonrpc.Fields(jsonrpc.Field(rc.Params, "inputResponses"), func(id string, result []byte) error {
		h.tellLocked(c, id, result)
		return nil
	})
	return c, nil
}

// tellLocked queues an answer of a call's client to the server's request id, or keeps it until that
// is read again. If that is unknown, or answered, it does nothing. The caller must hold hub.Mu.
func (h *Hub) tellLocked(c *Call, id string, result []byte) {
	u := c.Up
	if u == nil || !u.questions.Owns(id) {
		return // it was never made
	}
	q := u.questions.Find(id)
	switch {
	case q == nil && !u.questions.HasAnswer(id) && u.mayAskLocked():
		msg := jsonrpc.Message{Result: bytes.Clone(result)}
		u.questions.KeepEarly(id, question.Early{Msg: msg, By: c.Call, Write: c.write})
	case q != nil && !q.IsAnswered():
		u.respondLocked(q, calls.Record{N: c.Key.N, Call: c.write}, q.Answer(jsonrpc.Message{Result: result}))
	}
}
