package consultcmd

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/socket/sockettest"
)

// TestInterruptedWait checks that a command whose user ends it while it waits for a consult says
// that the consult goes on.
func TestInterruptedWait(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	path := sockettest.Daemon(t, func(_ net.Conn, lines *jsonrpc.Lines) { // it never answers
		if _, err := lines.Next(); err == nil {
			interrupt()
		}
		_, _ = lines.Next() // until the command is gone
	})
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetErr(io.Discard)
	cmd.Flags().String("socket", path, "")
	_, err := waitConsult(cmd, &cmdenv.Process{Getenv: func(string) string { return "" }}, "aabbccddeeff")
	if err == nil || !strings.Contains(err.Error(), "consult aabbccddeeff goes on") {
		t.Errorf("an interrupted wait ends with %v", err)
	}
}
