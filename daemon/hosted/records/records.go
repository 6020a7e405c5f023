// Package records keeps account of the records of writes to one process of a server:
// which of them, and which files of answers, are not needed any more. [Records] is state
// without a lock, which its owner guards; who uses the worker drops what [Records.Take]
// returns.
package records

import (
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
)

// Records are those of one process. The zero value has none.
type Records struct {
	found     []calls.Record      // of writes by an earlier daemon, as long as it is not known which were made
	answers   []int64             // writes of answers to requests of the process, in order
	deadlines map[int64]time.Time // of calls by write, that are not on record yet
	forget    []int64             // not needed any more
	files     []int64             // of answers, not needed any more
}

// mostAnswers bounds the records of answers to the server that are kept. The older
// ones belong to requests in output that was acknowledged long ago: no daemon will
// read those again.
const mostAnswers = 2 * question.Max

// Forget drops the records of writes.
func (r *Records) Forget(writes ...int64) { r.forget = append(r.forget, writes...) }

// Remove drops the file with the answer to a write.
func (r *Records) Remove(write int64) { r.files = append(r.files, write) }

// Made notes that a write was made that belongs to no call, and drops the records that
// have served. Those of cancellations and notifications go at once: no later decision
// needs them. So do those of requests that an earlier daemon has made for itself, and of the
// end of the handshake. Those of answers to the server stay for a while, so that a request that
// is read again is not answered twice.
func (r *Records) Made(kind string, write int64) {
	switch kind {
	case calls.KindCancel, calls.KindNote, calls.KindInitialize, calls.KindInitialized, calls.KindDiscover,
		calls.KindList, calls.KindProbe:
		r.Forget(write)
	case calls.KindRespond:
		if r.answers = append(r.answers, write); len(r.answers) > mostAnswers {
			old := len(r.answers) - question.Max
			r.Forget(r.answers[:old]...)
			r.answers = slices.Clone(r.answers[old:])
		}
	}
}

// Find stores a record of an earlier daemon until it is known whether its write was made.
func (r *Records) Find(rec calls.Record) { r.found = append(r.found, rec) }

// TakeFound removes and returns the records that [Records.Find] has stored.
func (r *Records) TakeFound() []calls.Record {
	found := r.found
	r.found = nil
	return found
}

// MoveDeadline notes until when a call may take.
func (r *Records) MoveDeadline(write int64, until time.Time) {
	if r.deadlines == nil {
		r.deadlines = map[int64]time.Time{}
	}
	r.deadlines[write] = until
}

// TakeDeadlines removes and returns the deadlines that are not on record yet.
func (r *Records) TakeDeadlines() map[int64]time.Time {
	deadlines := r.deadlines
	r.deadlines = nil
	return deadlines
}

// Take removes and returns the writes whose records, and those whose files, are not
// needed any more.
func (r *Records) Take() (forget, files []int64) {
	forget, files = r.forget, r.files
	r.forget, r.files = nil, nil
	return forget, files
}
