package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/asklogin"
	"holdline/daemon/hosted/detached"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Server is a server that is called. Its methods are safe for concurrent use, and are
// called without the hub's mutex.
type Server interface {
	// Entry returns the server as it is configured now.
	Entry() *entry.Server
	// View returns what the caller is offered by the server now.
	View(c *tool.Caller) listing.ServerView
	// Scope names those that share a process with the caller.
	Scope(c *tool.Caller) string
	// Guards returns the guards of the processes that the caller uses.
	Guards(c *tool.Caller) (Guards, error)
	// NotLoggedIn handles the refusal of a call by a process since no user is logged in to the
	// server. u is nil if the process is not known any more.
	NotLoggedIn(u *upstream.Process, f *fault.Record)
	// Ready returns a process that serves the caller. It starts one if there is none. If it has
	// to wait, it waits in the context that limit returns; a nil limit stands for that of ctx.
	Ready(ctx context.Context, limit Limit, c tool.Caller) (*upstream.Process, error)
}

// A Dispatcher makes calls. It is safe for concurrent use.
type Dispatcher struct {
	Logins *asklogin.Asker // asks people to log in; nil asks nobody. It must not change after the first call
	Tasks  *detached.Store // keeps calls that take long; nil keeps none. It must not change after the first call

	hub    *upstream.Hub
	most   func(identity string) int // calls that a session may make; 0 is no limit; may be nil
	budget *policy.Budget
	cache  *policy.Cache

	// Guarded by the hub's mutex.
	questions map[string]*inquiry         // what legacy clients are asked for modern servers, by id
	replies   map[string]map[string]reply // answers to questions not asked yet, by session hash and id
	late      []string                    // tasks of earlier daemons whose calls may be in records yet to be read
}

// New returns a dispatcher. budget returns how many calls a session of an identity may
// make; 0 is no limit. It may be nil.
func New(hub *upstream.Hub, budget func(identity string) int) *Dispatcher {
	return &Dispatcher{
		hub: hub, most: budget, budget: policy.NewBudget(maxBudgets), cache: policy.NewCache(),
		questions: map[string]*inquiry{}, replies: map[string]map[string]reply{},
	}
}

// Handle makes a call of an offer to its server. Each line of a client is called once in
// each daemon; an earlier daemon may have dispatched it already.
func (d *Dispatcher) Handle(
	ctx context.Context, s Server, o *listing.Offer, rc *tool.RemoteCall,
) (tool.RemoteResult, error) {
	if o.Method == mcp.Complete { // the person is typing
		return (&request{Dispatcher: d, s: s, o: o, rc: rc}).handle(ctx)
	}
	return d.Ask(ctx, o.Remote.Server, rc, func(rc *tool.RemoteCall, _ bool) (tool.RemoteResult, error) {
		return (&request{Dispatcher: d, s: s, o: o, rc: rc}).handleOrDetach(ctx)
	})
}

// Ask is [asklogin.Asker.Call] for the client of the caller's session.
func (d *Dispatcher) Ask(
	ctx context.Context, server string, rc *tool.RemoteCall,
	call func(rc *tool.RemoteCall, waited bool) (tool.RemoteResult, error),
) (tool.RemoteResult, error) {
	return d.Logins.Call(ctx, server, func() tool.Client {
		d.hub.Mu.Lock()
		defer d.hub.Mu.Unlock()
		return d.hub.Clients[rc.Caller.Session]
	}, rc, call)
}

// Cache returns the cache of answers.
func (d *Dispatcher) Cache() *policy.Cache { return d.cache }

// EndLocked forgets a session that is over. agent names its client if this was the
// client's last session, else it is "".
func (d *Dispatcher) EndLocked(session, agent string) {
	delete(d.replies, session)
	d.budget.End(session)
	d.budget.End(agent)
}

// ForsakeLocked gives up the calls of a session, except detached ones, and refuses the
// requests of servers that wait for it.
func (d *Dispatcher) ForsakeLocked(session string) {
	for key, c := range d.hub.Calls {
		o := calls.Owner(calls.Gone{})
		if c.Claim().IsDetached() {
			o = calls.Resumed(nil) // it goes on, and its client does not ask for the task's id again
		}
		if key.Session == session && c.Review(o) {
			d.hub.ContainLocked(c.Up, "gave up a call", func() { d.hub.DropLocked(c) })
		}
	}
	d.hub.RefuseAsksLocked(session)
}

