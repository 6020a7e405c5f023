package place

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"holdline/daemon/statedir"
	"holdline/protocol/process"
)

// TestTryState checks that a lock that is free only because its holder replaces its program
// is not taken by another process.
func TestTryState(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	self, parent := process.Self(), os.Getppid()
	living, err := process.Lookup(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		pid   int
		start uint64
		taken bool
	}{
		{"our own name", self.PID, self.Start, true},
		{"one that lives", living.PID, living.Start, false},
		{"its pid, of another life", living.PID, living.Start + 1, true},
		{"one that is dead", gone.Process.Pid, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			before, err := statedir.TryLock(StateLock(dir))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(before.Write(c.pid, c.start, "/run/s"), before.Unlock()); err != nil {
				t.Fatal(err)
			}
			lock, err := TryState(dir, self.PID)
			if c.taken == (err != nil) || !c.taken && !errors.Is(err, statedir.ErrLocked) {
				t.Fatalf("TryState = %v, want it taken: %v", err, c.taken)
			}
			if lock != nil {
				_ = lock.Unlock()
			}
			// In each case its owner gets the lock.
			if lock, err = TryState(dir, c.pid); err != nil {
				t.Fatalf("TryState of its owner = %v", err)
			}
			_ = lock.Unlock()
		})
	}
}
