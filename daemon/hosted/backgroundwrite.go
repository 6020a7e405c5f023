package hosted

import (
	"slices"

	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/protocol/faultpoint"
)

// maxBackgroundWrites bounds the background writes that wait for the server to
// read. There is always room for the answers to its requests.
const maxBackgroundWrites = 1024 + maxAsks

// A backgroundWrite is a write that belongs to no call: a cancellation, a
// notification, or an answer to a request of the server.
type backgroundWrite struct {
	rec     calls.Record
	compose func(id int64) []byte
	done    func(err error) // may be nil; called once, when the write was made or has failed
}

// backgroundWrites is the queue of background writes of one process, in order. An
// empty queue holds no memory.
type backgroundWrites struct {
	queue []backgroundWrite // guarded by the manager's mutex
	due   chan struct{}     // holds a token while queue may not be empty
	full  bool              // an answer was dropped, and that is in the log
}

func newBackgroundWrites() backgroundWrites { return backgroundWrites{due: make(chan struct{}, 1)} }

// queueWriteLocked queues a background write. It never blocks: the goroutine that
// makes the writes takes the same lock.
//
// A full queue means that the server has stopped reading its stdin. Then the write
// is dropped, and its done is not called. The last places are for answers to the
// server's own requests, of which at most [maxAsks] can wait.
func (u *upstream) queueWriteLocked(w backgroundWrite) {
	q := &u.writes
	switch waiting := len(q.queue); {
	case w.rec.Kind != calls.KindRespond && waiting >= maxBackgroundWrites-maxAsks:
		return
	case waiting >= maxBackgroundWrites:
		if !q.full { // said once: a flood of requests is one thing
			u.log.Warn("the server does not read: answers to its requests are left out")
		}
		q.full = true
		return
	}
	q.queue = append(q.queue, w)
	select {
	case q.due <- struct{}{}:
	default:
	}
}

// nextWriteLocked removes and returns the first write of the queue; false if it is
// empty.
func (u *upstream) nextWriteLocked() (backgroundWrite, bool) {
	q := &u.writes
	if len(q.queue) == 0 {
		return backgroundWrite{}, false
	}
	e := q.queue[0]
	q.queue[0] = backgroundWrite{}
	if q.queue = q.queue[1:]; len(q.queue) == 0 {
		q.queue = nil
	}
	return e, true
}

// makeBackgroundWrites makes the queued writes, one after the other, until the
// process has exited or the manager closes. It is the only goroutine that makes them,
// so they keep their order. Writes that are still queued then are lost: the next
// daemon decides anew what to write.
func (u *upstream) makeBackgroundWrites() {
	w := u.worker()
	for {
		select {
		case <-u.writes.due:
		case <-u.exited:
			return
		case <-u.m.life.Done():
			return
		}
		for {
			u.m.mu.Lock()
			e, ok := u.nextWriteLocked()
			over := u.state == exited
			u.m.mu.Unlock()
			if !ok || over || u.m.life.Err() != nil {
				break
			}
			u.makeBackgroundWrite(w, &e)
		}
	}
}

// makeBackgroundWrite makes one write, which may block until the server reads, and
// calls its done callback. The record of the write is on disk before the server can
// see it.
func (u *upstream) makeBackgroundWrite(w *supervisor.Worker, e *backgroundWrite) {
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

// maxResponds bounds the records of answers to the server that are kept. The older
// ones belong to requests in output that was acknowledged long ago: no daemon will
// read those again.
const maxResponds = 2 * maxAsks

// ranLocked notes that a background write was made, and drops the records that have
// served. Those of cancellations and notifications go at once: no later decision
// needs them. Those of answers to the server stay for a while, so that a request that
// is read again is not answered twice.
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
