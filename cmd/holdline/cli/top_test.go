package cli

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
)

// TestTopWithoutColor checks that top is without colour if the user wants that by the flag.
func TestTopWithoutColor(t *testing.T) {
	proc := &cmdenv.Process{
		Getenv: func(string) string { return "" }, Environ: func() []string { return []string{"A=b"} },
	}
	for mode, want := range map[string]bool{"auto": false, "never": true} {
		cmd := &cobra.Command{}
		cmd.Flags().String("color", mode, "")
		if env := topEnviron(cmd, proc); slices.Contains(env, "NO_COLOR=1") != want || env[0] != "A=b" {
			t.Errorf("--color %s: %q", mode, env)
		}
	}
}
