package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestProjectRemoved_ServerOfOtherProjectsIsWell removes the directory of a project in which an agent works,
// as a git worktree is removed, and kills the server there. Its calls say which directory is missing. The server
// is not given up, status counts what serves another project, and with the agent all of it is gone.
func TestProjectRemoved_ServerOfOtherProjectsIsWell(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project")
	p.daemon()
	removed := filepath.Join(p.dir, "removed")
	if err := os.MkdirAll(filepath.Join(removed, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := p.agent().shake()
	if x := b.wait(b.call("tools__look", map[string]any{"token": "b"})); x.text() != "b" {
		t.Fatalf("the other project: %s", x.raw)
	}
	cmd := p.command("mcp-stdio")
	cmd.Dir = removed
	a := p.agentOf(cmd).shake()
	if x := a.wait(a.call("tools__look", map[string]any{"token": "a"})); x.text() != "a" {
		t.Fatalf("before: %s", x.raw)
	}
	if err := os.RemoveAll(removed); err != nil {
		t.Fatal(err)
	}
	s := p.status()
	if len(s.Workers) != 2 {
		t.Fatalf("workers %+v, want one for each project", s.Workers)
	}
	for _, w := range s.Workers {
		if cwd, err := os.Readlink("/proc/" + strconv.Itoa(w.ChildPID) + "/cwd"); err == nil && strings.HasPrefix(cwd, removed) {
			kill9(t, w.ChildPID)
		}
	}
	for range 8 { // more often than a server may fail
		if x := a.wait(a.call("tools__look", map[string]any{"token": "x"})); !strings.Contains(x.raw, removed) &&
			x.code() != "circuit_open" {
			t.Fatalf("in the removed project: %s", x.raw)
		}
	}
	well := func(when string) {
		t.Helper()
		out := p.must("status")
		if strings.Contains(out, "0 servers up") || strings.Contains(out, "in trouble") || !strings.Contains(out, "1 server up") {
			t.Errorf("%s: %s", when, out)
		}
	}
	well("while an agent works in the removed project")
	a.leave()
	p.until("the end of the agent", func(s control.StatusAnswer) bool { return len(s.Sessions) == 1 })
	well("after that")
	if x := b.wait(b.call("tools__look", map[string]any{"token": "b"})); x.text() != "b" {
		t.Errorf("the other project: %s", x.raw)
	}
	b.leave()
}
