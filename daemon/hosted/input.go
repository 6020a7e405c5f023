package hosted

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
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

// strangeState answers a request whose state begins like one of ours, and is
// none: it must not begin a call, since it was to go on with one.
const strangeState = `{"code":-32602,"message":"params.requestState is not as it was given"}`

// eraLocked is the era of a session's client; "" if it is not known.
func (m *Manager) eraLocked(session string) string {
	if c := m.clients[session]; c != nil {
		return c.Era()
	}
	return ""
}

// putLocked takes a request of the server to its session's client: at once if
// that is legacy, with one of its calls if it is modern, and later if its era is
// not known.
func (u *upstream) putLocked(a *ask) {
	c := u.m.clients[u.owner.Session]
	if c == nil {
		return
	}
	switch c.Era() {
	case dialect.Legacy:
		c.Ask(a.line)
		faultpoint.At("hosted.asked")
	case dialect.Modern:
		u.interruptLocked()
	}
}

// interruptLocked has a call whose client waits answered with what the server
// asks: the oldest one. If there is none the server is refused, unless a call
// is under way whose client may still come for it.
func (u *upstream) interruptLocked() {
	if !u.caughtUp.isSet() || u.m.eraLocked(u.owner.Session) != dialect.Modern {
		return
	}
	oldest, others := u.oldestLocked()
	for _, a := range u.unshownLocked() {
		switch {
		case oldest != nil && !oldest.able(a.method):
			u.refuseLocked(a, jsonrpc.CodeUnknownMethod, "the client does not offer "+a.method)
		case oldest != nil && u.m.suspendedLocked(u.owner.Session) >= maxSuspended:
			u.refuseLocked(a, jsonrpc.CodeInternal, "too many requests of the client wait for its answers")
		case oldest != nil:
			oldest.interrupt()
		case !others:
			u.refuseLocked(a, jsonrpc.CodeInternal,
				"no request of the client is under way with which it could be asked")
		}
	}
}

func (u *upstream) refuseLocked(a *ask, code int, why string) {
	u.m.respondLocked(a, 0, jsonrpc.AppendError(nil, a.raw, code, why, nil))
}

// oldestLocked is the oldest call under way whose client waits, and whether
// there are others: suspended, or by a line that the client repeats soon.
func (u *upstream) oldestLocked() (oldest *call, others bool) {
	for _, c := range u.calls {
		switch {
		case c.Phase() != calls.Open || c.up != u:
		case c.Claim() != calls.Awaited:
			others = true
		case oldest == nil || c.write < oldest.write:
			oldest = c
		}
	}
	return oldest, others
}

// unshownLocked returns the requests of the server that were sent to no client, in
// order.
func (u *upstream) unshownLocked() []*ask {
	var all []*ask
	for _, a := range u.m.asks {
		if a.up == u && !a.sent && a.shown == nil && a.line != nil {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *ask) int { return strings.Compare(a.id, b.id) })
	return all
}

// suspendedLocked counts the calls of a session that are suspended.
func (m *Manager) suspendedLocked(session string) int {
	n := 0
	for key, c := range m.calls {
		if key.Session == session && c.Claim().IsSuspended() {
			n++
		}
	}
	return n
}

// able reports whether a call may be answered with a request of that method, which
// takes a capability of its client.
func (c *call) able(method string) bool {
	capability := dialect.CapabilityFor(method)
	return capability != "" && jsonrpc.Field(c.capabilities, capability) != nil
}

// interrupt wakes the goroutine that waits for the call. It never blocks.
func (c *call) interrupt() {
	select {
	case c.asked <- struct{}{}:
	default:
	}
}

// suspend suspends a call if its server asks something of its client. It is the
// answer to the client's request then, else nil.
func (m *Manager) suspend(rc *tool.RemoteCall, c *call) (json.RawMessage, error) {
	if !rc.Modern {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u := c.up
	if u == nil || u.owner.Session != c.Key.Session || c.Phase() != calls.Open {
		return nil, nil
	}
	u.interruptLocked() // it refuses what cannot be asked
	asks := u.unshownLocked()
	if oldest, _ := u.oldestLocked(); len(asks) == 0 || oldest != c || !u.caughtUp.isSet() {
		return nil, nil
	}
	answer, err := inputRequired(c, asks)
	if err == nil {
		m.parkLocked(c, calls.Suspend, asks)
	}
	return answer, err
}

// inputRequired is the result that tells a call's client what is asked.
func inputRequired(c *call, asks []*ask) (json.RawMessage, error) {
	type request struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params,omitempty"`
	}
	requests := make(map[string]request, len(asks))
	for _, a := range asks {
		requests[a.id] = request{a.method, a.params}
	}
	return jsonrpc.Marshal(struct {
		Type     string             `json:"resultType"`
		Requests map[string]request `json:"inputRequests"`
		State    string             `json:"requestState"`
	}{"input_required", requests, fmt.Sprint(dialect.StatePrefix, c.up.id, ":", c.write)})
}

