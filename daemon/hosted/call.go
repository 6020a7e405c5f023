package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/listing"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// maxAttempts bounds how often one call is dispatched to processes that die before
// they read it.
const maxAttempts = 5

// A call is a tool call, and the client's request that waits for it. Its fields are
// guarded by the manager's mutex.
type call struct {
	*calls.Call
	up      *upstream // the process that has it, or had it last; nil for none
	write   int64     // its write to that process
	earlier []place   // its writes to processes that died before

	// Of the request that waits, or waited last.
	progress     func(params json.RawMessage) // nil if the client wants none, or none waits
	asked        chan struct{}                // holds a token when the server may have asked something
	level        string                       // log messages from this level on were asked for; "" for none
	capabilities json.RawMessage              // of a modern client; nil otherwise
	back         chan struct{}                // closed when the call is not suspended any more; nil unless it is
	naive        spelled
}

// place is a write to a process.
type place struct {
	up    *upstream
	write int64
}

func newCall(c *calls.Call) *call { return &call{Call: c, asked: make(chan struct{}, 1)} }

// factsLocked returns what is known of the call.
func (c *call) factsLocked(pending bool) calls.Facts {
	return c.Facts(pending, c.up != nil && c.up.state != exited)
}

// dropLocked settles a call that no owner wants any more. One in flight is
// cancelled; what is kept of it goes. A call of an earlier daemon waits until the
// output that its process wrote before the attach is read: it may hold the answer,
// and then the call must not be cancelled.
func (m *Manager) dropLocked(c *call) {
	u := c.up
	if c.Phase() == calls.Over {
		return
	}
	m.unparkLocked(c)
	c.Demand(calls.Withdraw)
	if c.Phase() == calls.Open && u != nil && u.state != exited && !u.caughtUp.isSet() {
		return
	}
	cancels := calls.Decide(c.factsLocked(false)) == calls.Cancel
	if cancels {
		u.cancel(c, true)
	}
	c.Apply(calls.Settle)
	freed, hasFile := c.DropAnswer()
	m.spooledLocked(c.Key.Session, -freed)
	delete(m.calls, c.Key)
	for _, at := range append(c.earlier, place{u, c.write}) {
		if at.up == nil {
			continue
		}
		delete(at.up.calls, at.write)
		if !cancels || at != (place{u, c.write}) {
			at.up.forget = append(at.up.forget, at.write)
		}
		if hasFile {
			at.up.files = append(at.up.files, at.write)
		}
		at.up.nudge()
	}
}

// spooledLocked counts the bytes in files that wait for a session, and ends a session
// with too many.
func (m *Manager) spooledLocked(session string, grown int64) {
	if m.spooled[session] += grown; m.spooled[session] <= 0 {
		delete(m.spooled, session)
	}
	if grown > 0 {
		m.boundLocked(session)
	}
}

// boundLocked ends a session whose answers in files exceed their bound. A session of
// an earlier daemon is ended only when its client is back: before that the answers may
// still be wanted.
func (m *Manager) boundLocked(session string) {
	if c := m.clients[session]; c != nil && m.spooled[session] > m.o.MaxSpooled {
		c.Full()
	}
}

