package upstream

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"testing"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/background"
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

// TestContinuedCallOfDeadProcess restores a call that a process had from line 5 of its session, that
// line 6 continued, and that was then made again by a younger process. The call is that of the
// younger one, in whatever order they are restored.
func TestContinuedCallOfDeadProcess(t *testing.T) {
	for _, order := range [][]int64{{2, 1}, {1, 2}} {
		h := New(Options{Log: slog.New(slog.DiscardHandler)})
		byGeneration := map[int64]*Process{}
		h.Mu.Lock()
		for _, generation := range order {
			u := h.NewProcess(nil, t.TempDir(), "s", process.Owner{})
			records := []calls.Record{{Write: 9, N: 6, Session: "x", Kind: calls.KindCall}}
			if generation == 1 {
				records = []calls.Record{
					{Write: 3, N: 5, Session: "x", Kind: calls.KindCall},
					{Write: 4, N: 6, Session: "x", Kind: calls.KindRespond, Call: 3},
				}
			}
			u.RestoreLocked(generation, nil, records, nil)
			byGeneration[generation] = u
		}
		c := h.Calls[calls.Key{Session: "x", N: 6}]
		if len(h.Calls) != 1 || c == nil || c.Up != byGeneration[2] || c.Replays != 1 ||
			!slices.Equal(c.earlier, []place{{byGeneration[1], 3}}) {
			t.Errorf("restored in order %d, the calls are %v, and that of line 6 is %+v", order, h.Calls, c)
		}
		h.Mu.Unlock()
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

// TestDropVoid drops a call whose write is void, while another call has got the number of that
// write, as after a connection to another machine broke. The other call stays, with its record, and
// the server is not asked to cancel it.
func TestDropVoid(t *testing.T) {
	h := New(Options{Log: slog.New(slog.DiscardHandler)})
	u := h.NewProcess(nil, t.TempDir(), "s", process.Owner{})
	h.Mu.Lock()
	defer h.Mu.Unlock()
	close(u.caughtUp)
	var all []*Call
	for n := range int64(2) {
		c := NewCall(calls.NewCall(calls.Key{Session: "x", N: n}, "tool", false))
		c.Demand(calls.Ask)
		c.Up, c.write = u, 7
		c.Apply(calls.Sent)
		u.Calls[7], h.Calls[c.Key] = c, c
		all = append(all, c)
	}
	h.DropLocked(all[0])
	if at := all[0].Phase(); at != calls.Over || h.Calls[all[0].Key] != nil {
		t.Errorf("the call is in phase %v, and known: %v", at, h.Calls)
	}
	if u.Calls[7] != all[1] || all[1].Phase() != calls.Open {
		t.Errorf("the other call is in phase %v, and the process has %v", all[1].Phase(), u.Calls)
	}
	if forget, files := u.records.Take(); len(forget)+len(files) > 0 {
		t.Errorf("the records %v and the files %v go", forget, files)
	}
	ctx, cancel := context.WithCancel(t.Context())
	exited := make(chan struct{})
	u.writes.Push(background.Write{Line: []byte("last")})
	u.writes.Run(ctx, exited, func(w *background.Write) {
		if string(w.Line) != "last" {
			t.Errorf("the server gets %s", w.Line)
		}
		cancel()
	})
}

// TestCancelVoid drops a call whose write waits to be recorded, and cannot be: another call gets its
// number before the cancellation is written. The server is not asked to cancel that one.
func TestCancelVoid(t *testing.T) {
	h := New(Options{Log: slog.New(slog.DiscardHandler)})
	u := h.NewProcess(nil, t.TempDir(), "s", process.Owner{})
	close(u.caughtUp)
	begin := func(n int64) *Call {
		h.Mu.Lock()
		defer h.Mu.Unlock()
		c := NewCall(calls.NewCall(calls.Key{Session: "x", N: n}, "tool", false))
		c.Demand(calls.Ask)
		c.Up, c.write = u, 7
		c.Apply(calls.Sent)
		u.Calls[7], h.Calls[c.Key] = c, c
		return c
	}
	drop := func(c *Call) {
		h.Mu.Lock()
		defer h.Mu.Unlock()
		h.DropLocked(c)
	}
	drop(begin(1))
	drop(begin(2))
	begin(3)
	ctx, cancel := context.WithCancel(t.Context())
	var void []bool
	u.writes.Run(ctx, u.Exited, func(w *background.Write) {
		if void = append(void, w.Void()); len(void) == 2 {
			cancel()
		}
	})
	if !slices.Equal(void, []bool{true, true}) {
		t.Errorf("while the third call has the number, the cancellations are void: %v", void)
	}
	h.Mu.Lock()
	delete(u.Calls, 7)
	h.Mu.Unlock()
	drop(begin(4))
	ctx, cancel = context.WithCancel(t.Context())
	u.writes.Run(ctx, u.Exited, func(w *background.Write) {
		if cancel(); w.Void() {
			t.Error("the cancellation of a call alone is void")
		}
	})
}
