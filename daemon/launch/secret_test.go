package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol/fault"
	"holdline/protocol/programtest"
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
		programtest.Write(t, path, "#!/bin/sh\n"+x.script+"\n")
		got, err := runSecret(t.Context(), secretTimeout, []string{path, "$(id)"}, os.Environ(), t.TempDir())
		f, _ := errors.AsType[*fault.Record](err)
		switch {
		case got != x.want || (x.fault == "") != (err == nil):
			t.Errorf("%s: %q, %v, want %q", x.name, got, err, x.want)
		case x.fault != "" && (f.Reason() != fault.SecretCommand || !strings.Contains(f.Fault.Detail, x.fault) ||
			slices.Contains(f.Cause.StderrTail, "") ||
			strings.Contains(strings.Join(append(f.Cause.StderrTail, f.Fault.Detail), " "), "s3cret")):
			t.Errorf("%s: the fault is %+v %+v, want %s", x.name, f, f.Cause, x.fault)
		}
	}
	if _, err := runSecret(t.Context(), secretTimeout, []string{"surely-no-program"}, os.Environ(), "/"); err == nil ||
		!strings.Contains(err.Error(), "surely-no-program cannot be run") {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestSecretCommand_TooLong checks that a command that takes too long is ended, with what it has started.
func TestSecretCommand_TooLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "print")
	script := "#!/bin/sh\necho s3cret\necho 'touch the key' >&2\nsleep 600 &\necho $! >>" + dir + "/pid\nwait\n"
	programtest.Write(t, path, script)
	var pid int
	got, err := "", error(nil)
	for most := 500 * time.Millisecond; pid == 0; most *= 2 { // on a busy machine the script may not come so far
		got, err = runSecret(t.Context(), most, []string{path}, os.Environ(), dir)
		if b, rerr := os.ReadFile(filepath.Join(dir, "pid")); rerr == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
	}
	if f, ok := errors.AsType[*fault.Record](err); got != "" || !ok || f.Reason() != fault.SecretCommand ||
		!strings.Contains(f.Fault.Detail, "was ended, since it took longer than ") ||
		!strings.Contains(f.Fault.Detail, `"touch the key"`) || strings.Contains(f.Fault.Detail, "s3cret") {
		t.Errorf("%q, %v", got, err)
	}
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(b) == 0 { // gone, or a zombie
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("what the command has started runs on: %q", b)
		}
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
