package e2e

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"holdline/protocol/control"
)

// TestAdoptedServerRestarts checks that a server of one session that must be started again
// after the daemon has died is started in the project of the session, and that the session's
// client still says which roots it has.
func TestAdoptedServerRestarts(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session")
	a := p.agent().shake()
	before := p.untilReady("tools")
	kill9(t, p.status().Daemon.PID)
	if x := a.wait(a.effect("adopted", 0)); x.text() != "adopted" || p.untilReady("tools") != before {
		t.Fatalf("the next daemon has another process, or the call failed: %s", x.raw)
	}
	id := a.call("tools__ask", map[string]any{"token": "q", "method": "roots/list"})
	a.send(`{"jsonrpc":"2.0","id":` + a.question("roots/list") + `,"result":{"roots":[]}}`)
	a.wait(id)
	kill9(t, before)
	pid, _ := p.untilAnother("tools", before)
	if runtime.GOOS == "linux" {
		if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || dir != p.project {
			t.Errorf("the server was started in %s, %v, want %s", dir, err, p.project)
		}
	}
	a.rest()
}

// TestServerStartedAgain checks that a server is started again without a call if the daemon
// died before the server was introduced, also if the next daemon has its session before it
// has the server's process.
func TestServerStartedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults().serve("shared")
	p.dieAs("hosted.spawned", death{})
	p.dieAs("hosted.adopted", death{held: true})
	a := p.agent().shake()
	waitFor(t, "the first daemon's death", func() bool { return p.died("hosted.spawned") })
	waitFor(t, "the next daemon", func() bool { return p.died("hosted.adopted") })
	p.until("the session is back", func(s control.StatusAnswer) bool { return len(s.Sessions) == 1 })
	p.letGo("hosted.adopted")
	p.untilReady("tools")
	a.rest()
}

// TestWorkerDiesWhileItIsTakenUp_ServerIsBackWithoutCall checks that a server whose worker dies between the
// moment in which the next daemon attaches to it and the one in which it goes on with the server is started
// again without a call.
func TestWorkerDiesWhileItIsTakenUp_ServerIsBackWithoutCall(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults().serve("shared")
	a := p.agent().shake()
	before := p.untilReady("tools")
	s := p.status()
	p.dieAs("hosted.adopted", death{held: true})
	kill9(t, s.Daemon.PID)
	waitFor(t, "the next daemon", func() bool { return p.died("hosted.adopted") })
	p.until("the session is back", func(s control.StatusAnswer) bool { return len(s.Sessions) == 1 })
	kill9(t, s.Workers[0].PID)
	p.letGo("hosted.adopted")
	p.untilAnother("tools", before)
	a.rest()
}
