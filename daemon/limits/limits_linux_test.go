package limits

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdline/protocol/process"
)

// whole are limits of every kind.
var whole = process.Bounds{Memory: 2 << 30, Processes: 200, CPUWeight: 50}

// fakeGroup returns a control group of those files.
func fakeGroup(t *testing.T, files map[string]string) *Group {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Group{dirs: map[string]string{unified: dir}, by: "a cgroup"}
}

// TestHeld checks that a limit counts as held only if the file of the control group has it.
func TestHeld(t *testing.T) {
	for _, c := range []struct {
		name  string
		group *Group
		want  string
	}{
		{"no group", nil, "memory by RLIMIT_DATA, for each process alone; processes and CPU weight by nothing"},
		{
			"all", fakeGroup(t, map[string]string{
				"memory.max": "2147483648\n", "pids.max": "200\n", "cpu.weight": "50\n",
			}), "memory and processes and CPU weight by a cgroup",
		},
		{
			"version 1", fakeGroup(t, map[string]string{"memory.limit_in_bytes": "2147483648\n", "pids.max": "200\n"}),
			"memory and processes by a cgroup; CPU weight by nothing",
		},
		{
			"without limits", fakeGroup(t, map[string]string{
				"memory.max": "max\n", "pids.max": "max\n", "cpu.weight": "100\n",
			}), "memory by RLIMIT_DATA, for each process alone; processes and CPU weight by nothing",
		},
		{
			"others", fakeGroup(t, map[string]string{
				"memory.max": "2147483649\n", "pids.max": "201\n", "cpu.weight": "49\n",
			}), "memory by RLIMIT_DATA, for each process alone; processes and CPU weight by nothing",
		},
		{
			"rounded down", fakeGroup(t, map[string]string{
				"memory.max": "2147479552\n", "pids.max": "200\n", "cpu.weight": "50\n",
			}), "memory and processes and CPU weight by a cgroup",
		},
	} {
		held := c.group.Held(&whole)
		if got := held.String(); got != c.want {
			t.Errorf("%s: held: %s; want %s", c.name, got, c.want)
		}
		if want := !strings.Contains(c.want, ";"); held.Whole != want {
			t.Errorf("%s: held as a whole: %v, want %v", c.name, held.Whole, want)
		}
	}
	if got := (*Group)(nil).Held(&process.Bounds{Processes: 200}).String(); got != "processes by nothing" {
		t.Errorf("only what is limited is held: %s", got)
	}
}

// TestReached checks that the counters of a control group say which limit was reached.
func TestReached(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"memory.events": "low 0\noom 3\noom_kill 1\n"}, "memory limit of 2GiB"},
		{map[string]string{"memory.oom_control": "under_oom 0\noom_kill 2\n"}, "memory limit of 2GiB"},
		{
			map[string]string{"memory.events": "oom 3\noom_kill 0\noom_group_kill 1\n", "pids.events": "max 7\n"},
			"limit of 200 processes",
		},
		{map[string]string{"memory.events": "oom_kill 0\n", "pids.events": "max 0\n"}, ""},
		{nil, ""},
	} {
		g := fakeGroup(t, c.files)
		if got := g.Reached(&whole); got != c.want {
			t.Errorf("%v: reached %q, want %q", c.files, got, c.want)
		}
		if got := g.Reached(nil); got != "" {
			t.Errorf("%v: without limits %q was reached", c.files, got)
		}
	}
	if got := (*Group)(nil).Reached(&whole); got != "" {
		t.Errorf("without a group %q was reached", got)
	}
}

// TestDivide checks what is written into a new control group, and that none stays that does
// not hold the memory. Plain directories stand in for control groups.
func TestDivide(t *testing.T) {
	parent := t.TempDir()
	if err := divide(parent, os.Getpid(), "holdline-x", &whole); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"memory.max": "2147483648", "memory.swap.max": "0", "pids.max": "200", "cpu.weight": "50",
		"cgroup.procs": strconv.Itoa(os.Getpid()),
	} {
		path := filepath.Join(parent, "holdline-x", file)
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %s", file, got, err, want)
		}
	}
	if err := divide(filepath.Join(parent, "missing"), os.Getpid(), "holdline-x", &whole); err == nil {
		t.Error("a group was made in a directory that is not there")
	}
}

// TestWords checks how limits are worded.
func TestWords(t *testing.T) {
	if got, want := Words(&whole), "memory 2GiB, processes 200, CPU weight 50"; got != want {
		t.Errorf("limits %s, want %s", got, want)
	}
}

// TestPlace puts a shell with a program that allocates without end into a real control group, by
// systemd if this user has one: the kernel kills the program alone at its limit, and the group says
// so.
func TestPlace(t *testing.T) {
	b := process.Bounds{Memory: 64 << 20, Processes: 100, CPUWeight: 50}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read go; tail /dev/zero; echo over; read more")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, id := cmd.Process.Pid, fmt.Sprintf("test-%d", cmd.Process.Pid)
	data, err := For(os.Environ()).Place(t.Context(), pid, id, &b)
	g := GroupOf(pid, id)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if g != nil || data != b.Memory {
			t.Errorf("no group, but %+v, and RLIMIT_DATA %d; want %d", g, data, b.Memory)
		}
		t.Skip(err)
	}
	held := g.Held(&b)
	t.Logf("held: %v", held)
	if held.by["memory"] != g.by || held.by["processes"] != g.by || data != 0 {
		t.Errorf("held: %v, RLIMIT_DATA %d", held, data)
	}
	if got := g.Reached(&b); got != "" {
		t.Errorf("before the program runs its %s was reached", got)
	}
	_, _ = io.WriteString(stdin, "go\n")
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "over\n" {
		t.Errorf("the shell says %q, %v behind the death of its program", line, err)
	}
	if got, want := g.Reached(&b), "memory limit of 64MiB"; got != want {
		t.Errorf("reached %q, want %q", got, want)
	}
	_ = stdin.Close()
	_ = cmd.Wait() // the end of its stdin is a failure for read
	Remove(id)
	for _, dir := range g.dirs {
		if !strings.HasPrefix(filepath.Base(dir), prefix+id) {
			continue
		}
		for try := 0; ; try++ { // systemd removes a scope in a moment
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
				break
			} else if try > 500 {
				t.Fatalf("the group %s is left: %v", dir, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
