package hosted

import (
	"context"
	"errors"
	"time"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// A call has bounds that hold wherever it waits, and over any number of daemons.
//
// From the moment at which its client sent it, it has [Spec.MaxTimeout] in all. The
// proxy remembers that moment and tells it to each daemon. The context that
// [server.bounded] returns ends with that time, whether the call waits for its turn,
// a start, the adoption of a process, or its answer.
//
// Within that time it waits no longer than [server.patience] for a process, and, once
// it is dispatched, [Spec.Timeout] for an answer or for progress, which begins that
// time anew. Until when, stands in its record, so that a call that hangs gets no more
// time by the next daemon, and one that makes progress no less.

// overdueGrace is how long a daemon waits for the answer to a call whose time ended
// before the daemon started. The answer may be in output of the process that is still
// unread.
const overdueGrace = time.Second

// An overdueError is the cause of a context whose call has used up all of its time.
type overdueError struct{ *fault.Record }

// Unwrap returns the fault for a call that was not dispatched within its time.
func (e overdueError) Unwrap() error { return e.Record }

// bounded returns a context that ends when the call has used up all of its time,
// counted from when its client sent it. The caller must call the returned function.
func (s *server) bounded(
	ctx context.Context, o *listing.Offer, rc *tool.RemoteCall,
) (context.Context, context.CancelFunc) {
	most := s.now().MaxTimeout
	f := fault.New(fault.Timeout, fault.Server, o.Operation(),
		"the call has waited for server %s for %v, the most that it may take: it was not made", s.spec.Name, most)
	return context.WithDeadlineCause(ctx, later(rc.Sent.Add(most), time.Now().Add(overdueGrace)), overdueError{f})
}

// isOverdue reports whether a context of [server.bounded] has ended because the call
// has used up all of its time.
func isOverdue(ctx context.Context) bool {
	_, overdue := errors.AsType[overdueError](context.Cause(ctx))
	return overdue
}

// isAbandoned reports whether a call's context has ended because its client does not
// wait for the call any more.
func isAbandoned(ctx context.Context) bool { return ctx.Err() != nil && !isOverdue(ctx) }

// patience returns how long a call waits for a process that serves.
func (s *server) patience() time.Duration { return max(s.now().Timeout, s.now().StartTimeout) }

// patientUntil returns until when a call waits for a process that serves. lost says
// that the process that had the call has died; then the wait begins anew. Otherwise a
// replayed call has only what an earlier daemon left of its wait.
func (s *server) patientUntil(rc *tool.RemoteCall, lost bool) time.Time {
	now := time.Now()
	if !rc.Replay || lost {
		return now.Add(s.patience())
	}
	return later(rc.Sent.Add(s.patience()), now.Add(overdueGrace))
}

// soonest returns the earliest time at which a call may be declared timed out. Only a
// call whose deadline comes from an earlier daemon gets this grace; for others it is
// the zero time.
func (m *Manager) soonest(c *call) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !c.Deadline.IsInherited() {
		return time.Time{}
	}
	return time.Now().Add(overdueGrace)
}

// timeLeft returns how long an open call may still take without an answer or
// progress, but at least until soonest. Its clock stands still while a person answers
// a question of the server.
func (m *Manager) timeLeft(s *server, c *call, soonest time.Time) time.Duration {
	spec := s.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	left := time.Until(later(c.Deadline.At(spec.Timeout, c.progress != nil), soonest))
	if left <= 0 && c.up != nil && c.up.asksPersonLocked() {
		return spec.MaxTimeout // its clock stands still until the answer restarts it
	}
	return left
}

// restartClockLocked gives a call its full time for an answer again. The new deadline
// is written to the call's record later, by the reader.
func (u *upstream) restartClockLocked(c *call) {
	timeout := u.inst.srv.now().Timeout
	until := time.Now().Add(timeout)
	if c.Deadline.Move(until, timeout) {
		if u.extended == nil {
			u.extended = map[int64]time.Time{}
		}
		u.extended[c.write] = until
		u.nudge()
	}
	c.Progressed()
}

// recordDeadlines writes the deadlines that progress has moved into the records of
// their calls. The next daemon goes by these.
func (u *upstream) recordDeadlines() {
	u.m.mu.Lock()
	w, extended := u.w, u.extended
	u.extended = nil
	u.m.mu.Unlock()
	for write, until := range extended {
		if err := w.MoveDeadline(write, until); err != nil { // the next daemon gives it less time
			u.log.Debug("a call's deadline is not on record", "err", err)
		}
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
