package attach

import (
	"bufio"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol"
	"holdline/protocol/control"
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
			dir, err := os.MkdirTemp("", "hl") // a socket's path has little room
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			path := filepath.Join(dir, "daemon.sock")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			go func() { // it ends with the connection
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				defer l.Close() // nobody connects again
				lines := bufio.NewScanner(c)
				lines.Scan() // the greeting
				_, _ = c.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version}))
				lines.Scan() // the request
			}()
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.Flags().String("socket", path, "")
			err = ask(cmd)
			if code := cmdenv.Report(t.Output(), err); code != cmdenv.ExitLost || !errors.Is(err, cmdenv.ErrLost) {
				t.Errorf("exit code %d, want %d: %v", code, cmdenv.ExitLost, err)
			}
		})
	}
}
