package supervisor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdline/daemon/supervisor"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/process"
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

// unhurried returns the spec of a worker whose child takes a moment to end once its stdin is
// closed, and then writes a file, whose path is returned.
func unhurried(h *home, id string) (spec process.Spec, finished string) {
	finished = filepath.Join(h.dir, id+".finished")
	spec = shell(id, "echo one; cat >/dev/null; sleep 0.3; : >"+finished+"; exit 6")
	spec.EndGraceMS = 20_000
	return spec, finished
}

// TestUnhurriedChildIsNotKilled checks that a child whose spec gives it time to end has that time,
// whoever ends it and however little patience that has, and that nobody waits longer than the
// child needs.
func TestUnhurriedChildIsNotKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	begin := time.Now()
	spec, finished := unhurried(h, "terminated")
	w := h.start(h.daemon(), spec)
	follow(t, w, true, lines(1))
	if exit, err := w.Terminate(t.Context(), time.Millisecond); err != nil || exit.Code == nil || *exit.Code != 6 {
		t.Errorf("Terminate = %+v, %v, want the child's own end", exit, err)
	}
	follow(t, w, true, nil)
	if _, err := os.Stat(finished); err != nil {
		t.Error(err)
	}

	spec, finished = unhurried(h, "left")
	first := h.daemon()
	w = h.start(first, spec)
	follow(t, w, true, lines(1))
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := h.daemon()
	if got := next.EndTime(); got != 40*time.Second {
		t.Errorf("EndTime = %v", got)
	}
	if n, err := next.EndAll(t.Context()); n != 1 || err != nil {
		t.Errorf("EndAll = %d, %v", n, err)
	}
	if _, err := os.Stat(finished); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	if got := next.EndTime(); got != 0 {
		t.Errorf("without workers: EndTime = %v", got)
	}
}
