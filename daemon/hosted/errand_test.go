package hosted

import (
	"log/slog"
	"runtime"
	"testing"

	"holdline/daemon/calls"
	"holdline/protocol/process"
)

// TestErrandsNeverWait: who has an errand holds the lock that the writer needs,
// so however many there are, none waits; answers to the server's requests have
// places of their own.
func TestErrandsNeverWait(t *testing.T) {
	u := &upstream{errands: newErrands(), log: slog.New(slog.DiscardHandler)}
	for range 2 * maxErrands {
		u.errandLocked(errand{rec: calls.Record{Kind: calls.KindCancel}, done: func(error) {}})
	}
	if n := len(u.errands.queue); n != maxErrands-maxAsks {
		t.Errorf("%d cancellations wait, want %d", n, maxErrands-maxAsks)
	}
	for range 2 * maxAsks {
		u.errandLocked(errand{rec: calls.Record{Kind: calls.KindRespond}})
	}
	if n := len(u.errands.queue); n != maxErrands {
		t.Errorf("%d errands wait, want %d", n, maxErrands)
	}
}

// TestErrandsTakeNoRoom: a process costs little at rest, also after it was told
// much, and errands keep their order.
func TestErrandsTakeNoRoom(t *testing.T) {
	m := New(Options{Log: slog.New(slog.DiscardHandler)})
	inst := &instance{m: m}
	var before, after runtime.MemStats
	const n = 32
	all := make([]*upstream, n)
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = newUpstream(inst, "w", process.Owner{})
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 8<<10 {
		t.Errorf("a process takes %d bytes", each)
	}
	u := all[0]
	for i := range int64(100) {
		u.errandLocked(errand{rec: calls.Record{N: i}})
	}
	for i := range int64(100) {
		if e, ok := u.nextErrandLocked(); !ok || e.rec.N != i {
			t.Fatalf("errand %d is that of %d", i, e.rec.N)
		}
	}
	if _, ok := u.nextErrandLocked(); ok || cap(u.errands.queue) > 0 {
		t.Errorf("room for %d errands is left", cap(u.errands.queue))
	}
}