// Resumed settles the calls of a session whose client is back, except the calls of
// the lines that the client lists as pending. Only the proxy knows what is pending: a
// call that it does not list has its answer, or was cancelled.
func (d *Dispatcher) Resumed(session string, pending map[int64]struct{}) {
	d.hub.Mu.Lock()
	defer d.hub.Mu.Unlock()
	for key, c := range d.hub.Calls {
		if key.Session == session {
			d.hub.ContainLocked(c.Up, "settled a call", func() { d.hub.ReviewLocked(c, calls.Resumed(pending)) })
		}
	}
}

// Confirmed settles the calls of line n of a session: its client holds the answer.
func (d *Dispatcher) Confirmed(session string, n int64) {
	d.hub.Mu.Lock()
	defer d.hub.Mu.Unlock()
	for _, c := range d.roundsLocked(session, n) {
		d.hub.ContainLocked(c.Up, "settled a call", func() { d.hub.ReviewLocked(c, calls.Resumed(nil)) })
	}
}

// A request is a call that a client's request waits for.
type request struct {
	*Dispatcher
	s    Server
	o    *listing.Offer
	rc   *tool.RemoteCall
	task *detachment  // nil if the call cannot become a task
	turn *policy.Turn // nil if an earlier daemon has dispatched the call
}

// follow waits for the answer to a call, on behalf of a request of its client.
func (r *request) follow(ctx context.Context, c *upstream.Call) (tool.RemoteResult, error) {
	r.hub.Mu.Lock()
	c.OnProgress, c.Level, c.Repeats = r.rc.Progress, r.rc.Level, r.o.Remote.Contract == tool.Convergent
	if c.Demand(calls.Ask); r.isDetached() {
		r.ownLocked(c)
		c.OnProgress = r.progress
	}
	if c.Capabilities = nil; r.rc.Modern {
		c.Capabilities = jsonrpc.Field(jsonrpc.Field(r.rc.Params, "_meta"), mcp.MetaCapabilities)
	}
	r.hub.Mu.Unlock()
	res, err := r.pursue(ctx, c)
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	c.OnProgress = nil
	c.Demand(calls.Return)
	if u := c.Up; u != nil {
		defer u.InterruptLocked() // what it was to be asked, if it was answered first, is another's
	}
	switch {
	case err == nil && c.Claim().IsSuspended() && isAbandoned(ctx) && !r.hub.Closed &&
		!errors.Is(context.Cause(ctx), tool.ErrStopping):
		r.hub.DropLocked(c) // its client will not go on with it
	case err == nil:
	case errors.Is(err, tool.ErrStopping), r.hub.Closed && ctx.Err() != nil:
		return res, tool.ErrStopping // the next daemon goes on
	case isAbandoned(ctx), c.Phase() == calls.New:
		if c.Phase() == calls.Open && !c.Claim().IsSuspended() && !c.Begun.IsZero() &&
			time.Since(c.Begun) >= upstream.LongWait {
			c.Up.SuspectLocked() // most clients give up long before the call's own time is over
		}
		r.hub.DropLocked(c) // no client waits for it, or it was never made
	case c.Phase() == calls.Open:
		// It has run out of time. The record stays until the client has been
		// told so, or it would be made once more.
		c.Up.SuspectLocked()
		c.Up.CancelLocked(c, false)
		c.Answer.Fault = fault.From(err, fault.Server, r.o.Operation())
		c.Apply(calls.Reply)
	}
	res.Replays = c.Replays
	return res, err
}

