package cli

import (
	"bytes"
	"strings"
	"testing"

	"holdline/cmd/holdline/cmdenv"
)

// TestStatuslineWithoutPaths_ExitsWithZero checks that a prompt gets words even if no daemon can
// listen where the user says, also by a call with flags.
func TestStatuslineWithoutPaths_ExitsWithZero(t *testing.T) {
	long := "/" + strings.Repeat("x", 300)
	for _, args := range [][]string{{"statusline"}, {"statusline", "--color", "never"}, {"statusline", "--socket", long}} {
		var out, errs bytes.Buffer
		code := runProcess(t.Context(), cmdenv.Process{
			Args: args, Stdout: &out, Stderr: &errs,
			Getenv: func(name string) string { return map[string]string{"HOLDLINE_SOCKET": long}[name] },
		})
		if code != cmdenv.ExitOK || out.String() != "holdline off\n" || errs.Len() > 0 {
			t.Errorf("%q: exit code %d, %q, %q, want 0 and holdline off", args, code, out.String(), errs.String())
		}
	}
}
