package daemoncmd

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/statedir"
)

// TestSoonLocked checks that stop --all waits for the lock of a daemon that was just
// killed, instead of leaving its workers.
func TestSoonLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	synctest.Test(t, func(t *testing.T) {
		held, err := statedir.TryLock(path)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := soonLocked(t.Context(), path); !errors.Is(err, statedir.ErrLocked) || time.Since(begin) != dying {
			t.Errorf("after %v: %v, want ErrLocked after %v", time.Since(begin), err, dying)
		}
		got := make(chan error)
		go func() {
			lock, err := soonLocked(t.Context(), path)
			got <- errors.Join(err, lock.Unlock())
		}()
		synctest.Wait()
		if err := held.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("soonLocked = %v, want the lock", err)
		}
	})
}
