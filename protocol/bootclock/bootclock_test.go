package bootclock

import (
	"fmt"
	"testing"
	"time"
)

// TestRoundTrip checks that a time equals the one made from its reading.
func TestRoundTrip(t *testing.T) {
	for _, in := range []time.Duration{-time.Hour, 0, time.Minute, 48 * time.Hour} {
		want := time.Now().Add(in)
		if got := TimeMS(AtMS(want)); got.Sub(want).Abs() > time.Second {
			t.Errorf("in %v: got %v, want %v", in, got, want)
		}
	}
	if a := Now(); a <= 0 || Now() < a {
		t.Errorf("the boot clock shows %v, then %v", a, Now())
	}
}

// TestBefore checks how a mark compares with a time, also one of another boot.
func TestBefore(t *testing.T) {
	early := Now()
	mark := Mark()
	late := Now() + 1
	for _, c := range []struct {
		what       string
		mark       []byte
		at         time.Duration
		before, ok bool
	}{
		{"a moment ago", mark, late, true, true},
		{"later", mark, early, false, true},
		{"in another boot, whose clock showed more", fmt.Appendf(nil, "other %d\n", late+time.Hour), late, true, true},
		{"empty", nil, late, false, false},
		{"without a boot", fmt.Appendf(nil, " %d\n", early), late, false, false},
		{"cut off", mark[:len(ID())], late, false, false},
	} {
		if before, ok := Before(c.mark, c.at); before != c.before || ok != c.ok {
			t.Errorf("%s: Before(%q, %d) = %v, %v, want %v, %v", c.what, c.mark, c.at, before, ok, c.before, c.ok)
		}
	}
}

// TestInFuture checks which marks cannot be believed, since they name a moment that has not come yet.
func TestInFuture(t *testing.T) {
	for mark, want := range map[string]bool{
		string(Mark()): false,
		fmt.Sprintf("%s %d\n", ID(), Now()+time.Hour): true,
		fmt.Sprintf("other %d\n", Now()+time.Hour):    false, // of another boot, which counted further
		fmt.Sprintf("%s 9999999999999999999\n", ID()): false, // no number at all
		"": false,
	} {
		if got := InFuture([]byte(mark)); got != want {
			t.Errorf("InFuture(%q) = %v", mark, got)
		}
	}
}