// pursue takes the steps that [calls.Decide] returns for a call until it has an
// answer or a fault.
func (r *request) pursue(ctx context.Context, c *upstream.Call) (tool.RemoteResult, error) {
	soonest := r.soonest(c)
	var patient time.Time // until when it waits for a process
	for attempt := 0; ; {
		r.hub.Mu.Lock()
		f := c.FactsLocked(true)
		at, end := c.Phase(), c.EndLocked()
		r.hub.Mu.Unlock()
		if at == calls.Over { // it was made, and no client waits for it
			return tool.RemoteResult{}, fault.New(
				fault.Cancelled, fault.Host, r.o.Operation(), "%v", context.Cause(ctx))
		}
		switch calls.Decide(f) {
		case calls.Deliver:
			if file := r.fileOf(c); file != nil || r.isLarge(c) {
				return tool.RemoteResult{File: file, Size: r.sizeOf(c), Load: func() (result, failure json.RawMessage, err error) {
					res, err := r.loadAnswer(c)
					return res.Result, res.Error, err
				}}, nil
			}
			return r.loadAnswer(c)
		case calls.Unknown:
			return tool.RemoteResult{}, upstream.UnknownFault(r.o.Operation(), end, c.Repeats, c.Replays)
		case calls.Dispatch:
			if attempt++; attempt > MaxAttempts {
				return tool.RemoteResult{}, r.refusedAgain(ctx, c, fault.New(
					fault.TransportFailure, fault.Server, r.o.Operation(),
					"server %s ended %d times before it read the call: it was not made", r.s.Entry().Name, MaxAttempts))
			}
			if patient.IsZero() || at == calls.Lost {
				patient = r.patientUntil(at == calls.Lost)
			}
			if err := r.dispatch(ctx, c, at == calls.Lost, patient); err != nil {
				return tool.RemoteResult{}, r.refusedAgain(ctx, c, err)
			}
		case calls.Wait:
			if r.isDetached() {
				if asked, err := r.askByTask(ctx, c); err != nil {
					return tool.RemoteResult{}, err
				} else if asked {
					continue
				}
			} else if asked, err := r.hub.Suspend(r.rc, c); asked != nil {
				return tool.RemoteResult{Result: asked}, nil
			} else if err != nil {
				r.hub.Log.ErrorContext(ctx, "a client cannot be asked yet", "server", r.s.Entry().Name, "err", err)
				_ = r.hub.Pause(askRetry, ctx.Done()) // await returns what has ended it
			}
			if err := r.await(ctx, c, soonest); err != nil {
				return tool.RemoteResult{}, err
			}
		case calls.Forget, calls.Cancel, calls.Fail:
		}
	}
}

// askRetry is the pause after which a client is to be asked what could not be written down.
const askRetry = time.Second

// dispatch writes a call to a process that serves; it waits for one until patient.
func (r *request) dispatch(ctx context.Context, c *upstream.Call, again bool, patient time.Time) error {
	if r.rc.Params == nil {
		return fault.New(fault.ResourceExhausted, fault.Host, r.o.Operation(),
			"the daemon ended, and the request was too large to be kept for the next one: ask again")
	}
	if r.rc.Refuse != nil {
		if err := r.rc.Refuse(ctx); err != nil {
			return AsFault(err, r.o)
		}
	}
	starting := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithDeadlineCause(ctx, patient, lateError(func() *fault.Record {
			return fault.New(fault.Timeout, fault.Server, r.o.Operation(),
				"server %s has not come up within %v: the call was not made", r.s.Entry().Name, r.patience())
		}))
	}
	r.goes("")
	u, err := r.s.Ready(ctx, starting, r.rc.Caller)
	if err == nil {
		r.goes(u.ID)
		err = r.checkBlocked() // it may have been listed anew by a process that was just started
	}
	if err != nil {
		return AsFault(err, r.o)
	}
	if r.rc.Doubt != nil && !again {
		r.hub.Mu.Lock()
		doubt := c.Doubt
		r.hub.Mu.Unlock()
		if doubt != nil {
			if f := doubt(); f != nil {
				return f
			}
		}
	}
	u.AwaitLevel(ctx)
	timeout := r.s.Entry().Timeout
	until := time.Now().Add(timeout) // a server may hang that has yet to read what was said before
	rec := calls.Record{
		N: r.rc.N, Round: c.Key.Round, Session: r.rc.Caller.Session, ID: json.RawMessage(r.rc.ID),
		Kind: calls.KindCall, Name: r.o.Own,
		Contract: string(r.o.Remote.Contract), Identity: r.rc.Caller.Identity, DeadlineBootMS: bootclock.AtMS(until),
		ProxyPID: r.rc.Caller.PID, ProxyStart: r.rc.Caller.Start, Detached: r.isDetached(),
	}
	died, err := u.WriteCall(ctx, rec, c, r.o, r.marked(), again, until)
	faultpoint.At("hosted.dispatched")
	late := err != nil && !time.Now().Before(until) && ctx.Err() == nil
	if err == nil || !late && !supervisor.NotDispatched(err) {
		return nil // made, or on its way: what became of it will be told
	}
	if late {
		return r.unread(u, c, timeout, supervisor.NotDispatched(err))
	}
	r.hub.Mu.Lock()
	c.UnsentLocked(u)
	r.hub.Mu.Unlock()
	switch {
	case supervisor.Disowned(err):
		return tool.ErrStopping // the next daemon makes it
	case ctx.Err() != nil:
		return AsFault(context.Cause(ctx), r.o)
	}
	f, _ := errors.AsType[*fault.Record](err)
	ends := f != nil && f.Fault.Code == fault.ProcessFailure // its stdin is closed
	if f != nil && (f.Fault.Code != fault.TransportFailure && !ends && !died || f.Reason() == fault.Unreachable) {
		return f
	}
	ctx, cancel := starting(ctx)
	defer cancel()
	return AsFault(u.AwaitLost(ctx, ends), r.o)
}

