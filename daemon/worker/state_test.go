package worker

import (
	"io"
	"testing"
	"time"

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
