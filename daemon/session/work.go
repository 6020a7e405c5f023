package session

import (
	"context"
	"encoding/json"
	"errors"

	"holdline/daemon/calls"
	"holdline/daemon/session/crew"
	"holdline/daemon/session/flight"
	"holdline/daemon/session/outbox"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// enterFlight records r as in flight and sets r.flight; a cancellation calls cancel. At the
// client's limit it returns a resource_exhausted fault, and records nothing; a replayed request is
// refused by no limit. It takes s.mu.
func (s *session) enterFlight(r *request, subscription bool, cancel context.CancelCauseFunc) *fault.Record {
	goesOn, f := r.replay && s.mayGoOn(r), &flight.Flight{
		N: r.n, Subscription: subscription, Cancel: cancel, Late: s.guest != "",
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	most, ok := 0, true
	if goesOn {
		s.flights.Continue(r.msg.ID, f)
	} else {
		most, ok = s.flights.Enter(r.msg.ID, f)
	}
	if !ok {
		return fault.New(fault.ResourceExhausted, fault.Host, r.operation(),
			"%d calls of this agent are in flight, its limit: wait for one of them", most).
			WithLimit("calls in flight", most, most)
	}
	r.flight = f
	return nil
}

// mayGoOn reports whether r, a replayed request, goes on whatever calls are in flight: it may have had its
// effect. A guest could replay what it has never sent, so its request must be on record, as far as the
// records are read.
func (s *session) mayGoOn(r *request) bool {
	if s.guest == "" {
		return true
	}
	who := s.who()
	return s.srv.o.Executors.Recorded(s.hash, r.n) ||
		s.srv.o.Executors.Unread(calls.AnyServer, who.Project, who.Session, r.n) != nil
}

// endWork ends the work on r, whose context is ctx. It returns nil if the answer is still wanted: r
// is then Answering, and the caller must call [session.deliver]. Else it returns
// [outbox.ErrCancelled] or the cause of ctx. It takes s.mu.
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

// busy reports whether a request of that id is Running. It takes s.mu.
func (s *session) busy(id jsonrpc.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights.Find(id)
	return f != nil && f.At() == flight.Running
}

// startWork runs work and then finish in a goroutine of crew, and returns at once; r is in flight
// until work returns. why is nil if the client still wants the answer, else why the request has
// ended. An error of work matters only if it is [tool.ErrStopping]: it is then why. At the client's
// limit of calls in flight r is answered with a fault, and neither is called. Only the reader calls it; it takes s.mu.
func (s *session) startWork(
	ctx context.Context, r *request, crew *crew.Crew, work func(context.Context) error, finish func(why error),
) {
	callCtx, cancel := context.WithCancelCause(ctx)
	if f := s.enterFlight(r, false, cancel); f != nil {
		cancel(f)
		s.fail(ctx, r, f)
		return
	}
	s.running.Add(1)
	release := s.release // the goroutine holds the line
	s.release = nil
	crew.Go(func() {
		defer s.ended()
		defer cancel(nil)
		if release != nil {
			defer release()
		}
		if err := work(callCtx); errors.Is(err, tool.ErrStopping) {
			cancel(tool.ErrStopping)
		}
		why := s.endWork(callCtx, r)
		s.confirmCancelled(r)
		finish(why)
	})
}

// ended counts down the goroutines for requests, and wakes [session.drain] after the last one.
func (s *session) ended() {
	if s.running.Add(-1) == 0 {
		select {
		case s.quiet <- struct{}{}:
		default:
		}
	}
}

// confirmCancelled cancels the task of r and tells the executors to drop their records of r, if the
// client has cancelled r, which must have been in flight.
func (s *session) confirmCancelled(r *request) {
	if r.flight.At() == flight.Cancelled {
		s.cancelTask(r)
		s.srv.o.Executors.Confirmed(s.hash, r.n)
	}
}

// progressOf returns a function that queues a progress notification for r, with the client's token
// in its params; nil if the client wants none. The function never blocks: it drops the notification
// without a connection or room, or if r is no longer Running. r must be in flight.
func (s *session) progressOf(r *request) func(params json.RawMessage) {
	token := r.params.Meta.Progress
	if token == nil || (token[0] != '"' && token[0] != '-' && (token[0] < '0' || token[0] > '9')) {
		return nil
	}
	f := r.flight
	return func(params json.RawMessage) {
		params, err := jsonrpc.Replace(params, mcp.MetaProgress, token)
		if err == nil {
			line := s.numbered(jsonrpc.AppendRequest(nil, nil, mcp.ProgressNote, params), f.N)
			s.offerLine(append(line, '\n'), f.MayReport)
		}
	}
}
