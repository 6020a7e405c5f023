package upstream

import (
	"slices"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
	"holdline/daemon/supervisor"
	"holdline/protocol/faultpoint"
)

// maxBackgroundWrites bounds the background writes that wait for the server to
// read. There is always room for the answers to its requests.
const maxBackgroundWrites = 1024 + question.Max

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
	queue []backgroundWrite // guarded by the hub's mutex
	due   chan struct{}     // holds a token while queue may not be empty
	full  bool              // an answer was dropped, and that is in the log
}

func newBackgroundWrites() backgroundWrites { return backgroundWrites{due: make(chan struct{}, 1)} }

// queueWriteLocked queues a background write. It never blocks: the goroutine that
// makes the writes takes the same lock.
//
// A full queue means that the server has stopped reading its stdin. Then the write
// is dropped, and its done is not called. The last places are for answers to the
// server's own requests, of which at most [question.Max] can wait.
func (u *Process) queueWriteLocked(w backgroundWrite) {
	q := &u.writes
	switch waiting := len(q.queue); {
	case w.rec.Kind != calls.KindRespond && waiting >= maxBackgroundWrites-question.Max:
		return
	case waiting >= maxBackgroundWrites:
		if !q.full { // said once: a flood of requests is one thing
			u.Log.Warn("the server does not read: answers to its requests are left out")
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
func (u *Process) nextWriteLocked() (backgroundWrite, bool) {
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
// process has exited or the hub closes. It is the only goroutine that makes them,
// so they keep their order. Writes that are still queued then are lost: the next
// daemon decides anew what to write.
func (u *Process) makeBackgroundWrites() {
	w := u.Worker()
	for {
		select {
		case <-u.writes.due:
		case <-u.Exited:
			return
		case <-u.hub.Life.Done():
			return
		}
		for {
			u.hub.Mu.Lock()
			e, ok := u.nextWriteLocked()
			over := u.State == Exited
			u.hub.Mu.Unlock()
			if !ok || over || u.hub.Life.Err() != nil {
				break
			}
			u.makeBackgroundWrite(w, &e)
		}
	}
}

// makeBackgroundWrite makes one write, which may block until the server reads, and
// calls its done callback. The record of the write is on disk before the server can
// see it.
func (u *Process) makeBackgroundWrite(w *supervisor.Worker, e *backgroundWrite) {
	id, err := w.WriteFunc(u.hub.Life, e.rec, func(id int64) ([]byte, error) { return append(e.compose(id), '\n'), nil })
	faultpoint.At("hosted.errand")
	if err == nil {
		u.hub.Mu.Lock()
		u.ranLocked(e.rec.Kind, id)
		u.hub.Mu.Unlock()
	}
	if e.done != nil {
		e.done(err)
	}
}

// maxResponds bounds the records of answers to the server that are kept. The older
// ones belong to requests in output that was acknowledged long ago: no daemon will
// read those again.
const maxResponds = 2 * question.Max

// ranLocked notes that a background write was made, and drops the records that have
// served. Those of cancellations and notifications go at once: no later decision
// needs them. Those of answers to the server stay for a while, so that a request that
// is read again is not answered twice.
func (u *Process) ranLocked(kind string, write int64) {
	switch kind {
	case calls.KindCancel, calls.KindNote:
		u.forget = append(u.forget, write)
		u.nudge()
	case calls.KindRespond:
		if u.ran = append(u.ran, write); len(u.ran) > maxResponds {
			old := len(u.ran) - question.Max
			u.forget = append(u.forget, u.ran[:old]...)
			u.ran = slices.Clone(u.ran[old:])
			u.nudge()
		}
	}
}