// cancel queues a cancellation of the call for the server. With forget the record of
// the call is dropped once the cancellation is written; before that the next daemon
// needs the record, since it would have to cancel the call.
func (u *upstream) cancel(c *call, forget bool) {
	write := c.write
	line := jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, fmt.Appendf(nil, `{"requestId":%d}`, c.write))
	u.queueWriteLocked(backgroundWrite{
		rec:     calls.Record{N: c.Key.N, Session: c.Key.Session, Kind: calls.KindCancel, Name: c.Name},
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

// follow waits for the answer to a call, on behalf of a request of its client.
func (m *Manager) follow(
	ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, c *call,
) (tool.RemoteResult, error) {
	m.mu.Lock()
	c.progress, c.level, c.Repeats = rc.Progress, rc.Level, o.Remote.Contract == tool.Convergent
	c.Demand(calls.Ask)
	if c.capabilities = nil; rc.Modern {
		c.capabilities = jsonrpc.Field(jsonrpc.Field(rc.Params, "_meta"), mcp.MetaCapabilities)
	}
	m.mu.Unlock()
	res, err := m.pursue(ctx, s, o, rc, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	c.progress = nil
	c.Demand(calls.Return)
	if u := c.up; u != nil {
		defer u.interruptLocked() // what it was to be asked, if it was answered first, is another's
	}
	switch {
	case err == nil && c.Claim().IsSuspended() && isAbandoned(ctx) && !m.closed && !errors.Is(context.Cause(ctx), tool.ErrStopping):
		m.dropLocked(c) // its client will not go on with it
	case err == nil:
	case errors.Is(err, tool.ErrStopping), m.closed && ctx.Err() != nil:
		return res, tool.ErrStopping // the next daemon goes on
	case isAbandoned(ctx), c.Phase() == calls.New:
		if c.Phase() == calls.Open && !c.Claim().IsSuspended() && !c.Begun.IsZero() && time.Since(c.Begun) >= longWait {
			c.up.suspectLocked() // most clients give up long before the call's own time is over
		}
		m.dropLocked(c) // no client waits for it, or it was never made
	case c.Phase() == calls.Open:
		// It has run out of time. The record stays until the client has been
		// told so, or it would be made once more.
		c.up.suspectLocked()
		c.up.cancel(c, false)
		c.Answer.Fault = fault.From(err, fault.Server, o.Operation())
		c.Apply(calls.Reply)
	}
	res.Replays = c.Replays
	return res, err
}

// pursue takes the steps that [calls.Decide] returns for a call until it has an
// answer or a fault.
func (m *Manager) pursue(
	ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall, c *call,
) (tool.RemoteResult, error) {
	soonest := m.soonest(c)
	var patient time.Time // until when it waits for a process
	for attempt := 0; ; {
		m.mu.Lock()
		f := c.factsLocked(true)
		at, death := c.Phase(), (*fault.Record)(nil)
		if c.up != nil {
			death = c.up.death
		}
		m.mu.Unlock()
		if at == calls.Over { // it was made, and no client waits for it
			return tool.RemoteResult{}, fault.New(fault.Cancelled, fault.Host, o.Operation(), "%v", context.Cause(ctx))
		}
		switch calls.Decide(f) {
		case calls.Deliver:
			if m.isLarge(c, rc) {
				return tool.RemoteResult{Load: func() (result, failure json.RawMessage, err error) {
					res, err := m.loadAnswer(s, o, c)
					return res.Result, res.Error, err
				}}, nil
			}
			return m.loadAnswer(s, o, c)
		case calls.Unknown:
			return tool.RemoteResult{}, unknownFault(o.Remote.Name, death, c.Repeats, c.Replays)
		case calls.Dispatch:
			if attempt++; attempt > maxAttempts {
				return tool.RemoteResult{}, fault.New(fault.TransportFailure, fault.Server, o.Operation(),
					"server %s ended %d times before it read the call: it was not made", s.spec.Name, maxAttempts)
			}
			if patient.IsZero() || at == calls.Lost {
				patient = s.patientUntil(rc, at == calls.Lost)
			}
			if err := m.dispatch(ctx, s, o, rc, c, at == calls.Lost, patient); err != nil {
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

// errUnwanted says that the call was settled before its write was made.
var errUnwanted = errors.New("nobody waits for the answer")

// dispatch writes a call to a process that serves; it waits for one until patient.
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
	u.standing.AwaitLevel(ctx)
	timeout := s.now().Timeout
	until := time.Now().Add(timeout)
	rec := calls.Record{
		N: rc.N, Round: c.Key.Round, Session: rc.Caller.Session, ID: json.RawMessage(rc.ID), Kind: calls.KindCall, Name: o.Own,
		Contract: string(o.Remote.Contract), Identity: rc.Caller.Identity, DeadlineBootMS: bootclock.AtMS(until),
	}
	died := false
	reading, stop := context.WithDeadline(ctx, until) // a server may hang that has yet to read what was said before
	defer stop()
	_, err = u.w.WriteFunc(reading, rec, func(id int64) ([]byte, error) {
		envelope := u.Envelope()
		params, err := envelope.Params(rc, o, token(id, rc))
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if u.state == exited {
			died = true
			return nil, errDied
		}
		if c.Phase() == calls.Over {
			return nil, errUnwanted
		}
		if again {
			c.Replays++
			c.earlier = append(c.earlier, place{c.up, c.write})
		} else if c.up != nil {
			c.forgetVoidLocked()
		}
		c.up, c.write, c.naive, c.Begun = u, id, naively(rc), time.Now()
		c.Deadline.Set(until)
		u.calls[id] = c
		c.Apply(calls.Sent)
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
	if (c.Phase() == calls.Open || c.Phase() == calls.Lost) && c.up == u {
		c.forgetVoidLocked()
		c.Apply(calls.Unsent)
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

// unread returns the fault of a call that the server has not read within the call's
// time; nil if the call has ended otherwise meanwhile. A call that was not sent was
// not made.
func (m *Manager) unread(c *call, o *listing.Offer, timeout time.Duration, unsent bool) error {
	m.mu.Lock()
	at := c.Phase()
	m.mu.Unlock()
	switch {
	case unsent:
		return m.timedOut(nil, o, "the server has not read what it was told before within %v: the call was not made", timeout)
	case at != calls.Open:
		return nil
	}
	return m.timedOut(c, o, "the server has not read the call within %v: the call was cancelled", timeout)
}

// goneTimeout bounds the wait for the end of a process that takes no writes.
const goneTimeout = time.Minute

// lost waits until a process that takes no writes has exited. A process that takes
// writes again is not lost, unless it ends.
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

// forgetVoidLocked detaches a call from a process that certainly did not get it.
func (c *call) forgetVoidLocked() {
	if c.up == nil {
		return
	}
	delete(c.up.calls, c.write) // the record is void, and its number will be another's
	c.up, c.write = nil, 0
}

// await waits until the call is not open any more, or has timed out, but not before
// soonest. ctx bounds all of the call's time.
func (m *Manager) await(ctx context.Context, s *server, o *listing.Offer, c *call, soonest time.Time) error {
	m.mu.Lock()
	done := c.Left()
	m.mu.Unlock()
	t := time.NewTimer(m.timeLeft(s, c, soonest))
	defer t.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-c.asked:
			return nil
		case <-c.Progress():
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

// timedOut returns the fault of a call that has timed out: c, if dispatched, else
// nil.
func (m *Manager) timedOut(c *call, o *listing.Offer, format string, args ...any) *fault.Record {
	f := fault.New(fault.Timeout, fault.Server, o.Operation(), format, args...)
	m.mu.Lock()
	defer m.mu.Unlock()
	if c != nil && c.up != nil {
		f.Fault.Generation = c.up.generation
	}
	if c != nil && !c.Repeats {
		return f.WithMayHaveActed()
	}
	return f
}

// maxShared is how large an answer may be that equal calls share, in bytes.
const maxShared = 8 << 20

// isLarge reports whether an answer is so large that it is loaded only when its
// client gets it. A legacy client never gets an answer that asks for input, so that
// one is not.
func (m *Manager) isLarge(c *call, rc *tool.RemoteCall) bool {
	m.mu.Lock()
	result, size, limit := c.Answer.Result, c.AnswerSize(), int64(tool.LargeAnswer)
	if c.Repeats {
		limit = maxShared
	}
	m.mu.Unlock()
	return size >= limit && (rc.Modern || result == nil || !dialect.AsksForInput(result))
}

// loadAnswer returns the answer of a call that has one, or the fault that stands for it.
func (m *Manager) loadAnswer(s *server, o *listing.Offer, c *call) (tool.RemoteResult, error) {
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
}

// take returns the answer of a call that has one, from memory or from its file. An
// error is the fault that stands for the answer.
func (m *Manager) take(c *call) (tool.RemoteResult, error) {
	m.mu.Lock()
	a, u, write := c.Answer, c.up, c.write
	m.mu.Unlock()
	if a.IsZero() {
		var err error
		if a, err = calls.ReadAnswer(u.dir, write); err != nil {
			return tool.RemoteResult{}, fault.New(fault.InternalFailure, fault.Host, mcp.ToolsCall+":"+c.Name,
				"the kept answer cannot be read: %v", err)
		}
	}
	if a.Fault != nil {
		return tool.RemoteResult{}, a.Fault
	}
	return tool.RemoteResult{Result: a.Result, Error: a.Error}, nil
}

// proxied returns the fault that our own process for a remote server has answered in
// the server's place; nil if the answer is the server's.
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

// asFault returns err as the fault that ends a call; a stopping daemon is no fault.
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
