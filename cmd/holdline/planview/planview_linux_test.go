package planview

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
)

// TestPrintOnATerminal checks that no line of a plan is longer than the terminal, with and
// without details.
func TestPrintOnATerminal(t *testing.T) {
	p := plan(t)
	got := ttytest.OnScreen(t, func(tty *os.File) {
		out := console.NewOutput(tty)
		env := map[string]string{"COLUMNS": "80", "TERM": "xterm"}
		if err := out.Configure("never", func(name string) string { return env[name] }); err != nil {
			t.Error(err)
		}
		Print(out, p, true)
	})
	for line := range strings.Lines(got) {
		line = strings.TrimRight(line, "\r\n")
		if utf8.RuneCountInString(line) > 80 && strings.Count(strings.TrimSpace(line), " ") > 0 { // a path is one word
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	if !strings.Contains(got, "mcpServers.github") {
		t.Errorf("no details:\n%s", got)
	}
}
