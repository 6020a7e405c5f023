package consultcmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
	"holdline/protocol/control"
)

// compareFrame compares what show prints on a terminal of 80 columns with the frame of that name.
func compareFrame(t *testing.T, name string, show func(out io.Writer)) {
	t.Helper()
	frame := ttytest.OnScreen(t, func(tty *os.File) {
		out := console.NewOutput(tty)
		size := map[string]string{"COLUMNS": fmt.Sprint(ttytest.Columns)}
		if err := out.Configure("never", func(name string) string { return size[name] }); err != nil {
			t.Error(err)
		}
		show(out)
	})
	ttytest.CompareFrame(t, name, frame, console.Width)
}

// TestListFrame checks what consult list shows on a terminal of 80 columns, and that a pipe gets
// whole questions and no colour.
func TestListFrame(t *testing.T) {
	question := "Is the retry in client.go safe if the server answers twice?"
	free, dear := 0.0, 0.3141
	at := func(minutesAgo int) int64 {
		return time.Now().Add(-time.Duration(minutesAgo) * time.Minute).UnixMilli()
	}
	all := []control.Consult{
		{
			ID: "159788036b8d", State: "running", CreatedMS: at(3), TookMS: 132_400, CostUSD: &dear,
			Identity: "claude-code", Engine: "claude", Model: "claude-opus-4-5-20251101", Question: question,
			Note: "Read client.go",
		},
		{
			ID: "3267b1e76531", State: "queued", CreatedMS: at(1), Identity: "codex", Engine: "claude",
			Question: strings.Repeat("a-word-without-an-end", 5),
		},
		{
			ID: "77aa01f2c3d4", State: "done", CreatedMS: at(90), TookMS: 6_612_000, CostUSD: &free,
			Identity: "cli", Engine: "codex", Model: "gpt-5.1-codex", Question: "Name the\nweakest test. 弱いテスト",
		},
		{
			ID: "d00f00000001", State: "failed", CreatedMS: at(1500 * 3), TookMS: 900, Code: "outcome_unknown",
			Identity: "an-identity-of-many-letters", Engine: "claude", Question: question,
		},
		{
			ID: "d00f00000002", State: "cancelled", CreatedMS: at(1501 * 3), TookMS: 61_000, Code: "cancelled",
			Identity: "cli", Engine: "claude", Model: "claude-opus-4-5-20251101", Question: question,
		},
	}
	member := func(panel, id, label, engine string) control.Consult {
		return control.Consult{
			ID: id, State: "done", CreatedMS: at(2), TookMS: 9000, Identity: "cli", Engine: engine, Panel: panel, Label: label,
			Question: "Which of the two designs holds?",
		}
	}
	panels := []control.Consult{
		member("", "a1a1a1a1a1a1", "", "panel"),
		member("a1a1a1a1a1a1", "a1a1a1a1a1a2", "A", "claude"), member("a1a1a1a1a1a1", "a1a1a1a1a1a3", "B", "acp:opencode"),
		member("a1a1a1a1a1a1", "a1a1a1a1a1a4", "judge", "claude"), member("of one removed", "b1b1b1b1b1b1", "B", "codex"),
	}
	for name, list := range map[string][]control.Consult{"list": all, "list-nothing": nil, "list-panel": panels} {
		compareFrame(t, name, func(out io.Writer) { printConsults(out, list) })
		var piped bytes.Buffer
		printConsults(console.NewOutput(&piped), list)
		if got := piped.String(); strings.Contains(got, "\x1b") ||
			strings.Count(got, question) != strings.Count(fmt.Sprint(list), question) {
			t.Errorf("in a pipe:\n%s", got)
		}
	}
}

// TestShowFrame checks what consult show prints on a terminal of 80 columns, of an answer and of
// one that is not complete, and that stdout alone, in a pipe, gets the answer as it is.
func TestShowFrame(t *testing.T) {
	text := `## Verdict

The retry in client.go is **not safe** if the server answers twice: both answers carry the same id, and the second
one is taken for that of the next call.

- The lock is taken twice, in send and in receive, which is no harm by itself; but the counter between them is read
  without it.
- See /home/user/projects/shop/internal/a-directory-with-a-long-name/client.go:42

    if c.next == id { // an example that is indented and a little longer than a line of the terminal
        return
    }

弱いテストは一つだけです。弱いテストは一つだけです。弱いテストは一つだけです。 弱いテストは一つだけです。
`
	for name, a := range map[string]control.ConsultAnswer{
		"show": {Text: text, Value: json.RawMessage(`{"consult_id":"159788036b8d","state":"done","engine":"claude",
			"session_id":"0b51b9d4-4f6c-4a39-9a43-9b3c3d1f3a55","cost_usd":0.3141,"duration_ms":132400,
			"models":["claude-opus-4-5-20251101","claude-haiku-4-5-20251001"]}`)},
		"show-partial": {Text: "So far: the lock is taken twice.", Value: json.RawMessage(`{
			"consult_id":"3267b1e76531","state":"running","partial":true,"engine":"codex"}`)},
	} {
		show := func(out, errs io.Writer) {
			cmd := &cobra.Command{}
			cmd.SetOut(out)
			cmd.SetErr(errs)
			if err := printConsult(cmd, a); err != nil {
				t.Error(err)
			}
		}
		compareFrame(t, name, func(out io.Writer) { show(out, out) })
		var piped, errs bytes.Buffer
		show(console.NewOutput(&piped), console.NewOutput(&errs))
		if got, want := piped.String(), strings.TrimRight(a.Text, "\n")+"\n"; got != want {
			t.Errorf("in a pipe: %q, want %q", got, want)
		}
	}
}
