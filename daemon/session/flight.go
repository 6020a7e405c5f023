package session

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/outbox"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A flight is a request that is not answered yet. It is in session.flights, under
// its key, while it is running or answering, unless a later request takes its key.
type flight struct {
	n            int64                   // number of the client's line
	key          string                  // of the request's id: equal ids have equal keys
	subscription bool                    // stays open until the client cancels it
	cancel       context.CancelCauseFunc // ends the work on the request
	phase        atomic.Int32            // a flightPhase; changed by [session.moveLocked] alone
}

// flightPhase is where a request in flight stands.
//
//	running   -> answering: its answer is made, and is about to be queued
//	running   -> cancelled: its client cancelled it, or came back without waiting for it
//	running   -> finished:  the session ends, or the daemon leaves it to the next one
//	answering -> cancelled: as above, before the answer was queued: it never will be
//	answering -> finished:  its answer is queued, or kept for the next connection
//
// An outbox reads the phase under its own lock whenever it takes a line for the
// flight. So no progress follows an answer, and nothing at all a cancellation.
type flightPhase int32

const (
	running flightPhase = iota
	answering
	cancelled
	finished
)

// at returns the phase. It may change at once, unless the caller holds session.mu.
func (f *flight) at() flightPhase { return flightPhase(f.phase.Load()) }

// mayReport reports whether progress of the flight may still be sent.
func (f *flight) mayReport() bool { return f.at() == running }

// mayAnswer reports whether the answer to the flight may still be sent.
func (f *flight) mayAnswer() bool { return f.at() != cancelled }

// moveLocked changes the phase of a flight, and reports whether that was possible.
// Only running flights count against the limit of the client; those that are over
// leave session.flights. The caller must hold s.mu.
func (s *session) moveLocked(f *flight, to flightPhase) bool {
	from := f.at()
	if from != running && (from != answering || to == answering) {
		return false
	}
	if from == running {
		s.agent.EndCall()
	}
	f.phase.Store(int32(to))
	if to != answering && s.flights[f.key] == f { // its id may be in use again
		delete(s.flights, f.key)
	}
	return true
}

// move is [session.moveLocked] for a caller that does not hold s.mu.
func (s *session) move(f *flight, to flightPhase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moveLocked(f, to)
}

// enterFlight records r as a request in flight. It returns a fault, and records nothing,
// if the client has as many as it may have.
func (s *session) enterFlight(r *request, subscription bool, cancel context.CancelCauseFunc) *fault.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most, ok := s.agent.BeginCall(); !ok {
		return fault.New(fault.ResourceExhausted, fault.Host, r.operation(),
			"%d calls of this agent are in flight, its limit: wait for one of them", most).
			WithLimit("calls in flight", most, most)
	}
	r.flight = &flight{n: r.n, key: r.msg.ID.Key(), subscription: subscription, cancel: cancel}
	s.flights[r.flight.key] = r.flight
	return nil
}

// endWork ends the work on a request. It returns nil if the answer is still wanted: then
// the caller must call [session.deliver], and until that has queued the answer the client
// can cancel it. Else it returns why the request has ended.
func (s *session) endWork(ctx context.Context, r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.flight.at() == cancelled: // ctx is done in a moment
		return outbox.ErrCancelled
	case ctx.Err() != nil:
		s.moveLocked(r.flight, finished)
		return context.Cause(ctx)
	}
	s.moveLocked(r.flight, answering)
	return nil
}

// busy reports whether a request of that id is in flight.
func (s *session) busy(id jsonrpc.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[id.Key()]
	return f != nil && f.at() == running
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
	if r.flight.at() == cancelled {
		s.srv.confirmed(s.hash, r.n)
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
			s.offerLine(append(jsonrpc.AppendRequest(nil, nil, mcp.ProgressNote, params), '\n'), f.mayReport)
		}
	}
}
