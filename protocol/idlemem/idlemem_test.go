package idlemem

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPassed checks that memory is given back once after many bytes and a second of silence,
// not while bytes pass, and not after few.
func TestPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		release = func() { n++ }
		defer func(old func()) { release = old }(release)
		var r Releaser
		after := func(d time.Duration, bytes, want int) {
			t.Helper()
			r.Passed(bytes)
			time.Sleep(d)
			synctest.Wait()
			if n != want {
				t.Fatalf("memory was given back %d times, want %d", n, want)
			}
		}
		after(time.Hour, least-1, 0)
		for range 5 {
			after(900*time.Millisecond, 1, 0)
		}
		after(2*time.Second, 1, 1)
		after(time.Hour, least-1, 1)
		after(2*time.Second, 1, 2)
		after(time.Hour, 10*least, 3)
	})
}

// TestPassedMeanwhile checks that memory is given back again for bytes that passed while it was
// given back, also if none follow.
func TestPassedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var r Releaser
		release = func() {
			if n++; n == 1 {
				r.Passed(least)
			}
		}
		defer func(old func()) { release = old }(release)
		r.Passed(least)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n != 2 {
			t.Errorf("memory was given back %d times, want 2", n)
		}
	})
}
