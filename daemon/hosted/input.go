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

// strangeState answers a request whose requestState looks like ours but is not valid.
// Such a request continues a call, so it must not begin a new one.
const strangeState = `{"code":-32602,"message":"params.requestState is not as it was given"}`

// eraLocked returns the era of a session's client, or "" if it is not known yet.
func (m *Manager) eraLocked(session string) string {
	if c := m.clients[session]; c != nil {
		return c.Era()
	}
	return ""
}

// putLocked sends a request of the server to its session's client. A legacy client
// gets it at once. A modern client gets it as the answer to one of its calls. If the
// client's era is not known yet, [Manager.metLocked] sends it later.
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

// interruptLocked wakes the oldest call whose client waits: its client gets the open
// requests of the server as the answer. If no such call is under way the requests are
// refused, unless the client may still come back for one.
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

// refuseLocked answers a request of the server with an error.
func (u *upstream) refuseLocked(a *ask, code int, why string) {
	u.m.respondLocked(a, 0, jsonrpc.AppendError(nil, a.raw, code, why, nil))
}

// oldestLocked returns the oldest open call whose client waits for the answer, or
// nil. others reports whether there are open calls whose client does not wait now:
// they are suspended, or their client is about to repeat them after a restart of the
// daemon.
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

// suspend suspends a call if its server asks something of its client. It returns the
// answer for the client then, which contains the questions; otherwise it returns nil.
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

// inputRequired returns the result that shows the requests of the server to a call's
// client. Its requestState names the worker and the write of the call, so that the
// call is found again, also by the next daemon.
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

// parkLocked suspends a call until its client continues it. If the client does not do
// so within the longest time of a call, a goroutine of the manager gives the call up.
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

// unparkLocked ends the suspension of a call, if it is suspended. Requests of the
// server that were shown with it may be shown again.
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

// resume continues a suspended call: the server gets the answers to its requests, and
// the client's new request waits for the call. The call is not made again.
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

// resumed assigns a suspended call, named by worker and write, to the request that
// continues it, and passes its answers to the server. It returns a fault if the call
// is not under way any more, or if another request waits for it.
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

// tellLocked passes one answer of a call's client to the server. id is that of the
// server's request. If this daemon has yet to read the request again, the answer is
// kept until then.
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
