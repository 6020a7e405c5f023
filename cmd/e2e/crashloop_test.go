package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// TestCrashLoopEnds makes three daemons crash while they adopt a worker. The fourth moves
// the worker's directory aside and serves: the call gets an honest fault, the server is
// started again, and doctor names what was kept.
func TestCrashLoopEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared").faults()
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	id := a.effect("e", 60_000)
	p.untilEffect("begin e")
	worker := p.status().Workers[0]
	kill9(t, d.Process.Pid) // does not count as a crash
	for range 3 {
		_ = os.Remove(filepath.Join(p.dir, faultDir, "hosted.adopted"+faultReached))
		p.dieAs("hosted.adopted", death{crashes: true})
		select {
		case <-p.background(p.command("daemon")):
		case <-time.After(waitLimit):
			t.Fatal("the daemon did not crash")
		}
		if !p.died("hosted.adopted") {
			t.Fatal("the daemon has ended otherwise")
		}
	}
	p.daemon()
	if x := a.wait(id); x.code() != "outcome_unknown" {
		t.Errorf("the call's answer: %s", x.raw)
	}
	if x := a.wait(a.effect("next", 0)); x.Error != nil || x.Result.IsError {
		t.Errorf("the next call: %s", x.raw)
	}
	if alive(worker.ChildPID) {
		t.Error("the process that was put aside runs")
	}
	if n := p.effectsOf("begin e"); n != 1 {
		t.Errorf("the call was made %d times", n)
	}
	out, _, code := p.run("", "doctor", "-v")
	if code == 0 || !strings.Contains(out, filepath.Join("aside", worker.ID)) {
		t.Errorf("doctor, exit %d:\n%s", code, out)
	}
	a.rest(id)
}

// TestKillsAreNoCrashes kills several daemons while they adopt a worker. Nothing is moved
// aside, and the call gets its answer.
func TestKillsAreNoCrashes(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared")
	a := p.agent().shake()
	id := a.effect("e", 3000)
	p.untilEffect("begin e")
	pid := p.pid(0)
	for range 5 {
		kill9(t, pid)
		pid = p.pid(pid)
	}
	if x := a.wait(id); x.Error != nil || x.Result.IsError {
		t.Errorf("the call's answer: %s", x.raw)
	}
	p.until("the server", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 })
	a.rest(id)
}
