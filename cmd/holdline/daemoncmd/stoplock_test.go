package daemoncmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/process"
	"holdline/protocol/socket"
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
		me := process.Self()
		if err := held.Write(me.PID, me.Start); err != nil {
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

// TestStop_DoesNotListen checks that a daemon which holds its lock for long and does not listen is not said
// to be gone.
func TestStop_DoesNotListen(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	env := map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": dir, socket.Env: filepath.Join(dir, "s")}
	held, err := statedir.TryLock(filepath.Join(dir, socket.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Unlock() }()
	me := process.Self()
	if err := held.Write(me.PID, me.Start); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.Flags().String("socket", "", "")
		err := Stop(cmd, &cmdenv.Process{Getenv: func(name string) string { return env[name] }}, control.StopParams{})
		name := fmt.Sprintf("daemon %d", me.PID)
		if _, hangs := errors.AsType[*attach.HungError](err); !hangs || !strings.Contains(err.Error(), name) {
			t.Errorf("stop: %v, want that %s does not answer", err, name)
		}
	})
}
