package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdline/daemon/hosted/upstream"
	"holdline/protocol/fault"
)

// A call has bounds that hold wherever it waits, and over any number of daemons.
//
// From the moment at which its client sent it, it has [entry.Server.MaxTimeout] in all. The
// proxy remembers that moment and tells it to each daemon. The context that
// [request.bounded] returns ends with that time, whether the call waits for its turn,
// a start, the adoption of a process, or its answer.
//
// Within that time it waits no longer than [request.patience] for a process, and, once
// it is dispatched, [entry.Server.Timeout] for an answer or for progress, which begins that
// time anew. Until when, stands in its record, so that a call that hangs gets no more
// time by the next daemon, and one that makes progress no less.

// A Limit returns a context that ends earlier than its parent. The caller must call the returned
// function. Few calls have to wait, and a context with a deadline takes time to make: so it is
// made by who waits.
type Limit func(parent context.Context) (context.Context, context.CancelFunc)

// Wait waits until done is closed. It returns the cause of ctx if that ends first, or that of the
// limit, which may be nil. mu is unlocked meanwhile.
func (l Limit) Wait(ctx context.Context, mu sync.Locker, done <-chan struct{}) error {
	mu.Unlock()
	defer mu.Lock()
	if l != nil {
		limited, cancel := l(ctx)
		defer cancel()
		ctx = limited
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bounded returns a context that ends when the call has used up all of its time,
// counted from when its client sent it. The caller must call the returned function.
func (r *request) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	most := r.s.Entry().MaxTimeout
	return context.WithDeadlineCause(ctx, later(r.rc.Sent.Add(most), time.Now().Add(overdueGrace)),
		overdueError{func() *fault.Record {
			return fault.New(fault.Timeout, fault.Server, r.o.Operation(),
				"the call has waited for server %s for %v, the most that it may take: it was not made",
				r.s.Entry().Name, most)
		}})
}

// patience returns how long a call waits for a process that serves.
func (r *request) patience() time.Duration {
	return max(r.s.Entry().Timeout, r.s.Entry().StartTimeout)
}

// patientUntil returns until when a call waits for a process that serves. lost says
// that the process that had the call has died; then the wait begins anew. Otherwise a
// replayed call has only what an earlier daemon left of its wait.
func (r *request) patientUntil(lost bool) time.Time {
	now := time.Now()
	if !r.rc.Replay || lost {
		return now.Add(r.patience())
	}
	return later(r.rc.Sent.Add(r.patience()), now.Add(overdueGrace))
}

// soonest returns the earliest time at which a call may be declared timed out. Only a
// call whose deadline comes from an earlier daemon gets this grace; for others it is
// the zero time.
func (r *request) soonest(c *upstream.Call) time.Time {
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	if !c.Deadline.IsInherited() {
		return time.Time{}
	}
	return time.Now().Add(overdueGrace)
}

// timeLeft returns how long an open call may still take without an answer or
// progress, but at least until soonest. Its clock stands still while a person answers
// a question of the server.
func (r *request) timeLeft(c *upstream.Call, soonest time.Time) time.Duration {
	spec := r.s.Entry()
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	left := time.Until(later(c.Deadline.At(spec.Timeout, c.OnProgress != nil), soonest))
	if left <= 0 && c.Up != nil && c.Up.AsksPersonLocked() {
		return spec.MaxTimeout // its clock stands still until the answer restarts it
	}
	return left
}

// overdueGrace is how long a daemon waits for the answer to a call whose time ended
// before the daemon started. The answer may be in output of the process that is still
// unread.
const overdueGrace = time.Second

// A lateError is the cause of a context whose time is over. It makes its fault when it is
// asked for it: few calls take all of their time.
type lateError func() *fault.Record

// Error returns what the fault says.
func (e lateError) Error() string { return e().Error() }

// Unwrap returns the fault for a call that was not dispatched within its time.
func (e lateError) Unwrap() error { return e() }

// An overdueError is the cause of a context whose call has used up all of its time.
type overdueError struct{ lateError }

// isOverdue reports whether a context of [request.bounded] has ended because the call
// has used up all of its time.
func isOverdue(ctx context.Context) bool {
	_, overdue := errors.AsType[overdueError](context.Cause(ctx))
	return overdue
}

// isAbandoned reports whether a call's context has ended because its client does not
// wait for the call any more.
func isAbandoned(ctx context.Context) bool { return ctx.Err() != nil && !isOverdue(ctx) }

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
