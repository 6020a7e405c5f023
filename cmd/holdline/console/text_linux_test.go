package console

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"holdline/cmd/holdline/ttytest"
)

// TestStream checks that a text which comes in pieces looks on a terminal of 80 columns as one
// that is there at once, no matter how it is cut, and that it is harmless there and in a pipe.
func TestStream(t *testing.T) {
	text := strings.Repeat("some words of a long line ", 12) + "\n\n  - " + strings.Repeat("an item  ", 20) + "\n" +
		strings.Repeat("x", 200) + " y\n日本" + strings.Repeat(" 弱いテスト", 20) + "\nthe end"
	screenOf := func(show func(out *Output)) string {
		return ttytest.OnScreen(t, func(tty *os.File) {
			out := NewOutput(tty)
			size := map[string]string{"COLUMNS": "80"}
			if err := out.Configure("never", func(name string) string { return size[name] }); err != nil {
				t.Error(err)
			}
			show(out)
		})
	}
	want := screenOf(func(out *Output) { Text(out, text) })
	for size := 1; size < len(text); size += 1 + size/3 {
		if got := screenOf(func(out *Output) { stream(out, text, size) }); got != want {
			t.Fatalf("in pieces of %d bytes:\n%s\nwant:\n%s", size, got, want)
		}
	}
	ttytest.WantHarmless(t, "the text", screenOf(func(out *Output) { stream(out, "a"+ttytest.Hostile+"\nb", 1) }))
	var file bytes.Buffer
	stream(NewOutput(&file), "a\x1b[2J\r\n\tb"+text, 7)
	if want := "a?[2J\n    b" + text + "\n"; file.String() != want {
		t.Errorf("in a pipe: %q, want %q", file.String(), want)
	}
}

// stream prints a text in pieces of that many bytes.
func stream(out *Output, text string, size int) {
	s := NewStream(out)
	for rest := text; rest != ""; {
		piece := rest[:min(size, len(rest))]
		rest = rest[len(piece):]
		s.Add(piece)
	}
	s.End()
	s.End()
}
