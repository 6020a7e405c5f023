package hosted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/listing"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
)

// maxAttempts bounds how often a call is dispatched that each time was
// certainly not made: a server may always die before it reads.
const maxAttempts = 5

// state is where a call stands.
type state int

const (
	fresh    state = iota // not with any process
	open                  // with a process, which may have it
	answered              // its answer is in hand, or in a file
	lost                  // its process died
	void                  // its record stands, and was certainly not made
	over                  // nobody asks for it any more
)

// call is one call of a tool, from its first dispatch until its client has
// confirmed the answer. Its fields are guarded by the manager's mutex.
type call struct {
	key      callKey
	tool     string // the server's own name
	contract tool.Contract
	progress func(params json.RawMessage)
	asked    chan struct{} // holds a token when the server may have asked something
	level    string        // of the messages that the request asked for; "" is none

	state        state
	done         chan struct{} // closed when it is not open any more
	life         chan struct{} // holds a token when there was progress
	up           *upstream
	write        int64
	naive        spelled
	begun        time.Time // when it was dispatched; zero if an earlier daemon has done so
	until        time.Time // when it is over without an answer or progress; set once it is dispatched
	recorded     time.Time // what its record says of until
	inherited    bool      // until is what an earlier daemon has recorded
	replays      int       // how often it was made again after a loss
	waited       bool      // a request of its client waits for it
	unwanted     bool      // its client does not wait for it, and its answer may still be unread
	spooling     bool
	spooled      bool  // its answer is in the file
	size         int64 // of that, in bytes; counted with the session's
	result       json.RawMessage
	failure      json.RawMessage
	fault        *fault.Record   // the answer is ours, not the server's
	suspended    bool            // its client was asked something, and is to go on with it by another request
	guessed      bool            // suspended because it may be the one with which its client goes on
	back         chan struct{}   // closed when it is not suspended any more
	capabilities json.RawMessage // of a modern client, in the request that waits

	earlier []place // writes of it to processes that died
}

// place is a write to a process.
type place struct {
	up    *upstream
	write int64
}

func newCall(key callKey, name string, contract tool.Contract) *call {
	return &call{key: key, tool: name, contract: contract, done: make(chan struct{}), life: make(chan struct{}, 1), asked: make(chan struct{}, 1)}
}

// setLocked moves an open call on.
func (c *call) setLocked(s state) {
	if c.state == open && s != open {
		close(c.done)
	}
	if c.state != open && s == open {
		c.done = make(chan struct{})
	}
	c.state = s
}

// alive notes progress.
func (c *call) alive() {
	select {
	case c.life <- struct{}{}:
	default:
	}
}

// factsLocked are what is known of the call.
func (c *call) factsLocked(pending bool) calls.Facts {
	return calls.Facts{
		Pending: pending, Recorded: c.state == open || c.state == answered || c.state == lost, Taken: c.state == open,
		Alive: c.up != nil && c.up.state != exited, Answered: c.state == answered, Convergent: c.contract == tool.Convergent && c.replays == 0,
		Call: true,
	}
}

// lineLocked is the answer as it is kept in a file.
func (c *call) lineLocked() []byte {
	id := jsonrpc.IntID(c.write)
	if c.fault != nil {
		return c.fault.JSON()
	}
	if c.failure != nil {
		return jsonrpc.AppendFailure(nil, id, c.failure)
	}
	return jsonrpc.AppendResult(nil, id, c.result)
}

// dropLocked settles a call that nobody waits for: one that is under way is
// cancelled, and what is kept of it goes.
func (m *Manager) dropLocked(c *call) {
	u := c.up
	if c.state == over {
		return
	}
	m.unparkLocked(c)
	if c.state == open && u != nil && u.state != exited && !u.caughtUp.isSet() {
		c.unwanted = true // its answer may have been given: that is read first
		return
	}
	cancels := calls.Decide(c.factsLocked(false)) == calls.Cancel
	if cancels {
		u.cancel(c, true)
	}
	c.setLocked(over)
	m.countLocked(c, 0)
	delete(m.calls, c.key)
	for _, at := range append(c.earlier, place{u, c.write}) {
		if at.up == nil {
			continue
		}
		delete(at.up.calls, at.write)
		if !cancels || at != (place{u, c.write}) {
			at.up.forget = append(at.up.forget, at.write)
		}
		if c.spooled || c.spooling {
			at.up.files = append(at.up.files, at.write)
		}
		at.up.nudge()
	}
}

// countLocked notes how long the file of a call's answer is, and ends a session
// for which more lies in files than may.
func (m *Manager) countLocked(c *call, size int64) {
	of := c.key.session
	m.spooled[of] += size - c.size
	c.size = size
	if m.spooled[of] <= 0 {
		delete(m.spooled, of)
	}
	if size > 0 {
		m.boundLocked(of)
	}
}

