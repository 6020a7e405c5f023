package e2e

import (
	"fmt"
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

// TestSetup_AsksOnceAboutAllVariables checks that setup asks one question about all variables that only this shell has,
// says of each what uses it, asks about each of them after a d, and does not offer the key of a provider of Codex that
// servers get only because their client passes on all that it has.
func TestSetup_AsksOnceAboutAllVariables(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80", "TOKEN_A=value-1", "TOKEN_B=value-2", "STAND_IN_KEY=value-3")
	named := p.tellingServer(filepath.Join(p.dir, "told"))
	named["env"] = map[string]string{"TOKEN_A": "${TOKEN_A}", "TOKEN_B": "${TOKEN_B}"}
	p.putHome(t, map[string]string{
		".claude.json":       mustJSON(t, map[string]any{"mcpServers": map[string]any{"tells": named}}),
		".codex/config.toml": "[model_providers.mine]\nname = \"mine\"\nenv_key = \"STAND_IN_KEY\"\n",
	})
	path := filepath.Join(p.dir, "home/.config/holdline/env")
	const keep, each, do = "you alone can read? [Y/n/d] ", "Keep TOKEN_%s? [Y/n] ", "Do this?"
	for name, c := range map[string]struct {
		answers []prompted
		want    string
	}{
		"all": {[]prompted{{keep, typing(t, "\n")}}, "TOKEN_A=value-1\nTOKEN_B=value-2\n"},
		"one": {[]prompted{
			{keep, typing(t, "d\n")},
			{fmt.Sprintf(each, "A"), typing(t, "y\n")},
			{fmt.Sprintf(each, "B"), typing(t, "n\n")},
		}, "TOKEN_A=value-1\n"},
		"neither": {[]prompted{{keep, typing(t, "n\n")}}, ""},
	} {
		cmd := p.command("--color", "never", "setup")
		answers := append(c.answers, prompted{do, func(screen *os.File, shown string) {
			if text, _ := os.ReadFile(path); string(text) != c.want {
				t.Errorf("%s: the file has %q, want %q", name, text, c.want)
			}
			typing(t, "n\n")(screen, shown)
		}})
		got := onTerminalAll(t, cmd, "", answers...)
		if !strings.Contains(got, "  TOKEN_A  tells\r\n  TOKEN_B  tells\r\n") || strings.Contains(got, "STAND_IN_KEY  ") ||
			strings.Contains(got, "value-") {
			t.Errorf("%s: setup says\n%s", name, got)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: a variable is kept after a no", name)
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
