package contrib

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// TestNewcomersAccount checks that the script that makes the account of a new user can be read by bash, says
// what it does, and makes no account without a name for it.
func TestNewcomersAccount(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	const script = "newcomer/account"
	if out, err := exec.CommandContext(t.Context(), bash, "-n", script).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), bash, script, "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "contrib/newcomer/account NAME --remove") {
		t.Errorf("%v: %s", err, out)
	}
	for _, args := range [][]string{{}, {"--api"}, {"--nonsense"}, {"Nina"}, {"nina", "ada"}} {
		out, err := exec.CommandContext(t.Context(), bash, append([]string{script}, args...)...).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}