// boundLocked ends a session for which more lies in files than may. One that an
// earlier daemon had is ended when it is back: until then nobody may say that
// its calls have no answers.
func (m *Manager) boundLocked(session string) {
	if c := m.clients[session]; c != nil && m.spooled[session] > m.o.MaxSpooled {
		c.Full()
	}
}

// cancel tells the server that nobody waits for the call. Its record may be
// forgotten only once the server was told: until then the next daemon has to.
func (u *upstream) cancel(c *call, forget bool) {
	write := c.write
	line := jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, fmt.Appendf(nil, `{"requestId":%d}`, c.write))
	u.errandLocked(errand{
		rec:     calls.Record{N: c.key.n, Session: c.key.session, Kind: calls.KindCancel, Name: c.tool},
		compose: func(int64) []byte { return line },
		done: func(err error) {
			if err != nil || !forget {
				return
			}
			u.m.mu.Lock()
			defer u.m.mu.Unlock()
			u.forget = append(u.forget, write)
			u.nudge()
		},
	})
}

// follow waits for the answer to a call, for a request of its client.
func (m *Manager) follow(ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, c *call) (tool.RemoteResult, error) {
	m.mu.Lock()
	c.progress, c.level, c.unwanted, c.contract, c.waited = rc.Progress, rc.Level, false, o.Remote.Contract, true
	if c.capabilities = nil; rc.Modern {
		c.capabilities = jsonrpc.Field(jsonrpc.Field(rc.Params, "_meta"), mcp.MetaCapabilities)
	}
	m.mu.Unlock()
	res, err := m.pursue(ctx, s, o, rc, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	c.progress, c.waited = nil, false
	if u := c.up; u != nil {
		defer u.interruptLocked() // what it was to be asked, if it was answered first, is another's
	}
	switch {
	case err == nil && c.suspended && isAbandoned(ctx) && !m.closed && !errors.Is(context.Cause(ctx), tool.ErrStopping):
		m.dropLocked(c) // its client will not go on with it
	case err == nil:
	case errors.Is(err, tool.ErrStopping), m.closed && ctx.Err() != nil:
		return res, tool.ErrStopping // the next daemon goes on
	case isAbandoned(ctx), c.state == fresh, c.state == void:
		if c.state == open && !c.suspended && !c.begun.IsZero() && time.Since(c.begun) >= longWait {
			c.up.suspectLocked() // most clients give up long before the call's own time is over
		}
		m.dropLocked(c) // nobody waits for it, or it was never made
	case c.state == open:
		// It has run out of time. The record stays until the client has been
		// told so, or it would be made once more.
		c.up.suspectLocked()
		c.up.cancel(c, false)
		c.fault = fault.From(err, fault.Server, o.Operation())
		c.setLocked(answered)
	}
	res.Replays = c.replays
	return res, err
}

// pursue does with a call what is to be done, until there is an answer.
func (m *Manager) pursue(ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, c *call) (tool.RemoteResult, error) {
	soonest := m.soonest(c)
	var patient time.Time // until when it waits for a process
	for attempt := 0; ; {
		m.mu.Lock()
		f := c.factsLocked(true)
		at, death := c.state, (*fault.Record)(nil)
		if c.up != nil {
			death = c.up.death
		}
		m.mu.Unlock()
		if at == over { // it was made, and nobody wants to know
			return tool.RemoteResult{}, fault.New(fault.Cancelled, fault.Host, o.Operation(), "%v", context.Cause(ctx))
		}
		switch calls.Decide(f) {
		case calls.Deliver:
			res, err := m.take(c)
			if f := s.proxied(res.Error); f != nil {
				f.Operation = o.Operation()
				return tool.RemoteResult{}, f
			}
			if f, ok := errors.AsType[*fault.Record](err); ok {
				own := *f
				own.Operation = o.Operation()
				return res, &own
			}
			return res, err
		case calls.Unknown:
			return tool.RemoteResult{}, unknownFault(o.Remote.Name, death, f.Convergent || c.contract == tool.Convergent, c.replays)
		case calls.Dispatch:
			if attempt++; attempt > maxAttempts {
				return tool.RemoteResult{}, fault.New(fault.TransportFailure, fault.Server, o.Operation(),
					"server %s ended %d times before it read the call: it was not made", s.spec.Name, maxAttempts)
			}
			if patient.IsZero() || at == lost {
				patient = s.patientUntil(rc, at == lost)
			}
			if err := m.dispatch(ctx, s, o, rc, c, at == lost, patient); err != nil {
				return tool.RemoteResult{}, err
			}
		case calls.Wait:
			if asked, err := m.suspend(rc, c); asked != nil || err != nil {
				return tool.RemoteResult{Result: asked}, err
			}
			if err := m.await(ctx, s, o, c, soonest); err != nil {
				return tool.RemoteResult{}, err
			}
		case calls.Forget, calls.Cancel, calls.Fail:
		}
	}
}

// errUnwanted says that a call was settled before it was made.
var errUnwanted = errors.New("nobody waits for the answer")

// dispatch makes the call's write to a process that serves, for which it waits
// until patient.
func (m *Manager) dispatch(ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, c *call, again bool, patient time.Time) error {
	if rc.Params == nil {
		return fault.New(fault.ResourceExhausted, fault.Host, o.Operation(),
			"the daemon ended, and the request was too large to be kept for the next one: ask again")
	}
	if rc.Refuse != nil {
		if err := rc.Refuse(ctx); err != nil {
			return asFault(err, o)
		}
	}
	starting, cancel := context.WithDeadlineCause(ctx, patient,
		m.timedOut(nil, o, "server %s has not come up within %v: the call was not made", s.spec.Name, s.patience()))
	defer cancel()
	u, err := s.ready(starting, rc.Caller)
	if err == nil {
		err = s.checkBlocked(&rc.Caller, o) // it may have been listed anew by a process that was just started
	}
	if err != nil {
		return asFault(err, o)
	}
	u.tuned(ctx)
	timeout := s.now().Timeout
	until := time.Now().Add(timeout)
	rec := calls.Record{
		N: rc.N, Round: c.key.round, Session: rc.Caller.Session, ID: json.RawMessage(rc.ID), Kind: calls.KindCall, Name: o.Own,
		Contract: string(o.Remote.Contract), Identity: rc.Caller.Identity, DeadlineBootMS: bootclock.AtMS(until),
	}
	died := false
	reading, stop := context.WithDeadline(ctx, until) // a server may hang that has yet to read what was said before
	defer stop()
	_, err = u.w.WriteFunc(reading, rec, func(id int64) ([]byte, error) {
		params, err := u.envelope().params(rc, o, token(id, rc))
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if u.state == exited {
			died = true
			return nil, errDied
		}
		if c.state == over {
			return nil, errUnwanted
		}
		if again {
			c.replays++
			c.earlier = append(c.earlier, place{c.up, c.write})
		} else if c.up != nil {
			c.forgetVoidLocked()
		}
		c.up, c.write, c.naive, c.begun = u, id, naively(rc), time.Now()
		c.until, c.recorded, c.inherited = until, until, false
		u.calls[id] = c
		c.setLocked(open)
		return append(jsonrpc.AppendRequest(nil, wireID(id, rc), o.Method, params), '\n'), nil
	})
	faultpoint.At("hosted.dispatched")
	late := err != nil && reading.Err() != nil && ctx.Err() == nil
	if err == nil || !late && !supervisor.NotDispatched(err) {
		return nil // made, or on its way: what became of it will be told
	}
	if late {
		u.suspectNow()
		return m.unread(c, o, timeout, supervisor.NotDispatched(err))
	}
	m.mu.Lock()
	if (c.state == open || c.state == lost) && c.up == u {
		c.forgetVoidLocked()
		c.setLocked(fresh)
	}
	m.mu.Unlock()
	if ctx.Err() != nil {
		return asFault(context.Cause(ctx), o)
	}
	f, _ := errors.AsType[*fault.Record](err)
	ends := f != nil && f.Fault.Code == fault.ProcessFailure // its stdin is closed
	if f != nil && f.Fault.Code != fault.TransportFailure && !ends && !died {
		return f
	}
	return u.lost(starting, o, ends)
}

// unread is the end of a call that the server has not read in the call's time;
// nil if it has ended otherwise meanwhile. One that was not even sent was not
// made.
func (m *Manager) unread(c *call, o *listing.Offer, timeout time.Duration, unsent bool) error {
	m.mu.Lock()
	at := c.state
	m.mu.Unlock()
	switch {
	case unsent:
		return m.timedOut(nil, o, "the server has not read what it was told before within %v: the call was not made", timeout)
	case at != open:
		return nil
	}
	return m.timedOut(c, o, "the server has not read the call within %v: the call was cancelled", timeout)
}

// goneTimeout is how long a call waits for the end of a process that does not
// take writes.
const goneTimeout = time.Minute

// lost waits until it is known that a process is gone which does not take
// writes. One that takes them again is not gone, unless it ends.
func (u *upstream) lost(ctx context.Context, o *listing.Offer, ends bool) error {
	if w := u.worker(); w.Status().Attached && !ends {
		return nil
	}
	t := time.NewTimer(goneTimeout)
	defer t.Stop()
	select {
	case <-u.exited:
	case <-t.C:
	case <-ctx.Done():
		return asFault(context.Cause(ctx), o)
	}
	return nil
}

// forgetVoidLocked takes a call off a process that was certainly not told it.
func (c *call) forgetVoidLocked() {
	if c.up == nil {
		return
	}
	delete(c.up.calls, c.write) // the record is void, and its number will be another's
	c.up, c.write = nil, 0
}

// await waits until the call is not open any more, or its time is over, but not
// before soonest. ctx bounds its time in all.
func (m *Manager) await(ctx context.Context, s *server, o *listing.Offer, c *call, soonest time.Time) error {
	m.mu.Lock()
	done := c.done
	m.mu.Unlock()
	t := time.NewTimer(m.timeLeft(s, c, soonest))
	defer t.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-c.asked:
			return nil
		case <-c.life:
		case <-ctx.Done():
			if isOverdue(ctx) {
				return m.timedOut(c, o, "no answer within %v: the call was cancelled", s.now().MaxTimeout)
			}
			return asFault(context.Cause(ctx), o)
		case <-t.C:
		}
		left := m.timeLeft(s, c, soonest)
		if left <= 0 {
			return m.timedOut(c, o, "no answer and no progress within %v: the call was cancelled", s.now().Timeout)
		}
		t.Reset(left)
	}
}

