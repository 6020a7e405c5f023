package session

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// input is what a call's arguments were, taken apart.
type input struct {
	args   json.RawMessage
	render tool.Render
	detail tool.Detail
}

// call begins a tool call: its input is checked here, in order; the tool runs
// in a goroutine that calls waits for.
func (s *session) call(ctx context.Context, r *request, calls *crew) {
	who := s.who()
	name, ok := mcp.String(r.params.Name)
	if !ok {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, mcp.ToolsCall, "params.name must be a string"))
		return
	}
	t := s.srv.o.Catalog.Own(who.Identity, name)
	if indirect := s.srv.o.Catalog.Indirect(name); t == nil && indirect != nil && s.recorded(r.n) {
		t = indirect // it was offered when the call was begun
	}
	switch {
	case t == nil || !who.SeesOwn():
		s.remote(ctx, r, name, calls)
		return
	case t.Tool.Inner != nil:
		s.inner(ctx, r, t, calls)
		return
	}
	args := r.params.Arguments
	if args != nil && string(args) != "null" && args[0] != '{' {
		f := fault.New(fault.InvalidInput, fault.Protocol, operation(name), "params.arguments must be an object")
		s.countCall(r, name, f, 0)
		s.logCall(r, name, nil, f, 0)
		s.refuse(ctx, r.n, r.msg.ID, f)
		return
	}
	in := input{}
	if f := s.doubtful(r, t.Tool.Contract, t.Tool.Name); f != nil {
		s.finish(ctx, r, t, in, tool.Result{}, f)
		return
	}
	var err error
	if in.args, in.render, in.detail, err = t.Parse(args); err != nil {
		s.finish(ctx, r, t, in, tool.Result{}, err)
		return
	}
	s.run(ctx, r, t, in, t.Tool.Handle, calls)
}

// run lets handle answer a call whose input was checked, in a goroutine that
// calls waits for.
func (s *session) run(ctx context.Context, r *request, t *tool.Prepared, in input,
	handle func(context.Context, tool.Call) (tool.Result, error), calls *crew,
) {
	name := t.Tool.Name
	callCtx, cancel := context.WithCancelCause(ctx)
	progress := s.progressOf(r)
	if f := s.enter(r, &inFlight{n: r.n, cancel: cancel, progress: progress}); f != nil {
		cancel(f)
		s.finish(ctx, r, t, in, tool.Result{}, f)
		return
	}
	s.calls.Add(1)
	c := tool.Call{Caller: s.who(), N: r.n, ID: string(r.msg.ID), Args: in.args, Detail: in.detail}
	if progress != nil {
		c.Progress = progress.send
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		defer cancel(nil)
		res, err := tool.Result{}, tool.ErrStopping
		if s.srv.o.Still() {
			res, err = handle(callCtx, c)
		}
		faultpoint.At("session.handled")
		progress.end()
		if errors.Is(err, tool.ErrStopping) {
			cancel(tool.ErrStopping) // the next daemon will be asked
		}
		if cause := context.Cause(callCtx); !s.leave(callCtx, r) {
			// Cancelled, or the client is gone: nobody waits for an answer.
			f := fault.New(fault.Cancelled, fault.Host, operation(name), "%v", cause)
			s.countCall(r, name, f, res.Replays)
			s.logCall(r, name, in.args, f, res.Replays)
			s.forget(r)
			return
		}
		s.finish(ctx, r, t, in, res, err)
	})
}

// ended is the end of a call's goroutine.
func (s *session) ended() {
	if s.running.Add(-1) == 0 {
		select {
		case s.quiet <- struct{}{}:
		default:
		}
	}
}

// enter notes r as a call in flight, or says why it may not be.
func (s *session) enter(r *request, call *inFlight) *fault.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := s.srv.inFlight.Load(); s.agent.calls.Add(1) > most {
		s.agent.calls.Add(-1)
		return fault.New(fault.ResourceExhausted, fault.Host, mcp.ToolsCall,
			"%d calls of this agent are in flight, its limit: wait for one of them", most).
			WithLimit("calls in flight", int(most), int(most))
	}
	s.inFlight[r.msg.ID.Key()] = call
	r.flight = call
	return nil
}

// leave ends a call in flight and tells whether its answer is still wanted.
// Then it must be delivered, and can be cancelled until it is.
func (s *session) leave(callCtx context.Context, r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if callCtx.Err() != nil {
		// A cancellation has removed the entry already, and the id may be in
		// use again; else the session is ending.
		if !errors.Is(context.Cause(callCtx), errCancelled) {
			s.removeLocked(r.msg.ID.Key())
		}
		return false
	}
	s.removeLocked(r.msg.ID.Key())
	s.leaving[r.msg.ID.Key()] = r.flight
	return true
}

