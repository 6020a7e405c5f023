package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"holdline/daemon/worker/workertest"
	"holdline/protocol/control"
)

// TestGlance checks what holdline without arguments and its status line say to a new user, to
// one whose daemon does not run, and while a server works and another does not; that the
// status has the memory of what runs; and that a prompt never fails nor waits.
func TestGlance(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	says := func(words ...string) {
		t.Helper()
		out := p.must()
		for _, want := range words {
			if !strings.Contains(out, want) {
				t.Errorf("holdline says nothing of %q:\n%s", want, out)
			}
		}
	}
	says("not set up", "Next: holdline setup", "holdline --help")
	// prompt runs statusline as a prompt does, with an input that does not end.
	prompt := func(want string) {
		t.Helper()
		waitFor(t, "the statusline "+want, func() bool { // a busy daemon or machine may be too slow for one
			cmd := p.command("statusline")
			in, held, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer held.Close()
			cmd.Stdin = in
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("statusline: %v", err)
			}
			said := strings.TrimSuffix(string(out), "\n")
			if said != want && said != "holdline busy" {
				t.Fatalf("statusline says %q, want %q", said, want)
			}
			return said == want
		})
	}
	prompt("holdline off")
	p.configure(map[string]any{
		"tools": p.toolsEntry(hosting{"scope": "shared"}), "broken": map[string]any{"command": "no-such-program"},
	})
	says("not running", "2 servers configured", "holdline start")
	d := p.daemon()
	a := p.agent().shake()
	p.untilReady("tools")
	s := p.until("the memory of what runs, and a start that fails", func(s control.StatusAnswer) bool {
		return find(t, s, "tools").MemoryBytes > 0 && find(t, s, "broken").State == "failed"
	})
	one := find(t, s, "tools")
	if one.OSProcesses != 1 || one.PrivateBytes > one.MemoryBytes || one.Transport != "stdio" ||
		len(one.Sessions) != 1 || one.Sessions[0] != s.Sessions[0].ID ||
		s.Daemon.MemoryBytes == 0 || s.Sessions[0].MemoryBytes == 0 {
		t.Errorf("status %+v", s)
	}
	says("Needs attention. 1 server up, 1 in trouble.", "broken: does not work", "Next: holdline servers test broken")
	prompt("1 agent · 1/2 ok")
	if out := p.must("status"); strings.Contains(out, "saved") || strings.Contains(out, "generation") {
		t.Errorf("one agent saves nothing, and people need no generation:\n%s", out)
	}
	a.rest()
	workertest.Freeze(t, d.Process.Pid)
	defer func() { _ = syscall.Kill(d.Process.Pid, syscall.SIGCONT) }()
	prompt("holdline busy")
}
