package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/ttytest"
)

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
