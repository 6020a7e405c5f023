package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of the calls that wait for a process of a server.
const (
	maxWaiting     = 1024
	maxWaitingEach = 256 // of one session
)

// Guards protect the processes of a scope, and their callers.
type Guards struct {
	Restarts *policy.Restarts // ejects a server that fails too often
	Breaker  *policy.Breaker  // refuses calls after failures in a row
	Gate     *policy.Gate     // bounds the calls at once

	Down *fault.Record // why the server, or the machine that it runs on, cannot be reached; nil if it can
}

// AddTo adds what the guards of one instance say to the status of its server.
func (g *Guards) AddTo(st *control.Server, now time.Time) {
	st.Restarts += g.Restarts.Count(now)
	inside, waiting := g.Gate.Load()
	st.InFlight += inside
	st.Queued += waiting
	circuit, failures := g.Breaker.State(now)
	if st.Failures = max(st.Failures, failures); circuit != policy.Closed {
		st.Circuit = string(circuit)
	}
	st.Ejected = st.Ejected || g.Restarts.Ejected()
}

// NewGuards returns guards with the limits of a server.
func NewGuards(s *entry.Server) Guards {
	return Guards{
		Restarts: policy.NewRestarts(s.MaxRestarts, s.RestartWindow, rand.Float64),
		Breaker:  policy.NewBreaker(s.Name, s.CircuitThreshold, s.CircuitReset),
		Gate:     policy.NewGate(gateOf(s)),
	}
}

// gateOf returns the options of the gate of a server.
func gateOf(s *entry.Server) policy.GateOptions {
	return policy.GateOptions{
		Server: s.Name, InFlight: s.MaxConcurrent, Queue: maxWaiting, PerSession: maxWaitingEach,
	}
}

// Follow takes over changed limits. A guard whose limits have changed starts without
// its history.
func (g *Guards) Follow(was, is *entry.Server) {
	fresh := NewGuards(is)
	if was.MaxRestarts != is.MaxRestarts || was.RestartWindow != is.RestartWindow {
		g.Restarts = fresh.Restarts
	}
	if was.CircuitThreshold != is.CircuitThreshold || was.CircuitReset != is.CircuitReset {
		g.Breaker = fresh.Breaker
	}
	g.Gate.Resize(gateOf(is))
}

// allow is [policy.Breaker.Allow] for a call of the tool name. While the server cannot be reached, a refusal says so
// first: how often that has failed is of no use to anybody.
func (g *Guards) allow(name string) (*policy.Turn, error) {
	turn, err := g.Breaker.Allow(time.Now(), name)
	if f, ok := errors.AsType[*fault.Record](err); ok && g.Down != nil {
		f.Fault.Detail = g.Down.Fault.Detail + "; " + f.Fault.Detail
		return nil, f.WithReason(fault.Unreachable)
	}
	return turn, err
}

