package upstream

import (
	"log/slog"
	"runtime"
	"testing"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
	"holdline/protocol/process"
)

// TestBackgroundWritesNeverBlock checks that queuing a write never blocks, however full the
// queue is: the caller holds the lock that the writer needs. Answers to the server's
// requests have places of their own.
func TestBackgroundWritesNeverBlock(t *testing.T) {
	u := &Process{writes: newBackgroundWrites(), Log: slog.New(slog.DiscardHandler)}
	for range 2 * maxBackgroundWrites {
		u.queueWriteLocked(backgroundWrite{rec: calls.Record{Kind: calls.KindCancel}, done: func(error) {}})
	}
	if n := len(u.writes.queue); n != maxBackgroundWrites-question.Max {
		t.Errorf("%d cancellations wait, want %d", n, maxBackgroundWrites-question.Max)
	}
	for range 2 * question.Max {
		u.queueWriteLocked(backgroundWrite{rec: calls.Record{Kind: calls.KindRespond}})
	}
	if n := len(u.writes.queue); n != maxBackgroundWrites {
		t.Errorf("%d writes wait, want %d", n, maxBackgroundWrites)
	}
}

// TestBackgroundWritesTakeNoRoom checks that a process takes little memory at first, that
// writes keep their order, and that an empty queue keeps no memory.
func TestBackgroundWritesTakeNoRoom(t *testing.T) {
	h := New(Options{Log: slog.New(slog.DiscardHandler)})
	var before, after runtime.MemStats
	const n = 32
	all := make([]*Process, n)
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = h.NewProcess(nil, "w", "s", process.Owner{})
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 8<<10 {
		t.Errorf("a process takes %d bytes", each)
	}
	u := all[0]
	for i := range int64(100) {
		u.queueWriteLocked(backgroundWrite{rec: calls.Record{N: i}})
	}
	for i := range int64(100) {
		if e, ok := u.nextWriteLocked(); !ok || e.rec.N != i {
			t.Fatalf("write %d is that of %d", i, e.rec.N)
		}
	}
	if _, ok := u.nextWriteLocked(); ok || cap(u.writes.queue) > 0 {
		t.Errorf("room for %d writes is left", cap(u.writes.queue))
	}
}
