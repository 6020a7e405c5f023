package lockcheck_test

import (
	"strings"
	"testing"

	"github.com/petermattis/goid"

	"holdline/protocol/lockcheck"
)

// TestBlockingUnderLock checks that a call is reported only while its own goroutine holds a
// lock.
func TestBlockingUnderLock(t *testing.T) {
	var reports []string
	lockcheck.Watch(goid.Get, func(call string, stack []byte) { reports = append(reports, call+"\n"+string(stack)) })
	var m, other lockcheck.Mutex
	lockcheck.Blocking("before")
	m.Lock()
	lockcheck.Blocking("under the lock")
	other.Lock()
	m.Unlock()
	lockcheck.Blocking("under the other lock")
	other.Unlock()
	lockcheck.Blocking("after")
	if !m.TryLock() {
		t.Fatal("a free lock is not had")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lockcheck.Blocking("in another goroutine")
		if m.TryLock() {
			t.Error("a lock that is held is had once more")
		}
	}()
	<-done
	m.Unlock()
	if len(reports) != 2 || !strings.HasPrefix(reports[0], "under the lock\n") ||
		!strings.Contains(reports[1], "TestBlockingUnderLock") {
		t.Errorf("got %q, want the two calls under a lock", reports)
	}
}
