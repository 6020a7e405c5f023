package attach

import (
	"errors"
	"net"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/control"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/socket/sockettest"
)

// TestDaemonEndsBeforeItAnswers_CommandIsLost checks that a command whose daemon ends during its
// request, with no other in its place, has the exit code for that.
func TestDaemonEndsBeforeItAnswers_CommandIsLost(t *testing.T) {
	proc := &cmdenv.Process{Getenv: func(string) string { return "" }}
	for name, ask := range map[string]func(*cobra.Command) error{
		"Ask": func(cmd *cobra.Command) error {
			_, err := Ask[struct{}](cmd, proc, control.Status, nil)
			return err
		},
		"AskOrStart": func(cmd *cobra.Command) error {
			_, err := AskOrStart[struct{}](cmd, proc, control.ServerTools, nil, nil)
			return err
		},
		"ReloadFile": func(cmd *cobra.Command) error { return ReloadFile(cmd, proc, "file") },
	} {
		t.Run(name, func(t *testing.T) {
			path := sockettest.Daemon(t, func(_ net.Conn, lines *jsonrpc.Lines) {
				_, _ = lines.Next() // the request; nobody connects again
			})
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.Flags().String("socket", path, "")
			err := ask(cmd)
			if code := cmdenv.Report(t.Output(), err); code != cmdenv.ExitLost || !errors.Is(err, cmdenv.ErrLost) {
				t.Errorf("exit code %d, want %d: %v", code, cmdenv.ExitLost, err)
			}
		})
	}
}