// refusedAgain returns err, with which [request.dispatch] has failed, unless the call was made before:
// its process has died, and it was to be made again. Then whether it had its effect is not known,
// whatever keeps it from being made now.
func (r *request) refusedAgain(ctx context.Context, c *upstream.Call, err error) error {
	r.hub.Mu.Lock()
	lost, end := c.Phase() == calls.Lost, c.EndLocked()
	r.hub.Mu.Unlock()
	why, refused := errors.AsType[*fault.Record](err)
	if !lost || !refused || isAbandoned(ctx) || why.Fault.Code == fault.OutcomeUnknown {
		return err
	}
	f := upstream.UnknownFault(r.o.Operation(), end, false, 0)
	f.Fault.Detail += "; it may be made again, and cannot: " + why.Fault.Detail
	if why.Cause != nil {
		f.Cause = why.Cause
	}
	return f
}

// goes says to the breaker to which process the call goes now; "" if it waits for one.
func (r *request) goes(process string) {
	if r.turn != nil {
		r.turn.Goes(process)
	}
}

// marked returns the request. A tool call of a remote server says whether it may be made
// twice: only our process that asks that server can see that an answer was lost.
func (r *request) marked() *tool.RemoteCall {
	if !r.s.Entry().Remote || r.o.Method != mcp.ToolsCall {
		return r.rc
	}
	marked := *r.rc
	marked.Params = dialect.Repeats(r.rc.Params, r.o.Remote.Contract == tool.Convergent)
	return &marked
}

// unread makes a process suspect that has not read a call within the call's time. It
// returns the fault of the call; nil if the call has ended otherwise meanwhile. A call that was not sent was
// not made.
func (r *request) unread(u *upstream.Process, c *upstream.Call, timeout time.Duration, unsent bool) error {
	r.hub.Mu.Lock()
	u.SuspectLocked()
	at := c.Phase()
	r.hub.Mu.Unlock()
	switch {
	case unsent:
		return r.timedOut(nil, "the server has not read what it was told before within %v: the call was not made",
			timeout).WithReason(fault.NotAnswering)
	case at != calls.Open:
		return nil
	}
	return r.timedOut(c, "the server has not read the call within %v: the call was cancelled", timeout).
		WithReason(fault.NotAnswering)
}

// await waits until the call is not open any more, or has timed out, but not before
// soonest. ctx bounds all of the call's time.
func (r *request) await(ctx context.Context, c *upstream.Call, soonest time.Time) error {
	r.hub.Mu.Lock()
	done := c.Left()
	r.hub.Mu.Unlock()
	t := time.NewTimer(r.timeLeft(c, soonest))
	defer t.Stop()
	var late <-chan time.Time // when the call is to be detached
	if r.task != nil && !r.task.done {
		due := time.NewTimer(time.Until(r.task.due))
		defer due.Stop()
		late = due.C
	}
	for {
		select {
		case <-done:
			return nil
		case <-c.Asked:
			return nil
		case <-late:
			r.detach(c)
			return nil
		case <-c.Progress():
		case <-ctx.Done():
			if isOverdue(ctx) {
				return r.timedOut(c, "no answer within %v: the call was cancelled", r.s.Entry().MaxTimeout)
			}
			return AsFault(context.Cause(ctx), r.o)
		case <-t.C:
		}
		left := r.timeLeft(c, soonest)
		if left <= 0 {
			return r.timedOut(c, "no answer and no progress within %v: the call was cancelled", r.s.Entry().Timeout)
		}
		t.Reset(left)
	}
}

