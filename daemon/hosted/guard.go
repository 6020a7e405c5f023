package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of the calls that wait for a process of a server.
const (
	maxWaiting     = 1024
	maxWaitingEach = 256 // of one session
)

// maxBudgets bounds the budgets that are counted at once.
const maxBudgets = 4096

// guards protect an instance, and its callers. restarts ejects a server that fails
// too often, breaker refuses calls after failures in a row, and gate bounds the calls
// at once.
type guards struct {
	restarts *policy.Restarts
	breaker  *policy.Breaker
	gate     *policy.Gate
}

func newGuards(spec *Spec) guards {
	return guards{
		restarts: policy.NewRestarts(spec.MaxRestarts, spec.RestartWindow, rand.Float64),
		breaker:  policy.NewBreaker(spec.Name, spec.CircuitThreshold, spec.CircuitReset),
		gate:     policy.NewGate(gateOf(spec)),
	}
}

func gateOf(spec *Spec) policy.GateOptions {
	return policy.GateOptions{
		Server: spec.Name, InFlight: spec.MaxConcurrent, Queue: maxWaiting,
		PerSession: maxWaitingEach,
	}
}

// An answerError is a JSON-RPC error that the server has answered. As an error it
// keeps the cache from storing the answer. It is no failure of the server's process.
type answerError struct{ raw json.RawMessage }

func (e *answerError) Error() string {
	return "the server answered with an error: " + fault.Quote(e.raw)
}

// handleOffer makes a call of an offer. The server that is configured under the
// offer's name now gets it.
func (m *Manager) handleOffer(ctx context.Context, o *listing.Offer, rc *tool.RemoteCall) (tool.RemoteResult, error) {
	s, err := m.server(o.Remote.Server)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	return m.handle(ctx, s, o, rc)
}

// handle makes a call: it checks budget, cache, breaker and queue, in that order,
// then takes the call to the server. A call that was already dispatched, perhaps by
// an earlier daemon, goes straight to its answer: it must not be refused or counted
// again.
func (m *Manager) handle(
	ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall,
) (res tool.RemoteResult, err error) {
	defer m.containCall(rc, o, &res, &err)
	if rc.Sent.IsZero() {
		rc.Sent = time.Now()
	}
	ctx, cancel := s.bounded(ctx, o, rc)
	defer cancel()
	if worker, write, ok := dialect.RetryOf(rc); ok && write == 0 {
		return tool.RemoteResult{Error: json.RawMessage(strangeState)}, nil
	} else if ok {
		return m.resume(ctx, s, o, rc, worker, write)
	}
	if _, recorded := m.Recall(rc.Caller.Session, rc.N); recorded {
		return m.call(ctx, s, o, rc)
	}
	who := &rc.Caller
	if err := s.checkBlocked(who, o); err != nil {
		return tool.RemoteResult{}, err
	}
	if m.o.Budget != nil && !rc.Replay {
		if err := m.budget.Charge(cmp.Or(who.Agent, who.Session), who.Identity, o.Remote.Name,
			m.o.Budget(who.Identity)); err != nil {
			return tool.RemoteResult{}, err
		}
	}
	if o.Remote.Contract != tool.Convergent || o.Method != mcp.ToolsCall || dialect.IsRetry(rc.Params) {
		return m.protected(ctx, s, o, rc)
	}
	q := policy.Query{
		Identity: who.Identity, Server: s.spec.Name, Tool: o.Own, Process: s.instanceKey(who).of,
		Arguments: jsonrpc.Field(rc.Params, "arguments"),
	}
	result, source, err := m.cache.Do(ctx, q, func(ctx context.Context) (json.RawMessage, error) {
		var err error
		if res, err = m.protected(ctx, s, o, rc); err == nil && res.Error != nil {
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
	return tool.RemoteResult{Result: result, Replays: res.Replays, Cache: string(source)}, asFault(err, o)
}

// protected makes a call if the breaker allows it, after it has waited for its turn
// in the queue. It reports the result to the breaker.
func (m *Manager) protected(
	ctx context.Context, s *server, o *listing.Offer, rc *tool.RemoteCall,
) (tool.RemoteResult, error) {
	g, err := s.guards(&rc.Caller)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	turn, err := g.breaker.Allow(time.Now(), o.Remote.Name)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	leave, err := g.gate.Enter(ctx, rc.Caller.Session, o.Remote.Name)
	if err != nil {
		turn.Cancel()
		return tool.RemoteResult{}, asFault(err, o)
	}
	defer leave()
	ended := false
	defer func() {
		if !ended { // it has panicked
			turn.Cancel()
		}
	}()
	res, err := m.call(ctx, s, o, rc)
	ended = true
	tell(ctx, turn, err)
	return res, err
}

// guards returns the guards of the instance that a caller uses.
func (s *server) guards(c *tool.Caller) (guards, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	inst, err := s.useLocked(c)
	if err != nil {
		return guards{}, err
	}
	return inst.guards, nil
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

// listFor starts a server that has never listed, and waits for its lists, on behalf
// of a call of the tool name. The breaker counts it as a call.
func (s *server) listFor(ctx context.Context, c tool.Caller, name string) error {
	g, err := s.guards(&c)
	if err != nil {
		return err
	}
	turn, err := g.breaker.Allow(time.Now(), name)
	if err != nil {
		return err
	}
	_, err = s.ready(ctx, c)
	tell(ctx, turn, err)
	if err != nil {
		return asFault(err, &listing.Offer{Remote: tool.Remote{Name: name}})
	}
	return nil
}

// follow takes over changed limits. A guard whose limits have changed starts without
// its history.
func (g *guards) follow(was, is *Spec) {
	fresh := newGuards(is)
	if was.MaxRestarts != is.MaxRestarts || was.RestartWindow != is.RestartWindow {
		g.restarts = fresh.restarts
	}
	if was.CircuitThreshold != is.CircuitThreshold || was.CircuitReset != is.CircuitReset {
		g.breaker = fresh.breaker
	}
	g.gate.Resize(gateOf(is))
}

// blames reports whether an error is a failure of the server's process, rather than
// of a caller or of Holdline.
func blames(err error) bool {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok {
		return false
	}
	switch f.Fault.Code {
	case fault.SpawnFailure, fault.ProcessFailure, fault.TransportFailure, fault.OutcomeUnknown, fault.Timeout:
		return true
	default:
		return false
	}
}
