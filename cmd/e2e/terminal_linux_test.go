package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
)

// TestInstallOnATerminal checks that the steps and notes of install are wrapped between words at
// 80 columns, and not where they go through a pipe.
func TestInstallOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.script("systemctl", fakeSystemctl)
	p.env = append(p.env, "COLUMNS=80", "XDG_STATE_HOME="+filepath.Join(p.dir, "home/.local/state"))
	args := []string{"--color", "never", "install", "--bin", "--systemd", "--dry-run"}
	shown := ttytest.OnScreen(t, func(tty *os.File) {
		cmd := p.command(args...)
		cmd.Stdout, cmd.Stderr = tty, tty
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	})
	const note = "note: XDG_STATE_HOME is set here and not for systemd, whose daemon will not see it; "
	if piped := p.must(args...); !strings.Contains(piped, note) || strings.Contains(shown, note) ||
		!strings.Contains(strings.Join(strings.Fields(shown), " "), note) {
		t.Errorf("the note is not wrapped on the terminal alone:\n%s\nin a pipe:\n%s", shown, piped)
	}
	for line := range strings.Lines(shown) {
		if console.Width(strings.TrimSpace(line)) > ttytest.Columns && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("a line of %d columns: %s", console.Width(line), line)
		}
	}
}

// TestServersOnATerminal checks that no command sends control characters to the terminal,
// whatever names a server gives itself and its tools, and whatever it writes to stderr.
func TestServersOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	dir := t.TempDir()
	listed := fmt.Appendf(nil,
		`{"tools":[{"name":%s,"description":%[1]s,"inputSchema":{"type":"object"}},{"name":"deep%s","inputSchema":7},`+
			`{"name":"say","inputSchema":{"type":"object"}}]}`, jsonWords(ttytest.Hostile),
		strings.Trim(jsonWords(ttytest.Hostile), `"`))
	if err := os.WriteFile(filepath.Join(dir, "tools-list"), listed, 0o600); err != nil {
		t.Fatal(err)
	}
	p.configure(map[string]any{
		"odd": p.oddEntry(hosting{"scope": "shared"}, "-lists", dir, "-says", "words "+ttytest.Hostile+"\n"),
		"refuses": p.oddEntry(hosting{"scope": "shared"}, "-refuse", "no "+ttytest.Hostile, "-says",
			"last "+ttytest.Hostile+"\n"),
	}).daemon()
	a := p.agent().shake()
	a.ask("tools/list", map[string]any{})
	for _, args := range [][]string{
		{"servers"},
		{"status"},
		{"servers", "tools"},
		{"servers", "logs", "odd"},
		{"servers", "logs", "refuses"},
		{"logs", "odd"},
		{"logs"},
		{
			"servers",
			"call",
			"odd",
			"say",
			`{"text":` + jsonWords(`{"content":[{"type":"text","text":`+jsonWords(ttytest.Hostile)+`}]}`) + `}`,
		},
		{"servers", "call", "odd", "nope" + ttytest.Hostile},
		{"servers", "call", "refuses", "say"},
		{"servers", "tools", "--json"},
		{"consult", "say " + ttytest.Hostile},
	} {
		said := false
		got := ttytest.OnScreen(t, func(tty *os.File) {
			cmd := p.command(append([]string{"--color", "never"}, args...)...)
			cmd.Stdout, cmd.Stderr = tty, tty
			_ = cmd.Run() // whether it fails is not tested here
			said = true
		})
		if ttytest.WantHarmless(t, strings.Join(args, " "), got); !said || got == "" {
			t.Errorf("%q says nothing", args)
		}
	}
	a.rest()
}

// jsonWords returns words as a JSON string.
func jsonWords(words string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range words {
		if r > 0xffff {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "\\u%04x", r)
	}
	b.WriteByte('"')
	return b.String()
}
