package console

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"
	"time"

	"holdline/cmd/holdline/ttytest"
)

// TestBackspaceTakesACharacter checks that a backspace removes all bytes of a character, from the
// line and from the screen.
func TestBackspaceTakesACharacter(t *testing.T) {
	tty, screen := ttytest.Open(t)
	const question = "Token: "
	go func() { // what is typed before the question is for the terminal's own line
		var shown []byte
		for b := make([]byte, 64); !bytes.HasSuffix(shown, []byte(question)); {
			n, err := screen.Read(b)
			if err != nil {
				return
			}
			shown = append(shown, b[:n]...)
		}
		_, _ = screen.WriteString("aé日\x7f\x7fb\n")
	}()
	var out bytes.Buffer
	line, err := ReadLine(t.Context(), tty, io.MultiWriter(tty, &out), question, false, 100)
	if want := question + "aé日" + "\b \b\b \b" + "\b \b" + "b\n"; err != nil || line != "ab" || out.String() != want {
		t.Errorf("the line is %q, %v; shown is %q, want %q", line, err, out.String(), want)
	}
}

// closing closes a terminal when something is written to it.
type closing struct{ screen *os.File }

func (c closing) Write(p []byte) (int, error) { return len(p), c.screen.Close() }

// TestTerminalIsClosed checks that a question ends when its terminal goes: a read returns nothing
// at once then.
func TestTerminalIsClosed(t *testing.T) {
	tty, screen := ttytest.Open(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := ReadLine(ctx, tty, closing{screen}, "Token: ", true, 100); err == nil || ctx.Err() != nil {
		t.Errorf("without a terminal the question ends with %v", err)
	}
}
