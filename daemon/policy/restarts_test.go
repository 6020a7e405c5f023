package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/protocol/fault"
)

func noJitter() float64 { return 0 }

// TestRestartsBackOff checks that the pauses double up to five seconds.
func TestRestartsBackOff(t *testing.T) {
	r := NewRestarts(1000, time.Hour, noJitter)
	var got []time.Duration
	for range 8 {
		wait, ok := r.Failed(epoch)
		if !ok {
			t.Fatal("ejected")
		}
		got = append(got, wait/time.Millisecond)
	}
	if want := []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000}; !slices.Equal(got, want) {
		t.Errorf("back-off %v ms, want %v", got, want)
	}
	for range 900 {
		if wait, _ := r.Failed(epoch); wait != 5*time.Second {
			t.Fatalf("back-off %v", wait)
		}
	}
}

func TestRestartsJitter(t *testing.T) {
	numbers := []float64{0, 0.5, 0.999}
	r := NewRestarts(10, time.Hour, func() float64 {
		n := numbers[0]
		numbers = numbers[1:]
		return n
	})
	for _, want := range []time.Duration{100 * time.Millisecond, 150 * time.Millisecond, 200_200 * time.Microsecond} {
		if wait, _ := r.Failed(epoch); wait != want {
			t.Errorf("back-off %v, want %v", wait, want)
		}
	}
}

// TestRestartsEject checks that a server is ejected after too many restarts within the
// window.
func TestRestartsEject(t *testing.T) {
	r := NewRestarts(5, 5*time.Minute, noJitter)
	now := epoch
	for range 5 {
		if _, ok := r.Failed(now); !ok {
			t.Fatal("ejected within the budget")
		}
		now = now.Add(time.Minute)
	}
	// The first start is five minutes ago: outside the window.
	if n := r.Count(now); n != 4 {
		t.Errorf("%d restarts in the window, want 4", n)
	}
	if wait, ok := r.Failed(now); !ok || wait != 1600*time.Millisecond {
		t.Errorf("the fifth in the window: %v, %v", wait, ok)
	}
	if r.Ejected() {
		t.Fatal("ejected within the budget")
	}
	if _, ok := r.Failed(now); ok || !r.Ejected() {
		t.Fatal("not ejected past the budget")
	}
	now = now.Add(time.Hour)
	if _, ok := r.Failed(now); ok || !r.Ejected() {
		t.Error("time took an ejection back")
	}
	if n := r.Count(now); n != 0 {
		t.Errorf("%d restarts counted after an hour", n)
	}
	f := r.Fault("files", "read")
	if f.Fault.Code != fault.Ejected || f.Retryable || !strings.Contains(f.Error(), "holdline servers reload files") {
		t.Errorf("fault %s", f.JSON())
	}
	r.Reset()
	if wait, ok := r.Failed(now); !ok || wait != 100*time.Millisecond {
		t.Errorf("after a reset: %v, %v", wait, ok)
	}
	r.Eject()
	if _, ok := r.Failed(now); ok {
		t.Error("Eject did not")
	}
}

// TestRestartsOfNone checks that with a budget of 0 the first failure ejects.
func TestRestartsOfNone(t *testing.T) {
	r := NewRestarts(0, time.Minute, noJitter)
	if _, ok := r.Failed(epoch); ok || !r.Ejected() {
		t.Error("a budget of none let a restart pass")
	}
}
