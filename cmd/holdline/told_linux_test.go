package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// hostile are words that would command a terminal, or mislead who reads it:
// controls, C1, marks of direction, characters without width.
const hostile = "\x1b[2J\x1b]0;title\x07\b\u009b31m\u0085\u202e\u2066\u200b\u200e\u2060\ufeff\u00ad\u2028\U000e0041"

// onScreen runs show with a terminal, and returns what the terminal is sent.
func onScreen(t *testing.T, show func(tty *os.File)) string {
	t.Helper()
	tty, screen := terminal(t)
	const end = "\x00the end"
	shown := make(chan error, 1) // what is shown is read meanwhile: a terminal holds little
	go func() {
		show(tty)
		_, err := tty.WriteString(end)
		shown <- err
	}()
	var all []byte
	for b := make([]byte, 1<<14); !bytes.HasSuffix(all, []byte(end)); {
		n, err := screen.Read(b)
		all = append(all, b[:n]...)
		if err != nil {
			t.Fatalf("%v after %q", err, all)
		}
	}
	if err := <-shown; err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(all), end), "\r\n", "\n")
}

// wantHarmless wants nothing on a screen but what is seen, spaces and lines.
func wantHarmless(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			t.Errorf("%s sends %U to the terminal: %q", what, r, text)
			return
		}
	}
}

// TestToldOnATerminal: an output is the same for a terminal however it is cut into
// writes, and elsewhere it is as it came.
func TestToldOnATerminal(t *testing.T) {
	text := "a\tü" + hostile + "\n日本 \U0001f600\u00a0é\xff\xc3\n"
	var want string
	for size := 1; size <= len(text); size++ {
		got := onScreen(t, func(tty *os.File) {
			out := &told{w: tty}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				n, err := out.Write(rest[:min(size, len(rest))])
				if err != nil || n != min(size, len(rest)) {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
		wantHarmless(t, "the text", got)
		if want == "" {
			want = got
		}
		if got != want || !strings.HasPrefix(got, "a\tü?[2J?]0;title???31m?") || !strings.Contains(got, "\n日本 \U0001f600 é") {
			t.Errorf("in writes of %d bytes: %q, want %q", size, got, want)
		}
	}
	var file bytes.Buffer
	if n, err := (&told{w: &file}).Write([]byte(text)); n != len(text) || err != nil || file.String() != text {
		t.Errorf("in a file: %d, %v, %q", n, err, file.String())
	}
	got := onScreen(t, func(tty *os.File) { steer(&told{w: tty}, "\r\x1b[K") })
	if got != "\r\x1b[K" {
		t.Errorf("our own command is sent as %q", got)
	}
}

// TestCellsAreBounded: names of any length and spelling make a table of a bounded
// size, with one line for each row.
func TestCellsAreBounded(t *testing.T) {
	long := strings.Repeat("é\u202e\n\t", 25<<10)
	var b bytes.Buffer
	table := newTable(&b, "A", "B", "C")
	for range 10 {
		table.row(long, long, long)
		table.row("", "x", "y")
	}
	table.flush()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 21 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 2*(maxCell+2)+maxLastCell {
			t.Errorf("a line has %d characters", n)
		}
		wantHarmless(t, "a row", line)
	}
}

// TestServersOnATerminal: whatever a server calls itself and its tools, and
// writes to stderr, no command sends a character of it that commands the
// terminal.
func TestServersOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	dir := t.TempDir()
	listed := fmt.Appendf(nil, `{"tools":[{"name":%s,"description":%[1]s,"inputSchema":{"type":"object"}},{"name":"deep%s","inputSchema":7},`+
		`{"name":"say","inputSchema":{"type":"object"}}]}`, jsonWords(hostile), strings.Trim(jsonWords(hostile), `"`))
	if err := os.WriteFile(filepath.Join(dir, "tools-list"), listed, 0o600); err != nil {
		t.Fatal(err)
	}
	p.configure(map[string]any{
		"odd":     p.oddEntry(hosting{"scope": "shared"}, "-lists", dir, "-says", "words "+hostile+"\n"),
		"refuses": p.oddEntry(hosting{"scope": "shared"}, "-refuse", "no "+hostile, "-says", "last "+hostile+"\n"),
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
		{"servers", "call", "odd", "say", `{"text":` + jsonWords(`{"content":[{"type":"text","text":`+jsonWords(hostile)+`}]}`) + `}`},
		{"servers", "call", "odd", "nope" + hostile},
		{"servers", "call", "refuses", "say"},
		{"servers", "tools", "--json"},
	} {
		said := false
		got := onScreen(t, func(tty *os.File) {
			cmd := p.command(args...)
			cmd.Stdout, cmd.Stderr = tty, tty
			_ = cmd.Run() // that it fails is for others to test
			said = true
		})
		if wantHarmless(t, strings.Join(args, " "), got); !said || got == "" {
			t.Errorf("%q says nothing", args)
		}
	}
	a.rest()
}

// jsonWords spells words as a JSON string.
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
