package rollout

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/protocol/programtest"
)

const good = `{"version":"2.0.0","commit":"abc","greeting":[1,2],"worker":[1],"record":[1],"handover":[1]}`

// script writes an executable shell script that plays the new program.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdline")
	programtest.Write(t, path, "#!/bin/sh\n"+body+"\n")
	return path
}

func checker() *Checker {
	one := []int{1}
	return &Checker{
		Needs: func() Versions { return Versions{Greeting: one, Worker: one, Record: one, Handover: one} },
		UID:   os.Geteuid(), Owner: os.Geteuid(), Env: []string{"PATH=/usr/bin:/bin", "FROM=check"},
	}
}

// TestCheck checks how the new program is called, and what is read from its answer.
func TestCheck(t *testing.T) {
	path := script(t, `test "$1 $2 $FROM" = "version --json check" || exit 9
test "$(pwd)" = / || exit 8
echo '`+good+`'`)
	f, err := checker().Check(t.Context(), path)
	if err != nil || f.Version != "2.0.0" || f.Commit != "abc" {
		t.Errorf("Check = %+v, %v", f, err)
	}
}

// TestCheckRefuses checks which answers of a new program refuse it, and with which reason.
func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"crashes", "echo 'bad config' >&2; exit 3", "exit status 3: bad config"},
		{"is killed", "kill -9 $$", "signal: killed"},
		{"knows no such command", "echo usage", "does not print what a holdline does"},
		{"prints nothing", "", "does not print what a holdline does"},
		{"is another program", `echo '{"name":"other"}'`, "names no version"},
		{"moves the cursor", `printf '%s' '{"version":"\u001b[2J"}'`, "names no version"},
		{
			"older greeting",
			`echo '{"version":"0.0.1","greeting":[],"worker":[1],"record":[1]}'`,
			"version 1 of the greeting",
		},
		{
			"newer worker only",
			`echo '{"version":"9","greeting":[1],"worker":[2],"record":[1]}'`,
			"version 1 of the workers' protocol, which is in use (it knows [2])",
		},
		{
			"says nothing of records",
			`echo '{"version":"9","greeting":[1],"worker":[1]}'`,
			"version 1 of the workers' records",
		},
		{
			"would not take over",
			`echo '{"version":"9","greeting":[1],"worker":[1],"record":[1]}'`,
			"version 1 of the hand-over",
		},
		{"never stops talking", "exec yes '" + good + "'", "printed more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := checker().Check(t.Context(), script(t, c.body))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check = %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestCheckRefusesFiles checks that files that are no program, or that other users can
// write, are refused.
func TestCheckRefusesFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "missing"), "no such file"},
		{dir, "is not a file"},
		{fifo, "is not a file"},
		{write("empty", "", 0o700), ""},
		{write("garbage", "\x7fELF garbage", 0o700), "exec format error"},
		{write("half", string(b[:len(b)/2]), 0o700), ""},
		{write("head", string(b[:4096]), 0o700), ""},
		{write("plain", "#!/bin/sh\necho '"+good+"'\n", 0o600), "permission denied"},
		{write("open", "#!/bin/sh\necho '"+good+"'\n", 0o777), "written by everybody"},
	} {
		if _, err := checker().Check(t.Context(), c.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Check(%s) = %v, want %q in it", filepath.Base(c.path), err, c.want)
		}
	}
	c := checker()
	c.UID++
	c.Owner++
	if os.Geteuid() != 0 { // files of root are accepted for all users
		if _, err := c.Check(t.Context(), write("other", "#!/bin/sh\necho '"+good+"'\n", 0o700)); err == nil {
			t.Error("somebody else's file was taken")
		}
	}
}

// TestCheckAlso checks that a program that cannot read the configuration is refused.
func TestCheckAlso(t *testing.T) {
	path := script(t, `case $1 in version) echo '`+good+`';; config) echo "$3:1:2: no" >&2; exit 1;; esac`)
	c := checker()
	c.Also = func() [][]string { return [][]string{{"config", "check", "file"}} }
	if _, err := c.Check(t.Context(), path); err == nil || !strings.HasSuffix(err.Error(), "file:1:2: no") {
		t.Errorf("Check = %v, want the reason", err)
	}
}

// TestCheckEnds checks that a program that hangs is killed with all that it started, and
// that what a program left behind is killed, too.
func TestCheckEnds(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, body string }{
		{"hangs", "sleep 600 & echo $! >%s; trap '' TERM; wait"},
		{"leaves", "sleep 600 & echo $! >%s; echo '" + good + "'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, c.name)
			path := script(t, fmt.Sprintf(c.body, file))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.name == "hangs" {
				go func() {
					for {
						if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
							break
						}
						time.Sleep(time.Millisecond)
					}
					cancel() // as the time limit would
				}()
			}
			if f, err := checker().Check(ctx, path); err == nil {
				t.Errorf("Check = %+v, want an error", f)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var pid int
			if _, err := fmt.Sscan(string(b), &pid); err != nil {
				t.Fatal(err)
			}
			limit := time.Now().Add(time.Minute)
			for running(pid) {
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
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if os.IsNotExist(err) {
		if _, err := os.Stat("/proc/self"); err == nil {
			return false
		}
		return syscall.Kill(pid, 0) == nil
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}
