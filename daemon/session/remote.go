package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// aside makes an answer that may take a while in a goroutine that calls waits
// for, as a request in flight: it can be cancelled.
func (s *session) aside(ctx context.Context, r *request, calls *sync.WaitGroup, find func(ctx context.Context) any) {
	callCtx, cancel := context.WithCancelCause(ctx)
	if f := s.enter(r.msg.ID, &inFlight{n: r.n, cancel: cancel}); f != nil {
		cancel(f)
		s.fail(ctx, r, f)
		return
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		defer cancel(nil)
		v := find(callCtx)
		if s.leave(callCtx, r.msg.ID) {
			s.answerJSON(ctx, r, v)
		}
	})
}

// remote begins a call of a tool that is not holdline's own.
func (s *session) remote(ctx context.Context, r *request, name string, calls *sync.WaitGroup) {
	s.passOn(ctx, r, name, nil, calls)
}

// passOn begins a call of a hosted server's tool, which is looked for if it is
// nil.
func (s *session) passOn(ctx context.Context, r *request, name string, t *tool.Remote, calls *sync.WaitGroup) {
	args := r.params.Arguments
	callCtx, cancel := context.WithCancelCause(ctx)
	progress := s.progressOf(r)
	if f := s.enter(r.msg.ID, &inFlight{n: r.n, cancel: cancel, progress: progress}); f != nil {
		cancel(f)
		s.fail(ctx, r, f)
		return
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		defer cancel(nil)
		t, res, err := s.pursue(callCtx, r, name, t, progress)
		progress.end()
		if errors.Is(err, tool.ErrStopping) {
			cancel(tool.ErrStopping) // the next daemon will be asked
		}
		var f *fault.Record
		if err != nil {
			f = fault.From(err, fault.Host, operation(name))
		}
		wanted := s.leave(callCtx, r.msg.ID)
		if !wanted {
			f = fault.New(fault.Cancelled, fault.Host, operation(name), "%v", context.Cause(callCtx))
		}
		s.countCall(r, name, t != nil, f, res.Replays)
		s.logCall(r, name, args, f, res.Replays)
		if wanted {
			s.pass(ctx, r, t != nil, res, f)
		}
	})
}

// pursue finds the tool, unless it is known, and calls it.
func (s *session) pursue(ctx context.Context, r *request, name string, t *tool.Remote, progress *progress) (
	*tool.Remote, tool.RemoteResult, error,
) {
	who := s.who()
	if t == nil {
		var err error
		if t, err = s.srv.o.Catalog.Find(ctx, who, name); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, tool.RemoteResult{}, err
		}
	}
	if f := s.doubtful(r, t.Contract, name); f != nil {
		return t, tool.RemoteResult{}, f
	}
	s.calls.Add(1)
	c := tool.RemoteCall{Caller: who, N: r.n, ID: string(r.msg.ID), Params: r.msg.Params, Modern: r.modern, Replay: r.replay}
	if progress != nil {
		c.Progress = progress.pass
	}
	res, err := t.Handle(ctx, c)
	return t, res, err
}

// pass gives the client what a server answered, as it came.
func (s *session) pass(ctx context.Context, r *request, known bool, res tool.RemoteResult, f *fault.Record) {
	var line []byte
	switch {
	case f != nil && !known:
		s.refuse(ctx, r.n, r.msg.ID, f)
		return
	case f != nil:
		line = jsonrpc.AppendResult(nil, r.msg.ID, s.dress(r, tool.EncodeFault(f)))
	case res.Error != nil:
		line = jsonrpc.AppendFailure(make([]byte, 0, len(res.Error)+128), r.msg.ID, res.Error)
	default:
		if r.modern && len(res.Result) > 0 && res.Result[0] == '{' && jsonrpc.Field(res.Result, "resultType") == nil {
			res.Result = jsonrpc.Prepend(res.Result, `"resultType":"complete"`)
		}
		line = jsonrpc.AppendResult(make([]byte, 0, len(res.Result)+128), r.msg.ID, res.Result)
	}
	s.deliver(ctx, r.n, line, true)
}

// listen begins a subscription: it is acknowledged, and stays open until the
// client cancels it or goes. One that an earlier daemon had acknowledged is
// acknowledged again.
func (s *session) listen(ctx context.Context, r *request) {
	if r.params.Notifications == nil || r.params.Notifications[0] != '{' {
		s.fail(ctx, r, fault.New(fault.InvalidInput, fault.Protocol, r.operation(), "params.notifications must be an object"))
		return
	}
	id := append(jsonrpc.ID(nil), r.msg.ID...)
	key := id.Key()
	end := func(error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listens, key)
	}
	if f := s.enter(id, &inFlight{n: r.n, cancel: end}); f != nil {
		s.fail(ctx, r, f)
		return
	}
	granted := "{}"
	wants := string(jsonrpc.Field(r.params.Notifications, "toolsListChanged")) == "true"
	if wants {
		granted = `{"toolsListChanged":true}`
	}
	s.count(r, nil)
	s.put(ctx, 0, jsonrpc.AppendRequest(nil, nil, mcp.Acknowledged,
		fmt.Appendf(nil, `{"_meta":{%q:%s},"notifications":%s}`, mcp.MetaSubscription, id, granted)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if wants && s.inFlight[key] != nil {
		s.listens[key] = id
	}
}

// respond takes the client's answer to a request of a server.
func (s *session) respond(n int64, msg jsonrpc.Message) {
	if s.srv.o.Hosted == nil || !s.srv.o.Hosted.Respond(s.hash, n, msg) {
		s.Seen(n) // nobody waits for it
	}
}

// Caller is the session as it is known now.
func (s *session) Caller() tool.Caller { return s.who() }

// Capabilities are those that the client declared.
func (s *session) Capabilities() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capabilities
}

// Ask queues a request of a server for the client.
func (s *session) Ask(line []byte) bool {
	s.mu.Lock()
	l := s.cur
	s.mu.Unlock()
	if l == nil {
		return false
	}
	l.out.offer(append(append(make([]byte, 0, len(line)+1), line...), '\n'))
	return true
}

// ListChanged says that the list of tools is not what it was: to a legacy
// client at once, to a modern one in each of its subscriptions.
func (s *session) ListChanged() {
	s.mu.Lock()
	era := s.era
	var ids []jsonrpc.ID
	for _, id := range s.listens {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	if era == legacy {
		s.offer(append(jsonrpc.AppendRequest(nil, nil, mcp.ToolsChanged, nil), '\n'))
		return
	}
	for _, id := range ids {
		params := fmt.Appendf(nil, `{"_meta":{%q:%s}}`, mcp.MetaSubscription, id)
		s.offer(append(jsonrpc.AppendRequest(nil, nil, mcp.ToolsChanged, params), '\n'))
	}
}
