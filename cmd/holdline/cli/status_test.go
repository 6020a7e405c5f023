package cli

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol"
)

// TestWatchInterruptedDuringRequest_ExitsWithZero checks that an interrupt is no error of status
// --watch, also while the daemon has not yet answered.
func TestWatchInterruptedDuringRequest_ExitsWithZero(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl") // a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "daemon.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() { // it ends with the connection
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		lines := bufio.NewScanner(c)
		lines.Scan() // the greeting
		_, _ = c.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version}))
		lines.Scan() // the request
		interrupt()
		lines.Scan() // the end
	}()
	var out, errs bytes.Buffer
	code := runProcess(ctx, cmdenv.Process{
		Args: []string{"status", "--watch", "--socket", path}, Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" },
	})
	if code != cmdenv.ExitOK || errs.Len() > 0 {
		t.Errorf("exit code %d, %q, want 0", code, errs.String())
	}
}
