package consultcmd

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

// TestInterruptedWait checks that a command whose user ends it while it waits for a consult says
// that the consult goes on.
func TestInterruptedWait(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl") // short: a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() { // a daemon that never answers
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		lines := jsonrpc.NewLines(conn, jsonrpc.MaxFrame)
		if _, err := lines.Next(); err != nil {
			return
		}
		_, _ = conn.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version}))
		if _, err := lines.Next(); err == nil {
			interrupt()
		}
		_, _ = lines.Next() // until the command is gone
	}()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetErr(io.Discard)
	cmd.Flags().String("socket", path, "")
	_, err = waitConsult(cmd, &cmdenv.Process{Getenv: func(string) string { return "" }}, "aabbccddeeff")
	if err == nil || !strings.Contains(err.Error(), "consult aabbccddeeff goes on") {
		t.Errorf("an interrupted wait ends with %v", err)
	}
}
