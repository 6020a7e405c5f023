package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestUninstall_AsksOnATerminal checks that nothing changes after a no, that an entry which was edited is asked
// about, and that it becomes what it was before after a yes.
func TestUninstall_AsksOnATerminal(t *testing.T) {
	t.Parallel()
	p, bin, before := connected(t)
	p.env = append(p.env, "TERM=xterm", "COLUMNS=80")
	edited := strings.Replace(p.read(t, ".cursor/mcp.json"), `"--server",`, `"--identity", "mine", "--server",`, 1)
	p.putHome(t, map[string]string{".cursor/mcp.json": edited})
	const ask, edits = "Take them back, and remove holdline? [Y/n] ", "Replace it by what it was before? [y/N] "
	for _, c := range []struct {
		questions []prompted
		want      string
		code      int
	}{
		{[]prompted{{ask, typing(t, "n\n")}}, "Nothing was changed.", exitFailure},
		{[]prompted{{ask, typing(t, "\n")}, {edits, typing(t, "\n")}}, "holdline stays installed", exitFailure},
		{[]prompted{{ask, typing(t, "y\n")}, {edits, typing(t, "y\n")}}, "remove " + bin, exitOK},
	} {
		if _, err := os.Stat(bin); err != nil || !strings.Contains(p.read(t, ".cursor/mcp.json"), "mine") {
			t.Fatalf("%v; Cursor has %s", err, p.read(t, ".cursor/mcp.json"))
		}
		cmd := p.command("--color", "never", "uninstall")
		got := onTerminalAll(t, cmd, "", c.questions...)
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("exit %d, want %d and %q:\n%s", code, c.code, c.want, got)
		}
	}
	for name, text := range map[string]string{"/.cursor/mcp.json": "cursor", "/.codex/config.toml": "codex"} {
		if now := p.home(t)[name]; now != before[name] {
			t.Errorf("%s has %s", text, now)
		}
	}
	if _, err := os.Stat(bin); err == nil {
		t.Error("the program is left")
	}
}
