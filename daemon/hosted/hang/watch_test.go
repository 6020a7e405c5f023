package hang_test

import (
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/hosted/hang"
)

// TestSilentDuringCall_ShownSoon checks when a process that a call waits for is pinged, and from
// when on it is shown as one that does not answer, after the call has begun.
func TestSilentDuringCall_ShownSoon(t *testing.T) {
	for _, x := range []struct {
		name          string
		limit         time.Duration
		quiet         time.Duration // before the call
		speaks        time.Duration // it sends a message then, and none before; 0 for never
		pinged, shown time.Duration
	}{
		{"silent", time.Hour, 0, 0, 8 * time.Second, 13 * time.Second},
		{"idle before", time.Hour, 9 * time.Minute, 0, 8 * time.Second, 13 * time.Second},
		{"silent for ten minutes before", time.Hour, 10 * time.Minute, 0, 0, 5 * time.Second},
		{"freezes during the call", time.Hour, 0, 7 * time.Second, 15 * time.Second, 20 * time.Second},
		{"a call of little time", 6 * time.Second, 0, 0, 2 * time.Second, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			var pinged, shown time.Duration
			hang.Watch(hang.Busy{
				Limits: func() (answer, most time.Duration) { return x.limit, 2 * x.limit },
				Silent: func() (time.Duration, bool) {
					at := time.Since(begun)
					if x.speaks > 0 && at >= x.speaks {
						return at - x.speaks, true
					}
					return x.quiet + at, true
				},
				Pause: func(d time.Duration) bool {
					if at := time.Since(begun); x.speaks > at {
						d = min(d, x.speaks-at) // a look too early must change nothing
					}
					time.Sleep(d)
					return true
				},
				Ping: func(wait time.Duration) bool {
					pinged = time.Since(begun)
					time.Sleep(wait)
					shown = time.Since(begun)
					return false
				},
			})
			if pinged != x.pinged || shown != x.shown {
				t.Errorf("%s: pinged after %v and shown after %v, want %v and %v",
					x.name, pinged, shown, x.pinged, x.shown)
			}
		})
	}
}

// TestAnswersPings_PingedSeldomAndNoMore checks that a process that answers pings during a long
// call gets one every 8 s, and none after the call.
func TestAnswersPings_PingedSeldomAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, heard, pings := time.Now(), time.Now(), 0
		hang.Watch(hang.Busy{
			Limits: func() (answer, most time.Duration) { return time.Hour, time.Hour },
			Silent: func() (time.Duration, bool) { return time.Since(heard), time.Since(begun) < time.Minute },
			Pause:  func(d time.Duration) bool { time.Sleep(d); return true },
			Ping: func(time.Duration) bool {
				pings++
				heard = time.Now()
				return true
			},
		})
		if took := time.Since(begun); pings != 7 || took != 64*time.Second {
			t.Errorf("%d pings in %v", pings, took)
		}
	})
}

// TestSilentForTenMinutes_PingedWithTheFirstCall checks that a process which was silent for ten minutes
// before a call is pinged at once, and another one only after the time that each call has.
func TestSilentForTenMinutes_PingedWithTheFirstCall(t *testing.T) {
	for silence, want := range map[time.Duration]time.Duration{
		10 * time.Minute:             0,
		10*time.Minute - time.Second: 8 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			hang.Watch(hang.Busy{
				Limits: func() (answer, most time.Duration) { return time.Hour, time.Hour },
				Silent: func() (time.Duration, bool) { return silence + time.Since(begun), true },
				Pause:  func(d time.Duration) bool { time.Sleep(d); return true },
				Ping: func(time.Duration) bool {
					if after := time.Since(begun); after != want {
						t.Errorf("silent for %v before the call: pinged after %v, want %v", silence, after, want)
					}
					return false
				},
			})
		})
	}
}
