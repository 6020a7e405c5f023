package supervisor

import (
	"time"

	"holdline/protocol/bootclock"
	"holdline/protocol/process"
)

// Forget puts on record that the records of these writes are not needed any
// more; they go at the next compaction of calls.jsonl. Call it once nobody can
// ask for what became of a write, and before the output is acknowledged in which
// the answer stands: a daemon that finds neither the answer nor this takes the
// call for one that still runs. It is only for ids that [Worker.Write] returned
// without [NotDispatched], or that an earlier daemon gave out.
//
// On an error the next record says so.
func (w *Worker) Forget(writes ...int64) error {
	w.journal.Forget(writes...)
	return w.journal.Settle()
}

// MoveDeadline records that the call of a write has another deadline. After an
// error the deadline before it stands.
func (w *Worker) MoveDeadline(write int64, deadline time.Time) error {
	return w.journal.MoveDeadline(write, bootclock.AtMS(deadline))
}

// voidUnmade goes by what a dead worker that left in order has written down:
// which write was its last. The records above it are void.
func (w *Worker) voidUnmade() {
	foreign := w.foreign()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c != nil || foreign {
		return
	}
	if st, err := process.ReadState(w.dir); err == nil && st.Phase == process.PhaseExited {
		w.next = st.LastWrite + 1
	}
}
