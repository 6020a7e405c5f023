package consultcmd

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
	"holdline/protocol/control"
)

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
	for name, list := range map[string][]control.Consult{"list": all, "list-nothing": nil} {
		frame := ttytest.OnScreen(t, func(tty *os.File) {
			out := console.NewOutput(tty)
			size := map[string]string{"COLUMNS": fmt.Sprint(ttytest.Columns)}
			if err := out.Configure("never", func(name string) string { return size[name] }); err != nil {
				t.Error(err)
			}
			printConsults(out, list)
		})
		ttytest.CompareFrame(t, name, frame, console.Width)
		var piped bytes.Buffer
		printConsults(console.NewOutput(&piped), list)
		if got := piped.String(); strings.Contains(got, "\x1b") ||
			strings.Count(got, question) != strings.Count(fmt.Sprint(list), question) {
			t.Errorf("in a pipe:\n%s", got)
		}
	}
}