// handle makes a call: it checks budget, cache, breaker and queue, in that order,
// then takes the call to the server. A call that was already dispatched, perhaps by
// an earlier daemon, goes straight to its answer: it must not be refused or counted
// again.
func (r *request) handle(ctx context.Context) (res tool.RemoteResult, err error) {
	defer r.contain(&res, &err)
	if r.rc.Sent.IsZero() {
		r.rc.Sent = time.Now()
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if worker, write, ok := dialect.RetryOf(r.rc); ok && write == 0 {
		return tool.RemoteResult{Error: json.RawMessage(strangeState)}, nil
	} else if ok {
		return r.resume(ctx, worker, write)
	}
	r.hub.Mu.Lock()
	recorded := r.callLocked(0) != nil
	r.hub.Mu.Unlock()
	if recorded {
		return r.call(ctx)
	}
	who := &r.rc.Caller
	if err := r.checkBlocked(); err != nil {
		return tool.RemoteResult{}, err
	}
	if r.most != nil && !r.rc.Replay {
		if err := r.budget.Charge(cmp.Or(who.Agent, who.Session), who.Identity, r.o.Remote.Name,
			r.most(who.Identity)); err != nil {
			return tool.RemoteResult{}, err
		}
	}
	if r.o.Remote.Contract != tool.Convergent || r.o.Method != mcp.ToolsCall || dialect.IsRetry(r.rc.Params) {
		return r.protected(ctx)
	}
	q := policy.Query{
		Identity: who.Identity, Server: r.s.Entry().Name, Tool: r.o.Own, Process: r.s.Scope(who),
		Arguments: jsonrpc.Field(r.rc.Params, "arguments"),
	}
	result, source, err := r.cache.Do(ctx, q, func(ctx context.Context) (json.RawMessage, error) {
		var err error
		if res, err = r.protected(ctx); err == nil && res.Error != nil {
			err = &answerError{res.Error}
		}
		return res.Result, err
	})
	if answer, ok := errors.AsType[*answerError](err); ok {
		return tool.RemoteResult{Error: answer.raw, Replays: res.Replays}, nil
	}
	if err == nil && res.Load != nil { // it was not shared
		return res, nil
	}
	return tool.RemoteResult{Result: result, Replays: res.Replays, Cache: string(source)}, AsFault(err, r.o)
}

// checkBlocked returns the fault of a tool that differs from its pin and is blocked,
// else nil. It looks at what the caller is offered now, since the server may have
// listed the tool again after the offer was made: see [listing.ServerView.Blocked].
func (r *request) checkBlocked() error {
	if r.o.Method != mcp.ToolsCall || !r.s.Entry().BlockChanged {
		return nil
	}
	view := r.s.View(&r.rc.Caller)
	if f := view.Blocked(cmp.Or(view.Offering.Find(listing.Tools, r.o.Own, true), r.o)); f != nil {
		return f
	}
	return nil
}

// protected makes a call if the breaker allows it, after it has waited for its turn
// in the queue. It reports the result to the breaker.
func (r *request) protected(ctx context.Context) (tool.RemoteResult, error) {
	g, err := r.s.Guards(&r.rc.Caller)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	turn, err := g.allow(r.o.Remote.Name)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	if err := g.Gate.Enter(ctx, r.rc.Caller.Session, r.o.Remote.Name); err != nil {
		turn.Cancel()
		return tool.RemoteResult{}, AsFault(err, r.o)
	}
	defer g.Gate.Leave()
	ended := false
	defer func() {
		if !ended { // it has panicked
			turn.Cancel()
		}
	}()
	r.turn = turn
	res, err := r.call(ctx)
	ended = true
	tell(ctx, turn, err)
	return res, err
}

// An answerError is a JSON-RPC error that the server has answered. As an error it
// keeps the cache from storing the answer. It is no failure of the server's process.
type answerError struct{ raw json.RawMessage }

// Error says what the server answered.
func (e *answerError) Error() string {
	return "the server answered with an error: " + fault.Quote(e.raw)
}

// tell reports the end of a call to the breaker. A call that its client gave up says
// nothing about the server.
func tell(ctx context.Context, turn *policy.Turn, err error) {
	switch {
	case err == nil:
		turn.Success()
	case !isAbandoned(ctx) && blames(err):
		turn.Failure(time.Now())
	default:
		turn.Cancel()
	}
}

// blames reports whether an error is a failure of the server's process, rather than
// of a caller or of Holdline.
func blames(err error) bool {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok {
		return false
	}
	if f.RetryAfterMS != nil { // such as a login that cannot be renewed now: the circuit would only hide why
		return false
	}
	switch f.Fault.Code {
	case fault.SpawnFailure, fault.ProcessFailure, fault.TransportFailure, fault.OutcomeUnknown, fault.Timeout:
		return true
	default:
		return false
	}
}

// maxBudgets bounds the budgets that are counted at once.
const maxBudgets = 4096

// Try makes a server ready on behalf of a call of the tool name. The breaker counts that
// as a call.
func Try(ctx context.Context, s Server, c tool.Caller, name string) error {
	g, err := s.Guards(&c)
	if err != nil {
		return err
	}
	turn, err := g.allow(name)
	if err != nil {
		return err
	}
	_, err = s.Ready(ctx, nil, c)
	tell(ctx, turn, err)
	return AsFault(err, &listing.Offer{Remote: tool.Remote{Name: name}})
}
