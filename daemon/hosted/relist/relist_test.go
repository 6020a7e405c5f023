package relist

import (
	"testing"
	"time"
)

// TestPause checks that a server that keeps announcing changed lists is asked for them
// less and less often, and at once again after it was quiet.
func TestPause(t *testing.T) {
	var r Reader
	now := time.Now()
	asked := func(quiet time.Duration) time.Duration {
		now = now.Add(quiet)
		wait := r.pauseLocked(now)
		now = now.Add(max(wait, 0))
		r.last = now
		return wait
	}
	for i, want := range []time.Duration{
		0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
		1600 * time.Millisecond, 3200 * time.Millisecond, 6400 * time.Millisecond, 10 * time.Second, 10 * time.Second,
	} {
		if wait := asked(0); wait != want {
			t.Errorf("the %dth time it waits %v, want %v", i+1, wait, want)
		}
	}
	if wait := asked(4 * time.Second); wait != 6*time.Second {
		t.Errorf("4 s later it waits %v, want the other 6 s", wait)
	}
	if wait := asked(time.Minute); wait != 0 {
		t.Errorf("a minute later it waits %v", wait)
	}
}
