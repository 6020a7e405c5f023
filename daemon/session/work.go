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

// enterFlight records r as a request in flight. It returns a fault, and records nothing,
// if the client has as many as it may have.
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

// endWork ends the work on a request. It returns nil if the answer is still wanted: then
// the caller must call [session.deliver], and until that has queued the answer the client
// can cancel it. Else it returns why the request has ended.
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

// busy reports whether a request of that id is in flight.
func (s *session) busy(id jsonrpc.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights.Find(id)
	return f != nil && f.At() == flight.Running
}

// startWork runs work in a goroutine of calls; the request is in flight until work
// returns. Then, in the same goroutine, it calls finish: the client still wants the
// answer if why is nil, else why says why the request has ended. An error of work matters
// only if it is [tool.ErrStopping]: then the next daemon answers.
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

// ended counts the end of a goroutine for a request.
func (s *session) ended() {
	if s.running.Add(-1) == 0 {
		select {
		case s.quiet <- struct{}{}:
		default:
		}
	}
}

// confirmCancelled drops the records of a request if it was cancelled, as if its client
// held the answer.
func (s *session) confirmCancelled(r *request) {
	if r.flight.At() == flight.Cancelled {
		s.cancelTask(r)
		s.srv.o.Executors.Confirmed(s.hash, r.n)
	}
}

// progressOf returns the function that passes on progress of a request: the params
// of a notification, in which it puts the client's token. It never blocks. It is nil
// if the client did not ask for progress.
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