// through says that a call's answer is queued, or never will be.
func (s *session) through(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := r.msg.ID.Key(); s.leaving[key] == r.flight {
		delete(s.leaving, key)
	}
}

// drop cancels the call: nothing more may be sent for it.
func (c *inFlight) drop() {
	c.renounce()
	c.progress.end()
	c.cancel(errCancelled)
}

// renounce lets nothing of the call be queued from now on.
func (c *inFlight) renounce() {
	c.unwanted.Store(true)
	if c.progress != nil {
		c.progress.unwanted.Store(true)
	}
}

// finish answers a call with a tool result, be it good or a fault.
func (s *session) finish(ctx context.Context, r *request, t *tool.Prepared, in input, res tool.Result, err error) {
	name := t.Tool.Name
	f := res.Fault
	if err != nil {
		f = fault.From(err, fault.Host, operation(name))
		res.Fault = f
	}
	if f != nil && f.Operation == mcp.ToolsCall {
		f.Operation = operation(name)
	}
	result := t.Encode(res, nil, in.render, in.detail)
	s.countCall(r, name, f, res.Replays)
	s.logCall(r, name, in.args, f, res.Replays)
	s.deliver(ctx, r, jsonrpc.AppendResult(make([]byte, 0, len(result)+128), r.msg.ID, s.dress(r, result)), true)
}

func operation(name string) string { return mcp.ToolsCall + ":" + name }

// noSuchTool stands for all names of tools that clients made up.
const noSuchTool = "(unknown)"

// countCall counts a call of the daemon's own tool.
func (s *session) countCall(r *request, name string, f *fault.Record, replays int) {
	s.srv.o.Telemetry.Request(mcp.ToolsCall, "", name, time.Since(r.begin), replays, f)
}

func (s *session) logCall(r *request, name string, args json.RawMessage, f *fault.Record, replays int) {
	s.srv.o.Telemetry.ToolCall(s.toolCall(r, name, args, f, replays))
}

func (s *session) toolCall(r *request, name string, args json.RawMessage, f *fault.Record, replays int) ToolCall {
	return ToolCall{
		Caller: s.who(), RequestID: string(r.msg.ID), Tool: clip(name), Arguments: args,
		Took: time.Since(r.begin), Replays: replays, Fault: f,
	}
}

// progress sends the progress of one call. A nil one sends nothing.
type progress struct {
	s        *session
	token    json.RawMessage
	unwanted atomic.Bool // the call is cancelled

	mu    sync.Mutex
	last  float64
	begun bool
	ended bool
}

// progressOf is nil if the client did not ask for progress.
func (s *session) progressOf(r *request) *progress {
	token := r.params.Meta.Progress
	if token == nil || (token[0] != '"' && token[0] != '-' && (token[0] < '0' || token[0] > '9')) {
		return nil
	}
	return &progress{s: s, token: token}
}

// send queues a notification, if the value is higher than the last one and
// there is room in the queue. It never blocks.
func (p *progress) send(value, total float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || (p.begun && value <= p.last) {
		return
	}
	p.last, p.begun = value, true
	params := append([]byte(`{"progressToken":`), p.token...)
	params = strconv.AppendFloat(append(params, `,"progress":`...), value, 'f', -1, 64)
	if total > 0 {
		params = strconv.AppendFloat(append(params, `,"total":`...), total, 'f', -1, 64)
	}
	if message != "" {
		if text, err := json.Marshal(message); err == nil {
			params = append(append(params, `,"message":`...), text...)
		}
	}
	line := jsonrpc.AppendRequest(nil, nil, mcp.ProgressNote, append(params, '}'))
	p.s.offer(append(line, '\n'), &p.unwanted)
}

// pass queues a notification of a hosted server: its params with the client's
// token in the place of the server's. It never blocks.
func (p *progress) pass(params json.RawMessage) {
	params, err := jsonrpc.Rewrite(params, func(key string, value []byte) []byte {
		if key == mcp.MetaProgress {
			return p.token
		}
		return value
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && !p.ended {
		p.s.offer(append(jsonrpc.AppendRequest(nil, nil, mcp.ProgressNote, params), '\n'), &p.unwanted)
	}
}

// end makes send do nothing: no progress may follow the answer, nor a
// cancellation.
func (p *progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}
