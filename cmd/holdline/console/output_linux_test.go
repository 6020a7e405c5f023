package console

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"holdline/cmd/holdline/ttytest"
	"holdline/protocol/control"
)

// TestToldOnATerminal checks that output to a terminal is made harmless however it is cut
// into writes, and that other output is unchanged.
func TestToldOnATerminal(t *testing.T) {
	text := "a\tü" + ttytest.Hostile + "\n日本 \U0001f600\u00a0é\xff\xc3\n"
	var want string
	for size := 1; size <= len(text); size++ {
		got := ttytest.OnScreen(t, func(tty *os.File) {
			out := NewOutput(tty)
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				n, err := out.Write(rest[:min(size, len(rest))])
				if err != nil || n != min(size, len(rest)) {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
		ttytest.WantHarmless(t, "the text", got)
		if want == "" {
			want = got
		}
		if got != want || !strings.HasPrefix(got, "a\tü?[2J?]0;title???31m?") ||
			!strings.Contains(got, "\n日本 \U0001f600 é") {
			t.Errorf("in writes of %d bytes: %q, want %q", size, got, want)
		}
	}
	var file bytes.Buffer
	if n, err := NewOutput(&file).Write([]byte(text)); n != len(text) || err != nil || file.String() != text {
		t.Errorf("in a file: %d, %v, %q", n, err, file.String())
	}
	got := ttytest.OnScreen(t, func(tty *os.File) { WriteControl(NewOutput(tty), "\r\x1b[K") })
	if got != "\r\x1b[K" {
		t.Errorf("our own command is sent as %q", got)
	}
}

// TestNoControlWithoutATerminalForIt checks that a file, and a terminal that has no control
// sequences, get none: neither a line of progress nor a command to clear the screen.
func TestNoControlWithoutATerminalForIt(t *testing.T) {
	var file bytes.Buffer
	WriteControl(NewOutput(&file), "\x1b[2J")
	dumb := ttytest.OnScreen(t, func(tty *os.File) {
		out := NewOutput(tty)
		if err := out.Configure("auto", func(name string) string {
			return map[string]string{"TERM": "dumb"}[name]
		}); err != nil {
			t.Error(err)
		}
		WriteControl(out, "\x1b[2J")
		show, done := ProgressLine(out)
		if show != nil {
			show(control.Progress{Message: "waiting"})
		}
		done()
	})
	if file.Len() > 0 || dumb != "" {
		t.Errorf("a file gets %q, a dumb terminal %q", file.String(), dumb)
	}
}

// TestCellsAreBounded checks that names of any length and spelling make a table of limited
// width, with one line for each row.
func TestCellsAreBounded(t *testing.T) {
	long := strings.Repeat("é\u202e\n\t", 25<<10)
	var b bytes.Buffer
	table := NewTable(&b, "A", "B", "C")
	for range 10 {
		table.Row(long, long, long)
		table.Row("", "x", "y")
	}
	table.Flush()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 21 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 2*(maxCell+2)+maxLastCell {
			t.Errorf("a line has %d characters", n)
		}
		ttytest.WantHarmless(t, "a row", line)
	}
}