// parkLocked suspends a call until its client goes on with it, for as long as a
// call may take.
func (m *Manager) parkLocked(c *call, how calls.Demand, asks []*ask) {
	back := make(chan struct{})
	c.Demand(how)
	c.back = back
	for _, a := range asks {
		a.shown = c
	}
	if m.closed {
		return // the next daemon sees to it
	}
	wait := c.up.inst.srv.now().MaxTimeout // the client's user is asked meanwhile
	m.wg.Go(func() {
		if pause(m.life, wait, back) != nil {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.containLocked(c.up, "gave up a suspended call", func() {
			if u := c.up; c.back == back {
				m.dropLocked(c)
				u.interruptLocked()
			}
		})
	})
}

// unparkLocked ends a suspension. What the client was asked may be asked again.
func (m *Manager) unparkLocked(c *call) {
	if c.back == nil {
		return
	}
	close(c.back)
	c.back = nil
	for _, a := range m.asks {
		if a.shown == c {
			a.shown = nil
		}
	}
}

// reviewLocked asks the owner of a call, and settles the call if it is not wanted
// any more. One that may be what its client continues stays suspended instead.
//
// For a call of an earlier daemon that is a guess: it is likely while the server
// waits for an answer, but it is not known which call's client was asked. Calls
// whose answers are confirmed and whose records still stand look the same; they
// stay, too.
func (m *Manager) reviewLocked(c *call, o calls.Owner) {
	u := c.up
	switch {
	case !c.Review(o):
	case c.Phase() == calls.Open && u != nil && u.restored && u.caughtUp.isSet() && u.state != exited &&
		u.owner.Session == c.Key.Session &&
		m.clients[c.Key.Session] != nil && m.eraLocked(c.Key.Session) != dialect.Legacy && u.perhapsLocked():
		m.parkLocked(c, calls.Guess, u.unshownLocked())
	default:
		m.dropLocked(c)
	}
}

// perhapsLocked reports whether the server has an open request of which it is not known
// for certain to which call's client it was sent.
func (u *upstream) perhapsLocked() bool {
	for _, a := range u.m.asks {
		if a.up == u && !a.sent && a.line != nil && (a.shown == nil || a.shown.Claim() == calls.Guessed) {
			return true
		}
	}
	return false
}

// metLocked acts on the era of a session's client, once it is known: questions that
// wait for it are sent.
func (m *Manager) metLocked(session string) {
	era := m.eraLocked(session)
	for key, c := range m.calls {
		if key.Session == session && c.Claim().IsSuspended() && era == dialect.Legacy { // it answers by itself
			m.dropLocked(c)
		}
	}
	m.askAgainLocked(session)
	for _, a := range m.asks {
		if a.up.owner.Session == session && !a.sent && a.line != nil {
			a.up.putLocked(a)
		}
	}
}

// resume goes on with a suspended call: the server gets the answers to what it
// has asked, and the call is waited for again. It is not made again.
func (m *Manager) resume(
	ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, worker string, write int64,
) (tool.RemoteResult, error) {
	c, err := m.resumed(o, rc, worker, write)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	faultpoint.At("hosted.resumed")
	return m.follow(ctx, s, o, rc, c)
}

// resumed gives a suspended call to the request that goes on with it.
func (m *Manager) resumed(o *listing.Offer, rc *tool.RemoteCall, worker string, write int64) (*call, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var c *call
	for u := range m.processes {
		if u.id == worker {
			c = u.calls[write]
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
	m.unparkLocked(c)
	for _, a := range m.asks {
		if a.up == c.up && a.shown != nil && a.shown.Claim() == calls.Guessed {
			a.shown = nil // the guess was wrong
		}
	}
	if m.calls[c.Key] == c {
		delete(m.calls, c.Key)
	}
	c.Key.N = rc.N
	c.Demand(calls.Ask)
	c.up.restartClockLocked(c) // it is another request
	m.calls[c.Key] = c
	// none, if it is no object
	_ = jsonrpc.Fields(jsonrpc.Field(rc.Params, "inputResponses"), func(id string, result []byte) error {
		m.tellLocked(c, id, result)
		return nil
	})
	return c, nil
}

// tellLocked takes one answer of a call's client to the server.
func (m *Manager) tellLocked(c *call, id string, result []byte) {
	u, a := c.up, m.asks[id]
	if u == nil {
		return // it was never made
	}
	_, told := u.told[id]
	switch {
	case a != nil && a.up == u && !a.sent:
		a.by = c
		m.respondLocked(a, 0, jsonrpc.AppendResult(nil, a.raw, result))
	case a == nil && !told && !u.caughtUp.isSet() && u.state != exited && strings.HasPrefix(id, u.id+":") &&
		len(u.early) < maxAsks:
		u.earlyLocked(id, early{msg: jsonrpc.Message{Result: bytes.Clone(result)}, by: c})
	}
}
