package daemoncmd

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// TestStop_MarkIsThereBeforeDaemonIsAsked checks that the mark is written before a stop connects to the
// daemon, and that a stop which fails takes it back.
func TestStop_MarkIsThereBeforeDaemonIsAsked(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	env := map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": dir, socket.Env: filepath.Join(dir, "s")}
	if err := os.WriteFile(filepath.Join(dir, socket.LockFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	marked := make(chan bool, 1)
	go func() { // ends with the listener, or with its first connection
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		marked <- socket.ReadStop(dir) != nil
		_, _ = conn.Write([]byte("no daemon\n"))
		_ = conn.Close()
	}()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.Flags().String("socket", "", "")
	err = Stop(cmd, &cmdenv.Process{Getenv: func(name string) string { return env[name] }}, control.StopParams{})
	_ = ln.Close()
	if err == nil {
		t.Error("stop of what is no daemon succeeds")
	}
	if !<-marked {
		t.Error("the daemon was asked before the mark was there")
	}
	if socket.ReadStop(dir) != nil {
		t.Error("the stop failed, and its mark is left")
	}
}
