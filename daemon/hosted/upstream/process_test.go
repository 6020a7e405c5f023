package upstream

import (
	"log/slog"
	"runtime"
	"slices"
	"testing"

	"holdline/daemon/calls"
	"holdline/protocol/process"
)

// TestAnswerWithoutRecord checks that the file of an answer is removed if the daemon that has
// dropped the call's record died before it could remove the file.
func TestAnswerWithoutRecord(t *testing.T) {
	h := New(Options{Log: slog.New(slog.DiscardHandler)})
	u := h.NewProcess(nil, t.TempDir(), "s", process.Owner{})
	h.Mu.Lock()
	defer h.Mu.Unlock()
	record := calls.Record{Write: 2, N: 1, Session: "x", Kind: calls.KindCall}
	u.RestoreLocked(1, nil, []calls.Record{record}, map[int64]int64{1: 5, 2: 7})
	if forget, files := u.records.Take(); len(forget) > 0 || !slices.Equal(files, []int64{1}) {
		t.Errorf("records %v and files %v go, want the file of write 1", forget, files)
	}
	if h.spooled["x"] != 7 {
		t.Errorf("%d bytes in files count for the session, want 7", h.spooled["x"])
	}
	select {
	case <-u.poke:
	default:
		t.Error("the reader is not woken")
	}
}

// TestProcessTakesNoRoom checks that a process costs little at rest.
func TestProcessTakesNoRoom(t *testing.T) {
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
}
