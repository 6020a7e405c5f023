package supervisor

import "holdline/protocol/process"

// Forget says that the records of these writes are not needed any more: they
// go at the next compaction of calls.jsonl. It is called once nobody can ask
// for what became of a write, waits for nothing, and is only for ids that
// [Worker.Write] returned without [NotDispatched], or that an earlier daemon
// gave out.
func (w *Worker) Forget(writes ...int64) { w.journal.Forget(writes...) }

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
