package serverscmd

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
	"holdline/daemon/config"
	"holdline/protocol/control"
)

// TestFrame checks what servers shows on a terminal of 80 columns, without any secret.
func TestFrame(t *testing.T) {
	const secret = "ghp_0123456789abcdefghij0123456789abcdef"
	all := []config.Settings{
		{
			Name: "files", Enabled: true, Transport: "stdio", Command: "npx",
			Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/home/user/projects"},
		},
		{Name: "github", Enabled: true, Transport: "stdio", Command: "mcp", Args: []string{"--token", secret}},
		{Name: "linear", Enabled: true, Transport: "http", URL: "https://mcp.linear.app/mcp?token=" + secret},
		{Name: "off", Transport: "stdio", Command: "a-program-that-is-switched-off", Args: []string{"--now"}},
	}
	tools := 26
	live := map[string]control.Server{
		"files": {Name: "files", State: "ready", Circuit: "closed", RefCount: 3, Tools: &tools},
		"github": {
			Name: "github", State: "ejected", Ejected: true, Circuit: "closed", Restarts: 5, Tools: &tools, Changed: 1,
		},
		"linear": {Name: "linear", State: "idle", Circuit: "closed"},
	}
	for i := range all {
		all[i].Scope = "shared"
	}
	frame := ttytest.OnScreen(t, func(tty *os.File) {
		out := console.NewOutput(tty)
		size := map[string]string{"COLUMNS": fmt.Sprint(ttytest.Columns)}
		if err := out.Configure("never", func(name string) string { return size[name] }); err != nil {
			t.Error(err)
		}
		cmd := &cobra.Command{}
		cmd.SetOut(out)
		new(serversCommand).printTable(cmd, all, live, true)
	})
	ttytest.CompareFrame(t, "servers", frame, console.Width)
	if strings.Contains(frame, secret) {
		t.Errorf("a secret is shown:\n%s", frame)
	}
}
