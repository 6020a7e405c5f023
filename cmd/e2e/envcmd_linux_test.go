package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSetup_OffersToKeepVariables checks that setup asks on a terminal about a variable that only this shell has,
// starts the server with it, keeps it after a yes to the plan, and leaves nothing of it after a no.
func TestSetup_OffersToKeepVariables(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80", "TOKEN_A=value-1")
	told := filepath.Join(p.dir, "told")
	p.putHome(t, map[string]string{
		".claude.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{"tells": p.tellingServer(told)}}),
	})
	path := filepath.Join(p.dir, "home/.config/holdline/env")
	const keep, do = "you alone can read? [Y/n] ", "Do this?"
	for _, c := range []struct {
		keep, do, want string
		code           int
		kept           bool
	}{
		{"\n", "n\n", "moves  tells", exitFailure, false},
		{"n\n", "n\n", "stays  tells", exitFailure, false},
		{"y\n", "\n", "1 server moved", exitOK, true},
	} {
		cmd := p.command("--color", "never", "setup")
		got := onTerminalAll(t, cmd, "", prompted{keep, typing(t, c.keep)}, prompted{do, typing(t, c.do)})
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(got, c.want) ||
			!strings.Contains(got, "Only this shell has TOKEN_A") || strings.Contains(got, "value-1") {
			t.Errorf("%q, %q: exit %d\n%s", c.keep, c.do, code, got)
		}
		if text, err := os.ReadFile(path); (err == nil) != c.kept || c.kept && string(text) != "TOKEN_A=value-1\n" {
			t.Errorf("%q, %q: the file has %q, %v", c.keep, c.do, text, err)
		}
	}
}

// TestSetup_NothingMoves_DefaultIsNo checks that an empty line is a no where no server would move, that d shows each
// file, and that a ? ends nothing. Setup without servers ends with what to do next.
func TestSetup_NothingMoves_DefaultIsNo(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80")
	p.putHome(t, map[string]string{".cursor/mcp.json": "{}\n"})
	before := p.home(t)
	const do = "Do this? [y/N/d/?] "
	cmd := p.command("--color", "never", "setup")
	got := onTerminalAll(t, cmd, "", prompted{do, typing(t, "?\n")}, prompted{do, typing(t, "d\n")},
		prompted{do, typing(t, "\n")})
	if code := cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(got, "n changes nothing") ||
		!strings.Contains(got, "Cursor: ") || !strings.Contains(got, "Nothing was changed.") {
		t.Errorf("exit %d\n%s", code, got)
	}
	p.sameHome(t, before)
	if out := p.must("setup", "--yes"); !strings.Contains(out, "No server has moved. To add one for all agents: holdline servers add") {
		t.Errorf("setup says\n%s", out)
	}
	if out := p.must(); !strings.Contains(out, "Next: holdline servers add NAME") {
		t.Errorf("holdline says\n%s", out)
	}
}
