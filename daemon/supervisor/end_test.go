package supervisor_test

import (
	"testing"
	"time"

	"holdline/daemon/supervisor"
	"holdline/daemon/worker/workertest"
)

// TestEndIsToldWithoutAcks checks that a daemon that cannot acknowledge its child's output
// still gets the end of the child.
func TestEndIsToldWithoutAcks(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("flood", `yes "a request that nobody answers"`))
	ended := make(chan error, 1)
	size := 0
	const full = 8 << 20 // bytes: the worker sends no more before an acknowledgement
	for terminated := false; ; {
		if size >= full && !terminated {
			terminated = true
			go func() {
				_, err := w.Terminate(t.Context(), 10*time.Millisecond)
				ended <- err
			}()
		}
		e, ok := next(t, w)
		if !ok {
			t.Fatal("the events end without a last one")
		}
		size += len(e.Data)
		if e.Kind == supervisor.Lost {
			t.Fatalf("the worker was lost: %v", e.Fault)
		}
		if e.Kind != supervisor.Closed {
			continue
		}
		if err := <-ended; err != nil {
			t.Errorf("Terminate: %v", err)
		}
		w.Ack(e.Seq)
		wait(t, "the worker to leave", w.Done())
		return
	}
}

// TestTerminateFrozenWorker checks that a worker that hangs does not keep its child alive.
func TestTerminateFrozenWorker(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("frozen", stubborn))
	follow(t, w, true, lines(1))
	workertest.Freeze(t, w.Status().PID)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := w.Terminate(t.Context(), 10*time.Millisecond); err != nil {
			t.Errorf("Terminate: %v", err)
		}
	}()
	if got := follow(t, w, false, nil); got.last.Kind != supervisor.Lost {
		t.Errorf("ended with %+v, want lost", got.last)
	}
	wait(t, "Terminate", done)
	if left := h.carriers("frozen"); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}
