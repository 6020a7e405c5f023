package supervisor

import (
	"time"

	"holdline/protocol/bootclock"
	"holdline/protocol/process"
)

// Forget records that the records of these writes are not needed any more. They are
// removed at the next compaction of calls.jsonl. Call it once no client can ask for the
// outcome of a write, and before the output with the answer is acknowledged: a daemon
// that finds neither the answer nor this mark believes that the call still runs. It is
// only for ids that [Worker.Write] returned without [NotDispatched], or that an earlier
// daemon gave out.
//
// After an error the mark is written with the next record.
func (w *Worker) Forget(writes ...int64) error {
	w.journal.Forget(writes...)
	return w.journal.Settle()
}

// MoveDeadline records another deadline for the call of a write. After an error the
// earlier deadline holds.
func (w *Worker) MoveDeadline(write int64, deadline time.Time) error {
	return w.journal.MoveDeadline(write, bootclock.AtMS(deadline))
}

// Detach records that the job store owns the call of a write, for which line n of that
// session waits: see [calls.Journal.Detach].
func (w *Worker) Detach(write int64, session string, n int64) error {
	return w.journal.Detach(write, session, n)
}

// Filed records that the answer to a write is in its file: see [calls.Journal.Filed].
func (w *Worker) Filed(write, size int64, sum uint32) error { return w.journal.Filed(write, size, sum) }

// Changed records where what a subscription is for has changed: see [calls.Journal.Changed].
func (w *Worker) Changed(write, place int64) error { return w.journal.Changed(write, place) }

// voidUnmade sets the next write id of a worker that is dead behind the last write that it has
// taken, as far as its files tell: the records above that are void. It does nothing while the worker
// is connected.
func (w *Worker) voidUnmade() {
	if w.foreign() {
		return
	}
	last, known := int64(0), false
	if st, err := process.ReadState(w.dir); err == nil && st.Phase == process.PhaseExited {
		last, known = st.LastWrite, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == nil && known {
		w.next = last + 1
	}
}

// Damage returns why the records of the worker's writes cannot be believed; nil if they can. Of a
// worker with damaged records no further write is made.
func (w *Worker) Damage() error { return w.journal.Damage() }
