package upstream

import (
	"log/slog"
	"runtime"
	"testing"

	"holdline/protocol/process"
)

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
