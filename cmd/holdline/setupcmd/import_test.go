package setupcmd

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/importer"
)

// TestLeftIsNamed checks that what an undo has left is named even if the daemon cannot be reached.
func TestLeftIsNamed(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.Flags().String("socket", socket, "")
	cmd.SetContext(ctx)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	proc := &cmdenv.Process{Getenv: func(string) string { return "" }}
	done := importer.Done{Files: []string{"/written"}, Left: []importer.Left{{Path: "/left", Key: "a", Why: "changed"}}}
	err = finishImport(cmd, proc, nil, filepath.Join(dir, "config.json"), done)
	if err == nil || !strings.Contains(err.Error(), "daemon") ||
		!strings.Contains(out.String(), "left /left a: changed") {
		t.Errorf("%v, printed %q", err, out.String())
	}
}
