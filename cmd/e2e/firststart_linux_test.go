package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
)

// downloading plays npx, which downloads a server before it starts it: npm says so if it is
// asked to. The download ends when the test makes the file beside it.
const downloading = `#!/bin/sh
[ "$npm_config_loglevel" = http ] &&
	echo 'npm http fetch GET 200 https://registry.npmjs.org/@modelcontextprotocol%2fserver-memory 212ms (cache miss)' >&2
until [ -e "$0.done" ]; do sleep 0.02; done
shift
exec "$@"
`

// TestFirstStart_ShowsWhatNpmDoes checks that on a terminal setup, servers test and servers
// restart show what npm downloads, for how long they wait, and the result once that has ended.
func TestFirstStart_ShowsWhatNpmDoes(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80")
	npx := p.script("npx", downloading)
	done := npx + ".done"
	entry := map[string]any{
		"command": npx, "args": []string{"-y", filepath.Join(programs, "toolserver"), "-ledger", p.effects()},
	}
	p.putHome(t, map[string]string{
		".cursor/mcp.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{"memory": entry}}),
	})
	const doing = "npm downloads @modelcontextprotocol/server-memory"
	for _, c := range []struct {
		args         []string
		during, want string
	}{
		{
			[]string{"setup", "--dry-run"},
			"Starting servers, 0 of 1: memory (npm downloads @modelcontextprotocol/",
			"1 server (1 client): 1 starts.",
		},
		{[]string{"servers", "test", "slow"}, doing, "slow works: 15 tools"},
		{[]string{"servers", "restart", "slow"}, doing, "server slow is ready"},
	} {
		_ = os.Remove(done)
		if c.args[0] == "servers" {
			p.configure(map[string]any{"slow": entry})
		}
		if c.args[1] == "restart" {
			p.daemon()
		}
		cmd := p.command(append([]string{"--color", "never"}, c.args...)...)
		got := onTerminal(t, cmd, "", c.during, func(*os.File) {
			if err := os.WriteFile(done, nil, 0o600); err != nil {
				t.Error(err)
			}
		})
		if code := cmd.ProcessState.ExitCode(); code != exitOK || !strings.Contains(got, c.want) {
			t.Errorf("%q: exit %d\n%s", c.args, code, got)
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(got, "\r", "\n"), "\n") {
			if strings.Contains(line, "npm downloads") && console.Width(strings.TrimPrefix(line, "\x1b[K")) >= ttytest.Columns {
				t.Errorf("%q: the line does not fit the terminal: %q", c.args, line)
			}
		}
	}
}
