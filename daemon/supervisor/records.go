package supervisor

import (
	"slices"

	"holdline/protocol/process"
)

// Forget says that the records of these writes are not needed any more: they
// go at the next compaction of calls.jsonl. It is called once nobody can ask
// for what became of a write, waits for nothing, and is only for ids that
// [Worker.Write] returned without [NotDispatched], or that stand in
// [Worker.Records].
func (w *Worker) Forget(writes ...int64) {
	w.journal.Forget(writes...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) == 0 {
		return
	}
	w.records = slices.DeleteFunc(w.records, func(r process.Record) bool { return slices.Contains(writes, r.Write) })
}

// Records are the records that earlier daemons left of the worker's writes and
// that were not forgotten since, in the order of their ids. Those of writes
// that were certainly not made are not among them; if the worker was killed,
// some of them may not have been made. A worker that this supervisor started
// has none.
func (w *Worker) Records() []process.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records)
}

// voidRecords leaves out the records of writes that were not made. A dead
// worker that left in order has written down which was its last.
func (w *Worker) voidRecords() {
	foreign := w.foreign()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == nil && !foreign {
		if st, err := process.ReadState(w.dir); err == nil && st.Phase == process.PhaseExited {
			w.next = st.LastWrite + 1
		}
	}
	w.records = slices.DeleteFunc(w.records, func(r process.Record) bool { return r.Write >= w.next })
	slices.SortFunc(w.records, func(a, b process.Record) int { return int(a.Write - b.Write) })
}