// timedOut is the fault of a call that has run out of time: c, if it was
// dispatched, else nil.
func (m *Manager) timedOut(c *call, o *listing.Offer, format string, args ...any) *fault.Record {
	f := fault.New(fault.Timeout, fault.Server, o.Operation(), format, args...)
	m.mu.Lock()
	defer m.mu.Unlock()
	if c != nil && c.up != nil {
		f.Fault.Generation = c.up.generation
	}
	if c != nil && c.contract != tool.Convergent {
		return f.WithMayHaveActed()
	}
	return f
}

// take is the answer of a call that has one.
func (m *Manager) take(c *call) (tool.RemoteResult, error) {
	m.mu.Lock()
	res := tool.RemoteResult{Result: c.result, Error: c.failure}
	u, write, name, f := c.up, c.write, c.tool, c.fault
	m.mu.Unlock()
	if f != nil {
		return res, f
	}
	if res.Result != nil || res.Error != nil {
		return res, nil
	}
	line, err := ownfile.Read(u.answerFile(write), ownfile.MaxDocument)
	if err != nil {
		return res, fault.New(fault.InternalFailure, fault.Host, mcp.ToolsCall+":"+name, "the kept answer cannot be read: %v", err)
	}
	if bytes.HasPrefix(line, []byte(`{"fault":`)) { // ours, not the server's
		f := &fault.Record{}
		if err := json.Unmarshal(line, f); err != nil {
			return res, fault.New(fault.InternalFailure, fault.Host, mcp.ToolsCall+":"+name, "the kept fault cannot be read: %v", err)
		}
		return res, f
	}
	msg, err := jsonrpc.Parse(line)
	if err != nil {
		return res, fault.New(fault.InternalFailure, fault.Host, mcp.ToolsCall+":"+name, "the kept answer cannot be read: %v", err)
	}
	return tool.RemoteResult{Result: msg.Result, Error: msg.Error}, nil
}

