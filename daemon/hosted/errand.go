package hosted

import (
	"slices"

	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/protocol/faultpoint"
)

// maxErrands bounds the writes that belong to no call and wait for the server
// to read. There is always room for the answers to its requests.
const maxErrands = 1024 + maxAsks

// errand is a write that belongs to no call.
type errand struct {
	rec     calls.Record
	compose func(id int64) []byte
	done    func(err error) // nil for nothing to be done; called once it was made, or not
}

// errands are those that wait, in order. At rest they take no room.
type errands struct {
	queue []errand      // guarded by the manager's mutex
	due   chan struct{} // holds a token while some may wait
	full  bool          // some were left out already
}

func newErrands() errands { return errands{due: make(chan struct{}, 1)} }

// errandLocked has a write made in turn. If too many wait, the server reads
// nothing, and the write is left out, as is what was to be done after it; the
// last places are for answers to its requests, of which no more than [maxAsks]
// can wait. It never waits: who makes the writes needs the lock, too.
func (u *upstream) errandLocked(e errand) {
	q := &u.errands
	switch waiting := len(q.queue); {
	case e.rec.Kind != calls.KindRespond && waiting >= maxErrands-maxAsks:
		return
	case waiting >= maxErrands:
		if !q.full { // said once: a flood of requests is one thing
			u.log.Warn("the server does not read: answers to its requests are left out")
		}
		q.full = true
		return
	}
	q.queue = append(q.queue, e)
	select {
	case q.due <- struct{}{}:
	default:
	}
}

// nextErrandLocked takes the first errand that waits; false if none does.
func (u *upstream) nextErrandLocked() (errand, bool) {
	q := &u.errands
	if len(q.queue) == 0 {
		return errand{}, false
	}
	e := q.queue[0]
	q.queue[0] = errand{}
	if q.queue = q.queue[1:]; len(q.queue) == 0 {
		q.queue = nil
	}
	return e, true
}

// runErrands makes the writes that belong to no call.
func (u *upstream) runErrands() {
	w := u.worker()
	for {
		select {
		case <-u.errands.due:
		case <-u.exited:
			return
		case <-u.m.life.Done():
			return
		}
		for {
			u.m.mu.Lock()
			e, ok := u.nextErrandLocked()
			over := u.state == exited
			u.m.mu.Unlock()
			if !ok || over || u.m.life.Err() != nil {
				break
			}
			u.runErrand(w, &e)
		}
	}
}

func (u *upstream) runErrand(w *supervisor.Worker, e *errand) {
	id, err := w.WriteFunc(u.m.life, e.rec, func(id int64) ([]byte, error) { return append(e.compose(id), '\n'), nil })
	faultpoint.At("hosted.errand")
	if err == nil {
		u.m.mu.Lock()
		u.ranLocked(e.rec.Kind, id)
		u.m.mu.Unlock()
	}
	if e.done != nil {
		e.done(err)
	}
}

// maxResponds is how many records of answers to the server are kept: those of
// requests that stand in output which is acked long since are not needed.
const maxResponds = 2 * maxAsks

// ranLocked notes the record of an errand that was made. That of a cancellation
// is of no use any more: if it had no effect its call has a record. Nor is that
// of what a client only had to tell.
func (u *upstream) ranLocked(kind string, write int64) {
	switch kind {
	case calls.KindCancel, calls.KindNote:
		u.forget = append(u.forget, write)
		u.nudge()
	case calls.KindRespond:
		if u.ran = append(u.ran, write); len(u.ran) > maxResponds {
			old := len(u.ran) - maxAsks
			u.forget = append(u.forget, u.ran[:old]...)
			u.ran = slices.Clone(u.ran[old:])
			u.nudge()
		}
	}
}
