package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"holdline/cmd/holdline/ttytest"

	"github.com/spf13/cobra"

	"holdline/protocol/control"
)

// TestAnswersOnATerminal: no word of an answer commands the terminal. In a file
// it stands as it was said.
func TestAnswersOnATerminal(t *testing.T) {
	const said = "red \x1b[31mü\tw\n\x1b]0;title\x07 \u009b2J"
	const cleaned = "red ?[31mü\tw\n?]0;title? ?2J\n"
	result, err := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": said}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, show := range map[string]func(*cobra.Command) error{
		"consult": func(cmd *cobra.Command) error { return printConsult(cmd, control.ConsultAnswer{Text: said}, false) },
		"servers call": func(cmd *cobra.Command) error {
			return printCall(cmd, &control.ServerCallAnswer{Result: result}, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetOut(&told{w: &file})
			if err := show(cmd); err != nil || file.String() != said+"\n" {
				t.Errorf("in a file: %v, %q", err, file.String())
			}
			tty, screen := ttytest.Open(t)
			cmd.SetOut(&told{w: tty})
			if err := show(cmd); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1<<10)
			n, err := screen.Read(b)
			// Its driver adds a carriage return.
			got := strings.ReplaceAll(string(b[:n]), "\r\n", "\n")
			if err != nil || got != cleaned {
				t.Errorf("on a terminal: %v, %q, want %q", err, got, cleaned)
			}
		})
	}
}
