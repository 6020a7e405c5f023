package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/command"
)

// sh returns a shell script as a command, with a limit for its output.
func sh(script string) *command.Command {
	return &command.Command{
		Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin", "MINE=1"}, Dir: "/",
		Stdout: 10, Stderr: 10,
	}
}

// TestRun checks the output and the error of commands that end, fail, print too much, or
// cannot be started.
func TestRun(t *testing.T) {
	strict, named := sh("yes 012345678"), sh("echo $0")
	strict.Strict = true
	named.Args, named.Name = []string{"-c", "echo $0"}, "other"
	for name, tt := range map[string]struct {
		c         *command.Command
		out, errs string
		cut       bool
		code      int // exit code of a failure
		err       error
		cannot    bool
	}{
		"prints":      {c: sh("echo out; echo err >&2"), out: "out\n", errs: "err\n"},
		"fails":       {c: sh("echo out; exit 3"), out: "out\n", code: 3},
		"is killed":   {c: sh("kill -9 $$"), code: -1},
		"environment": {c: sh("echo $MINE$HOME; pwd"), out: "1\n/\n"},
		"much":        {c: sh("yes 012345678 | head -c 1000"), out: "012345678\n", cut: true},
		"too much":    {c: strict, out: "012345678\n", cut: true, err: command.ErrOutput},
		"name":        {c: named, out: "other\n"},
		"not there":   {c: &command.Command{Path: "/nowhere"}, cannot: true},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := tt.c.Run(t.Context())
			exit, failed := errors.AsType[*exec.ExitError](err)
			switch {
			case tt.err != nil && !errors.Is(err, tt.err), tt.cannot &&
				!errors.Is(err, os.ErrNotExist), failed != (tt.code != 0), failed && exit.ExitCode() != tt.code:
				t.Errorf("err %v", err)
			case tt.err == nil && !tt.cannot && tt.code == 0 && err != nil:
				t.Errorf("err %v", err)
			}
			if string(out.Stdout) != tt.out || string(out.Stderr) != tt.errs || out.Cut != tt.cut || out.Held {
				t.Errorf("%q %q, cut %t, held %t", out.Stdout, out.Stderr, out.Cut, out.Held)
			}
		})
	}
}

// TestEnds checks that at the end of its context a program is killed with its whole process
// group, even if it ignores signals, and that a program's end also ends what it left
// behind.
func TestEnds(t *testing.T) {
	const child = "trap '' TERM INT HUP; sleep 600 & echo $! >%s; "
	for name, tt := range map[string]struct {
		then, want string
		held       bool
	}{
		"hangs":            {then: "wait", want: "enough"},
		"leaves something": {then: "echo ok", held: true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			c := sh(fmt.Sprintf(child, file) + tt.then)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.want != "" {
				go func() {
					for {
						if b, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(b), "\n") {
							break
						}
						time.Sleep(time.Millisecond)
					}
					cancel(errors.New(tt.want))
				}()
			}
			out, err := c.Run(ctx)
			if got := fmt.Sprint(err); tt.want != "" && got != tt.want || tt.want == "" && err != nil ||
				out.Held != tt.held {
				t.Errorf("err %v, held %t", err, out.Held)
			}
			b, err := os.ReadFile(file)
			var pid int
			if err == nil {
				_, err = fmt.Sscan(string(b), &pid)
			}
			if err != nil {
				t.Fatal(err)
			}
			for limit := time.Now().Add(time.Minute); running(pid); {
				if time.Now().After(limit) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					t.Fatal("what it started goes on")
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// running reports whether a process exists and is no zombie.
func running(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
