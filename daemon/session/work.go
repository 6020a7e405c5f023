package session

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/outbox"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// enterFlight records r as a request in flight and sets r.flight. cancel is called when the
// client cancels r. enterFlight returns a resource_exhausted fault, and records nothing, if the
// client has as many calls in flight as it may have. It takes s.mu.
func (s *session) enterFlight(r *request, subscription bool, cancel context.CancelCauseFunc) *fault.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &flight.Flight{N: r.n, Subscription: subscription, Cancel: cancel}
	if most, ok := s.flights.Enter(r.msg.ID, f); !ok {
		return fault.New(fault.ResourceExhausted, fault.Host, r.operation(),
			"%d calls of this agent are in flight, its limit: wait for one of them", most).
			WithLimit("calls in flight", most, most)
	}
	r.flight = f
	return nil
}

// endWork ends the work on r; ctx is that of the work. It returns nil if the answer is still
// wanted: r is then Answering, and the caller must call [session.deliver]; until that has queued
// the answer the client can cancel r. Else it returns why there is no answer:
// [outbox.ErrCancelled], or the cause of ctx. It takes s.mu.
func (s *session) endWork(ctx context.Context, r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.flight.At() == flight.Cancelled: // ctx is done in a moment
		return outbox.ErrCancelled
	case ctx.Err() != nil:
		s.flights.Move(r.flight, flight.Finished)
		return context.Cause(ctx)
	}
	s.flights.Move(r.flight, flight.Answering)
	return nil
}

// busy reports whether a request of that id is still being worked on. One whose answer is about
// to be queued does not count. It takes s.mu.
func (s *session) busy(id jsonrpc.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights.Find(id)
	return f != nil && f.At() == flight.Running
}

// startWork runs work in a goroutine of calls, and returns at once; r is in flight until work
// returns. Then, in the same goroutine, it calls finish: the client still wants the answer if why
// is nil, else why says why the request has ended. An error of work matters only if it is
// [tool.ErrStopping]: then why is that, and the next daemon answers. If the client has as many
// calls in flight as it may have, startWork answers r with a fault, and calls neither work nor
// finish. It takes s.mu.
func (s *session) startWork(
	ctx context.Context, r *request, calls *crew.Crew, work func(context.Context) error, finish func(why error),
) {
	callCtx, cancel := context.WithCancelCause(ctx)
	if f := s.enterFlight(r, false, cancel); f != nil {
		cancel(f)
		s.fail(ctx, r, f)
		return
	}
	s.running.Add(1)
	calls.Go(func() {
		defer s.ended()
		defer cancel(nil)
		if err := work(callCtx); errors.Is(err, tool.ErrStopping) {
			cancel(tool.ErrStopping)
		}
		why := s.endWork(callCtx, r)
		s.confirmCancelled(r)
		finish(why)
	})
}

// ended counts down the goroutines for requests. After the last one it wakes [session.drain]. It
// does not block.
func (s *session) ended() {
	if s.running.Add(-1) == 0 {
		select {
		case s.quiet <- struct{}{}:
		default:
		}
	}
}

// confirmCancelled does nothing unless the client has cancelled r, which must be or have been in
// flight. Then it cancels the task of r, if r became one, and tells the executors to drop their
// records of r, as if the client held the answer.
func (s *session) confirmCancelled(r *request) {
	if r.flight.At() == flight.Cancelled {
		s.cancelTask(r)
		s.srv.o.Executors.Confirmed(s.hash, r.n)
	}
}

// progressOf returns a function that queues a progress notification for r; its argument is the
// params, in which it puts the client's token. The function never blocks: it drops the
// notification if the client is not connected, there is no room, or r is no longer Running.
// progressOf returns nil if the client did not ask for progress. r must be in flight.
func (s *session) progressOf(r *request) func(params json.RawMessage) {
	token := r.params.Meta.Progress
	if token == nil || (token[0] != '"' && token[0] != '-' && (token[0] < '0' || token[0] > '9')) {
		return nil
	}
	f := r.flight
	return func(params json.RawMessage) {
		params, err := jsonrpc.Replace(params, mcp.MetaProgress, token)
		if err == nil {
			s.offerLine(append(jsonrpc.AppendRequest(nil, nil, mcp.ProgressNote, params), '\n'), f.MayReport)
		}
	}
}
