package returning

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestWindow: while the window is open, the records of a session are trusted unless it
// has ended here; afterwards, and when too many have ended to be remembered, none are.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(time.Now(), time.Minute)
		w.Ended("ended")
		if !w.Discarded("ended") || w.Discarded("other") {
			t.Error("want the session that has ended discarded, and no other")
		}
		time.Sleep(time.Minute)
		if !w.Discarded("other") {
			t.Error("a session is trusted once the window is over")
		}
		w.Ended("late") // remembers nothing
	})
	w := New(time.Now(), time.Hour)
	for i := range maxEnded {
		w.Ended(fmt.Sprint(i))
	}
	if w.Discarded("other") {
		t.Error("a session is not trusted although fewer have ended than are remembered")
	}
	w.Ended("one more")
	if !w.Discarded("other") {
		t.Error("a session is trusted although more have ended than are remembered")
	}
}