// proxied is the fault with which the process that stands for a server elsewhere
// has answered in the server's place; nil for all that is the server's own word.
func (s *server) proxied(failure json.RawMessage) *fault.Record {
	if failure == nil || !s.now().Remote {
		return nil
	}
	var f fault.Record
	_ = json.Unmarshal(jsonrpc.Field(failure, "data"), &f) // what is no record has no code
	if !slices.Contains(fault.Codes(), f.Fault.Code) {
		return nil
	}
	return &f
}

// unknownFault says that a call may or may not have had its effect, or that it
// failed twice.
func unknownFault(name string, death *fault.Record, convergent bool, replays int) *fault.Record {
	detail := "its worker is gone"
	if death != nil {
		detail = death.Fault.Detail
	}
	f := fault.New(fault.OutcomeUnknown, fault.Server, mcp.ToolsCall+":"+name, "whether the call had its effect is not known: %s", detail)
	if convergent && replays > 0 {
		f = fault.New(fault.ProcessFailure, fault.Server, mcp.ToolsCall+":"+name, "the call failed twice: %s", detail)
		f.Retried = true
	}
	if death != nil {
		f.Fault.Generation, f.Cause = death.Fault.Generation, death.Cause
	}
	return f
}

// asFault is err as a call's end; a stopping daemon is none.
func asFault(err error, o *listing.Offer) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, tool.ErrStopping) {
		return tool.ErrStopping
	}
	if f, ok := errors.AsType[*fault.Record](err); ok {
		return f
	}
	return fault.New(fault.Cancelled, fault.Host, o.Operation(), "%v", err)
}
