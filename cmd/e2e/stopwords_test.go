package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestStopSaysWhatItDid checks that "holdline stop" names the sessions that it has
// disconnected and what still runs, and that with --all nothing does. Afterwards no command
// says that a killed daemon left its lock.
func TestStopSaysWhatItDid(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"tools": p.toolsEntry(hosting{"scope": "shared", "keep_alive": "10m"}),
		"brief": p.toolsEntry(hosting{"scope": "shared"}),
	}).daemon()
	p.agent("--identity", "an-agent", "--no-autostart").shake()
	pid, brief := p.untilReady("tools"), p.untilReady("brief")
	out := p.must("stop")
	for _, want := range []string{
		"stopped\n", "disconnected: an-agent (pid ", fmt.Sprintf("server tools (pid %d)", pid), "holdline stop --all",
		" for two minutes",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("stop does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "consult") {
		t.Errorf("stop speaks of consults, and none runs:\n%s", out)
	}
	// This server may end right after stop has looked.
	if alive(brief) && !strings.Contains(out, "server brief") {
		t.Errorf("stop does not name the server without sessions, which runs on:\n%s", out)
	}
	if !alive(pid) {
		t.Error("the server that is said to run on has ended")
	}
	if out, _, _ := p.run("", "doctor", "-v"); strings.Contains(out, "which was killed") {
		t.Errorf("doctor after a clean stop:\n%s", out)
	}
	p.daemon()
	args := p.hangs()
	args["wait_s"] = 0
	a := p.agent("--no-autostart").shake()
	a.wait(a.call("consult", args))
	p.untilSteps(1)
	if out := p.must("stop"); !strings.Contains(out, "\n1 consult: until answered") {
		t.Errorf("stop does not say what becomes of the consult:\n%s", out)
	}
	var list []control.Consult
	decode(t, p.must("consult", "list", "--json"), &list)
	if len(list) != 1 || list[0].State != "running" || list[0].TookMS <= 0 {
		t.Errorf("the consult that runs on: %+v", list)
	}
	p.daemon()
	if out := p.must("stop", "--all"); strings.Contains(out, "go on without") || strings.Contains(out, "disconnected") {
		t.Errorf("stop --all without a session says:\n%s", out)
	}
}

// TestSessionsThatCanUse checks that a server's sessions are those that can use it, in each
// scope.
func TestSessionsThatCanUse(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"shared", "project", "session"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			entry := p.toolsEntry(hosting{"scope": scope})
			p.configure(map[string]any{"tools": entry, "other": entry},
				"identities", map[string]any{"denied": map[string]any{"deny": []string{"tools__*"}}}).daemon()
			a := p.agent("--server", "tools").shake()
			p.agent("--server", "other").shake()
			p.agent("--server", "holdline").shake()
			p.agent("--identity", "denied").shake()
			a.wait(a.call("noise", map[string]any{"token": "n"}))
			p.until("the server is counted",
				func(s control.StatusAnswer) bool { return find(t, s, "tools").RefCount > 0 })
			if n := p.server("tools").RefCount; n != 1 {
				t.Errorf("%d sessions are counted, want 1", n)
			}
		})
	}
}

// TestNoSpoolOfSettledConsult checks that the raw output of a consult is removed from disk
// once its answer is kept.
func TestNoSpoolOfSettledConsult(t *testing.T) {
	t.Parallel()
	p := newPlace(t).windows(40)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	args, open := p.slowUntil(t)
	args["wait_s"] = 0
	a.wait(a.call("consult", args))
	p.untilSteps(1)
	kill9(t, d.Process.Pid)
	open()
	dirs, err := filepath.Glob(filepath.Join(p.stateRoot(), "consults/*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("consults: %q, %v", dirs, err)
	}
	if st := p.untilLeft(dirs[0]); st.Spool == nil {
		t.Fatalf("the worker has left no spool: %+v", st)
	}
	p.daemon()
	if out := p.ended(); !strings.Contains(out, "done") {
		t.Errorf("consults: %s", out)
	}
	p.until("the spool is gone", func(control.StatusAnswer) bool {
		left, err := filepath.Glob(filepath.Join(dirs[0], "stdout*"))
		return err == nil && len(left) == 0
	})
}
