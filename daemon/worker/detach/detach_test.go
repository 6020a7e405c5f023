package detach

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"holdline/daemon/statedir"
	"holdline/protocol/workerwire"
)

// pipe returns the reading end of a pipe into which text is written.
func pipe(t *testing.T, text string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(w, text) // fails if no more is read, as is to be
		_ = w.Close()
	}()
	return r
}

// TestReadEnvironment checks that a worker starts with the whole environment, or not at all.
func TestReadEnvironment(t *testing.T) {
	t.Parallel()
	got, err := ReadEnvironment(pipe(t, `{"env":["A=b"]}`))
	if err != nil || len(got.Env) != 1 || got.Env[0] != "A=b" {
		t.Errorf("got %+v, %v, want A=b", got, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "half": `{"env":["A=b"`, "too much": `{"env":["` + strings.Repeat("a", maxEnv) + `"]}`,
	} {
		if got, err := ReadEnvironment(pipe(t, text)); err == nil {
			t.Errorf("%s: %d variables, want an error", name, len(got.Env))
		}
	}
}

// TestFailure checks that the daemon can tell a worker that lives already from other failures.
func TestFailure(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		workerwire.CodeLocked:  fmt.Errorf("take lock: %w", statedir.ErrLocked),
		workerwire.CodeInvalid: os.ErrNotExist,
	} {
		if got := failure(err).Error; got == nil || got.Code != want {
			t.Errorf("%v: got %+v, want code %s", err, got, want)
		}
	}
}
