package attach

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/ownfile"
	"holdline/protocol/socket"
)

// errUser is why the user has ended a command.
var errUser = errors.New("the user has ended it")

// TestStartInterrupted checks that a command which its user ends while it waits for a daemon
// says so, and not that the daemon does not answer.
func TestStartInterrupted(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// Another process is starting a daemon, so that the command starts none.
	lock, err := ownfile.OpenFile(filepath.Join(dir, socket.StartLock), os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetErr(io.Discard)
	cmd.Flags().String("socket", filepath.Join(dir, "daemon.sock"), "")
	proc := &cmdenv.Process{Getenv: func(name string) string {
		if name == "HOME" { // of which the state directory is a part, when a daemon is to be started
			cancel(errUser)
			return dir
		}
		return ""
	}, Stderr: io.Discard}
	if c, err := Start(cmd, proc); !errors.Is(err, errUser) {
		t.Errorf("connected %v, %v", c != nil, err)
	}
}
