package cli

import (
	"bytes"
	"context"
	"net"
	"testing"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/socket/sockettest"
)

// TestWatchInterruptedDuringRequest_ExitsWithZero checks that an interrupt is no error of status
// --watch, also while the daemon has not yet answered.
func TestWatchInterruptedDuringRequest_ExitsWithZero(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	path := sockettest.Daemon(t, func(_ net.Conn, lines *jsonrpc.Lines) {
		_, _ = lines.Next() // the request
		interrupt()
		_, _ = lines.Next() // the end
	})
	var out, errs bytes.Buffer
	code := runProcess(ctx, cmdenv.Process{
		Args: []string{"status", "--watch", "--socket", path}, Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" },
	})
	if code != cmdenv.ExitOK || errs.Len() > 0 {
		t.Errorf("exit code %d, %q, want 0", code, errs.String())
	}
}
