package starter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdline/protocol/socket"
	"holdline/proxy"
)

// TestTurn checks that while one process starts a daemon another starts none, and knows when that
// start is over, whether by a daemon that listens or by its end.
func TestTurn(t *testing.T) {
	first, paths, _ := newTestStarter(t, "")
	second := New(paths, func(string) string { return "" }, first.program)
	second.err = nil // the daemon's log is of no interest here
	lock, err := first.takeTurn()
	if err != nil || lock == nil {
		t.Fatalf("the first one: %v, %v", lock, err)
	}
	if _, err := second.Start(); !errors.Is(err, proxy.ErrStarting) {
		t.Fatalf("the second one started a daemon: %v", err)
	}
	settled := second.Settled()
	if settled != second.Settled() {
		t.Error("each question has a goroutine of its own")
	}
	select {
	case <-settled:
		t.Fatal("settled while the first one starts a daemon")
	case <-time.After(20 * time.Millisecond):
	}
	lock.Close() // as when the daemon has ended
	<-settled
	if lock, err = second.takeTurn(); err != nil || lock == nil {
		t.Errorf("after that: %v, %v", lock, err)
	}
	lock.Close()
}

// TestTurn_ListeningDaemon checks that no daemon is started if one has come up since the caller's
// last dial, and that a daemon which is started lets go of the lock when it says so.
func TestTurn_ListeningDaemon(t *testing.T) {
	s, paths, vars := newTestStarter(t, "")
	exited, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	conn := dialUntil(t, paths, exited)
	// The test's daemon keeps the lock as long as it lives, as one of an older version does.
	if _, err := s.Start(); !errors.Is(err, proxy.ErrStarting) {
		t.Fatalf("a second start while the lock is held: %v", err)
	}
	if err := os.Remove(filepath.Join(vars["HOME"], "holdline", socket.StartLock)); err != nil {
		t.Fatal(err)
	}
	again, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	if end, ok := <-again; end != nil || !ok {
		t.Errorf("a second start although a daemon listens: %v, %v", end, ok)
	}
	conn.Close()
	<-exited
}

// TestTurn_Hanging checks that a process which holds the lock and does nothing holds up the others
// for a bounded time, and that only one of these starts a daemon then.
func TestTurn_Hanging(t *testing.T) {
	hanging, paths, _ := newTestStarter(t, "")
	lock, err := hanging.takeTurn()
	if err != nil || lock == nil {
		t.Fatalf("%v, %v", lock, err)
	}
	defer lock.Close()
	var others []*Starter
	for range 3 {
		s := New(paths, func(string) string { return "" }, hanging.program)
		if _, err := s.takeTurn(); !errors.Is(err, proxy.ErrStarting) {
			t.Fatalf("while the first one may be starting a daemon: %v", err)
		}
		s.refused = s.refused.Add(-patience)
		others = append(others, s)
	}
	started := 0
	for _, s := range others {
		lock, err := s.takeTurn()
		if lock != nil {
			started++
			t.Cleanup(func() { lock.Close() })
		} else if !errors.Is(err, proxy.ErrStarting) {
			t.Errorf("got %v, want that another one starts a daemon", err)
		}
	}
	if started != 1 {
		t.Errorf("%d of 3 start a daemon, want 1", started)
	}
}

// TestTurn_NoDirectory checks that a daemon is started, which then says what is wrong, if there
// can be no lock.
func TestTurn_NoDirectory(t *testing.T) {
	s, paths, vars := newTestStarter(t, "fail")
	if err := os.WriteFile(filepath.Dir(paths.Start()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exited, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-exited; err == nil {
		t.Errorf("a start in %s, where a file lies", vars["HOME"])
	}
	if s.Settled() != nil {
		t.Error("the end of a start without a lock is known")
	}
}

// TestTakeLock checks what a daemon does with the variable.
func TestTakeLock(t *testing.T) {
	if letGo, err := TakeLock(""); err != nil {
		t.Error(err)
	} else {
		letGo()
	}
	for _, value := range []string{"4", "x", "0"} {
		if _, err := TakeLock(value); err == nil {
			t.Errorf("%s=%s is accepted", LockEnv, value)
		}
	}
}
