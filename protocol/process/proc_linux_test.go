package process

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestCarriers checks that a process is found by a variable at the end of a long environment.
func TestCarriers(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "cat")
	cmd.Env = []string{"LONG=" + strings.Repeat("x", 50<<10), EnvWorker + "=" + dir}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), cmd.Wait() }()
	all, err := Carriers()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all.Of(dir), func(p Proc) bool { return p.PID == cmd.Process.Pid }) || len(all.Of(dir)) != 1 {
		t.Errorf("carriers of the directory: %v, want process %d", all.Of(dir), cmd.Process.Pid)
	}
	if got := Variable(cmd.Process.Pid, EnvWorker); got != dir {
		t.Errorf("the variable is %q, want %q", got, dir)
	}
	if got := Variable(cmd.Process.Pid, "ABSENT"); got != "" {
		t.Errorf("an absent variable is %q", got)
	}
}
