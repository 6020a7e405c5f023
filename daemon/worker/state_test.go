package worker

import (
	"io"
	"testing"
	"time"

	"holdline/protocol"
	"holdline/protocol/process"
)

// TestLoneWorkerGivesTime checks that a worker without a daemon, which ends its child, gives it the
// time that its spec wants, and any other child no more than before.
func TestLoneWorkerGivesTime(t *testing.T) {
	t.Parallel()
	for want, graceMS := range map[time.Duration]int64{aloneGrace: 0, 20 * time.Second: 20_000} {
		spec := process.Spec{EndGraceMS: graceMS, Orphan: process.Orphan{Do: process.OrphanTerminate}}
		w := newWorker(t.TempDir(), spec, nil, io.Discard)
		begin := time.Now()
		w.mu.Lock()
		w.goAloneLocked()
		term, kill := w.ladder.termAt.Sub(begin), w.ladder.killAt.Sub(begin)
		w.mu.Unlock()
		if term.Round(time.Second) != want || kill.Round(time.Second) != 2*want {
			t.Errorf("with %d ms: SIGTERM after %v, SIGKILL after %v, want %v and twice that", graceMS, term, kill, want)
		}
	}
}

// TestWorkerNeverReached_DoesNotWaitForTheLongWindow checks that a worker to which no daemon has attached yet waits as
// long as any other, though its spec has the window of a worker elsewhere.
func TestWorkerNeverReached_DoesNotWaitForTheLongWindow(t *testing.T) {
	t.Parallel()
	const long = 24 * time.Hour
	spec := process.Spec{Orphan: process.Orphan{AfterMS: long.Milliseconds(), Do: process.OrphanTerminate}}
	w := newWorker(t.TempDir(), spec, nil, io.Discard)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stepLocked(w.detachedAt.Add(protocol.WorkerWindow - time.Second)); w.isAloneLocked() {
		t.Error("it does not wait for its first daemon")
	}
	if w.stepLocked(w.detachedAt.Add(protocol.WorkerWindow)); !w.isAloneLocked() {
		t.Error("it waits for its first daemon for too long")
	}
	w = newWorker(t.TempDir(), spec, nil, io.Discard)
	w.epoch = 1
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stepLocked(w.detachedAt.Add(long - time.Second)); w.isAloneLocked() {
		t.Error("it does not wait for its daemon")
	}
}
