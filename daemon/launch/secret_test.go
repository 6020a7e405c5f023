package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"holdline/protocol/fault"
)

// TestSecretCommand checks what a command's output means, and what the fault says if it is no
// secret: how the command ended, and its last words without what it printed.
func TestSecretCommand(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ name, script, want, fault string }{
		{"one line", `echo s3cret`, "s3cret", ""},
		{"without an end of line", `printf s3cret`, "s3cret", ""},
		{"spaces stay", `printf ' a b \r\n'`, " a b ", ""},
		{"no shell", `echo "$1"`, "$(id)", ""},
		{"a failure", `echo s3cret; echo 'locked: s3cret' >&2; exit 3`, "", `failed: exit code 3, "locked: ***"`},
		{"killed", `kill -9 $$`, "", "failed: signal killed"},
		{"nothing", `echo why >&2`, "", `printed nothing, "why"`},
		{"an empty line", `echo`, "", "printed nothing"},
		{"two lines", `echo s3cret; echo s3cret`, "", "printed more than one line"},
		{"too much", `head -c 100000 /dev/zero`, "", "printed too much"},
	} {
		path := filepath.Join(t.TempDir(), "print")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+x.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := runSecret(t.Context(), []string{path, "$(id)"}, os.Environ(), t.TempDir())
		f, _ := errors.AsType[*fault.Record](err)
		switch {
		case got != x.want || (x.fault == "") != (err == nil):
			t.Errorf("%s: %q, %v, want %q", x.name, got, err, x.want)
		case x.fault != "" && (f.Reason() != fault.SecretCommand || !strings.Contains(f.Fault.Detail, x.fault) ||
			strings.Contains(strings.Join(append(f.Cause.StderrTail, f.Fault.Detail), " "), "s3cret")):
			t.Errorf("%s: the fault is %+v %+v, want %s", x.name, f, f.Cause, x.fault)
		}
	}
	if _, err := runSecret(t.Context(), []string{"surely-no-program"}, os.Environ(), "/"); err == nil ||
		!strings.Contains(err.Error(), "surely-no-program cannot be run") {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestSecretShared checks that starts at the same time share one run, and that another start takes
// over if the one that runs the command is cancelled.
func TestSecretShared(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var c Commands
			ctx, cancel := context.WithCancel(t.Context())
			runs, release, got := 0, make(chan struct{}), make(chan string)
			start := func(ctx context.Context) {
				value, _ := c.share(ctx, "command", func() (string, error) {
					runs++
					select {
					case <-release:
						return "secret", nil
					case <-ctx.Done():
						return "", ctx.Err()
					}
				})
				got <- value
			}
			go start(ctx)
			synctest.Wait()
			go start(t.Context())
			go start(t.Context())
			synctest.Wait()
			want := []string{"secret", "secret", "secret"}
			if cancelled {
				cancel()
				want = []string{"", "secret", "secret"}
				if value := <-got; value != "" {
					t.Errorf("the cancelled start got %q", value)
				}
				want = want[1:]
				synctest.Wait()
			}
			close(release)
			for range want {
				if value := <-got; value != "secret" {
					t.Errorf("a start got %q", value)
				}
			}
			if cancel(); runs != 4-len(want) {
				t.Errorf("cancelled %v: %d runs, want %d", cancelled, runs, 4-len(want))
			}
		})
	}
}
