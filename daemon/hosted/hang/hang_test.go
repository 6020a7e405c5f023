package hang_test

import (
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/hosted/hang"
)

// TestProbe checks that a silent process hangs after a call's time and three margins, one
// that computes only after the time of the longest call, and one that answers never.
func TestProbe(t *testing.T) {
	for _, x := range []struct {
		name      string
		computes  bool
		livesFrom time.Duration // it answers from then on; 0 for never
		hung      bool
		after     time.Duration
	}{
		{"silent", false, 0, true, 33 * time.Second},
		{"computes", true, 0, true, 132 * time.Second},
		{"answers late", false, 25 * time.Second, false, 0},
		{"computes, then answers", true, 90 * time.Second, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			hung, after := hang.Probe(hang.Process{
				Limits: func() (answer, most time.Duration) { return 30 * time.Second, 100 * time.Second },
				LivesAfter: func(wait time.Duration) bool {
					time.Sleep(wait)
					return x.livesFrom > 0 && time.Since(begun) >= x.livesFrom
				},
				CPUTime: func() time.Duration {
					if x.computes {
						return time.Since(begun)
					}
					return 0
				},
			})
			if hung != x.hung || after != x.after {
				t.Errorf("%s: hung %v after %v, want %v after %v", x.name, hung, after, x.hung, x.after)
			}
		})
	}
}