// timedOut returns the fault of a call that has timed out: c, if dispatched, else
// nil.
func (r *request) timedOut(c *upstream.Call, format string, args ...any) *fault.Record {
	f := fault.New(fault.Timeout, fault.Server, r.o.Operation(), format, args...)
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	if c != nil && c.Up != nil {
		f.Fault.Generation = c.Up.Generation
		if since := c.Up.SilentSinceLocked(); !since.IsZero() {
			f.Fault.Detail += fmt.Sprintf("; the server has not answered a ping for %v either: it hangs, "+
				"or does only one thing at a time", max(time.Since(since).Round(time.Second), time.Second))
			f = f.WithReason(fault.NotAnswering)
		}
	}
	if c != nil && !c.Repeats {
		return f.WithMayHaveActed()
	}
	return f
}

// fileOf returns the file in which the result of a call lies; nil if that is not known, or if
// equal calls may share the result.
func (r *request) fileOf(c *upstream.Call) *bulk.File {
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	if c.Repeats && c.AnswerSize() < maxShared {
		return nil
	}
	return c.FileLocked()
}

// sizeOf returns how many bytes an answer has.
func (r *request) sizeOf(c *upstream.Call) int64 {
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	return c.AnswerSize()
}

// isLarge reports whether an answer is so large that it is loaded only when its
// client gets it. A legacy client never gets an answer that asks for input, so that
// one is not.
func (r *request) isLarge(c *upstream.Call) bool {
	r.hub.Mu.Lock()
	result, size, limit := c.Answer.Result, c.AnswerSize(), int64(tool.LargeAnswer)
	if r.rc.Caller.Guest != "" {
		limit = tool.LargeForGuest
	}
	if c.Repeats {
		limit = maxShared
	}
	r.hub.Mu.Unlock()
	return size >= limit && (r.rc.Modern && !r.isDetached() || result == nil || !dialect.AsksForInput(result))
}

// loadAnswer returns the answer of a call that has one, or the fault that stands for it.
func (r *request) loadAnswer(c *upstream.Call) (tool.RemoteResult, error) {
	a, err := r.hub.Answer(c)
	if err != nil {
		code := fault.InternalFailure
		if errors.Is(err, calls.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
			code = fault.OutcomeUnknown
		}
		return tool.RemoteResult{}, fault.New(code, fault.Host, r.o.Operation(),
			"the call was made, and its kept answer cannot be read: %v", err)
	}
	proxied := Proxied(r.s, a.Error)
	if down := upstream.IsDown(proxied); r.s.Entry().Remote && (down || proxied == nil && a.Fault == nil) {
		r.hub.Mu.Lock()
		if c.Up != nil {
			c.Up.ReachedLocked(proxied)
		}
		r.hub.Mu.Unlock()
	}
	if f := cmp.Or(proxied, a.Fault); f != nil {
		if f.Reason() == fault.NotLoggedIn {
			r.hub.Mu.Lock()
			u := c.Up
			r.hub.Mu.Unlock()
			r.s.NotLoggedIn(u, f)
		}
		own := *f
		own.Operation = r.o.Operation()
		return tool.RemoteResult{}, &own
	}
	return tool.RemoteResult{Result: a.Result, Error: a.Error}, nil
}

// contain recovers a panic of a call: defer it. The panic condemns the process
// that has the call, and becomes the call's fault.
func (r *request) contain(res *tool.RemoteResult, err *error) {
	reason := recover() //nolint:revive // it is deferred itself: see the comment above
	if reason == nil {
		return
	}
	f := r.hub.Panicked(r.o.Remote.Server, "made a call", reason)
	f.Operation = r.o.Operation()
	*res, *err = tool.RemoteResult{}, f
	r.hub.LockOrPanic(reason)
	defer r.hub.Mu.Unlock()
	for _, c := range r.roundsLocked(r.rc.Caller.Session, r.rc.N) {
		c.OnProgress = nil
		c.Demand(calls.Return)
		if c.Up != nil {
			c.Up.CondemnLocked(f)
		}
	}
}

// resume continues a suspended call: the server gets the answers to its requests, and
// the client's new request waits for the call. The call is not made again.
func (r *request) resume(ctx context.Context, worker string, write int64) (tool.RemoteResult, error) {
	c, err := r.hub.Resumed(r.o, r.rc, worker, write)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	faultpoint.At("hosted.resumed")
	return r.follow(ctx, c)
}

// MaxAttempts bounds how often one call is dispatched to processes that die before
// they read it.
const MaxAttempts = 5

// maxShared is how large an answer may be that equal calls share, in bytes.
const maxShared = 8 << 20
