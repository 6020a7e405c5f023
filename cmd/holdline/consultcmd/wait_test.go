package consultcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/control"
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

// TestRemoveTwice checks that a consult that a daemon has removed before it ended counts as removed,
// and that one it has not removed is removed by the next daemon.
func TestRemoveTwice(t *testing.T) {
	t.Parallel()
	const id = "aabbccddeeff"
	for name, list := range map[string]string{
		"removed": `{"consults":[]}`, "not removed": `{"consults":[{"id":"` + id + `"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			// answer answers each request until the connection ends.
			answer := func(conn net.Conn, lines *jsonrpc.Lines) {
				for line, err := lines.Next(); err == nil; line, err = lines.Next() {
					var m struct {
						ID     json.RawMessage `json:"id"`
						Method string          `json:"method"`
					}
					_ = json.Unmarshal(line, &m)
					asked = append(asked, m.Method)
					_, _ = fmt.Fprintf(conn, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", m.ID, list)
				}
			}
			path := sockettest.Daemon(t, func(_ net.Conn, lines *jsonrpc.Lines) { _, _ = lines.Next() }, answer)
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.Flags().String("socket", path, "")
			err := removeConsult(cmd, &cmdenv.Process{Getenv: func(string) string { return "" }}, id)
			want := []string{control.ConsultList}
			if name == "not removed" {
				want = append(want, control.ConsultRemove)
			}
			if err != nil || !slices.Equal(asked, want) {
				t.Errorf("error %v; the next daemon was asked for %q, want %q", err, asked, want)
			}
		})
	}
}
