package returning

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestWindow checks that during the window the records of a session are trusted unless the
// session ended here, and that none are trusted afterwards, or when more sessions have
// ended than are remembered.
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
		w.Ended("late") // not remembered any more
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
