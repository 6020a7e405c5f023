package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdline/protocol/control"
)

// farWorkers returns the pids of the workers on the far machine.
func (p *place) farWorkers() []int {
	p.t.Helper()
	return p.farProcesses("--run " + filepath.Join(p.dir, "far"))
}

// die kills the agent's proxy.
func (a *agent) die() {
	a.t.Helper()
	kill9(a.t, a.cmd.Process.Pid)
	for range a.lines {
	}
	_ = a.cmd.Wait() // it was killed
}

// farPlace returns a place with a server on another machine, which an agent has called, and that machine's home.
func farPlace(t *testing.T) (p *place, a *agent, home string) {
	t.Helper()
	p = newPlace(t).faults()
	home = p.farHome()
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared"})}).daemon()
	a = p.agent().shake()
	if x := a.wait(a.effect("before", 1)); x.text() != "before" {
		t.Fatalf("the first call: %s", x.raw)
	}
	return p, a, home
}

// TestFarWorker_DaemonKilledBeforeItsFirstConnection kills the daemon when the worker that it has started on another
// machine listens, and no daemon has attached to it. That machine ends the worker by itself, though no other daemon
// runs, and a stop has nothing left to name.
func TestFarWorker_DaemonKilledBeforeItsFirstConnection(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults()
	home := p.farHome()
	const point = "launch.listening"
	p.dieAs(point, death{held: true, who: "daemon"})
	p.configure(map[string]any{"tools": p.elsewhere(hosting{"scope": "shared"})}).daemon()
	a := p.agent("--no-autostart").shake()
	a.effect("never", 1)
	waitFor(t, "the far worker to listen", func() bool { return p.died(point) && len(p.farWorkers()) == 1 })
	kill9(t, p.pid(0))
	waitFor(t, "the far worker to be ended", func() bool { return len(p.farProcesses(home)) == 0 })
	p.must("stop", "--all")
	p.nothingFar(home)
	if n := p.effectsOf("begin never"); n != 0 {
		t.Errorf("the call was made %d times", n)
	}
	a.die()
}

// TestStopAll_WithoutADaemonEndsFarWorkers kills the daemon: the command itself ends what runs on another machine.
func TestStopAll_WithoutADaemonEndsFarWorkers(t *testing.T) {
	t.Parallel()
	p, a, home := farPlace(t)
	halt(t, a.cmd.Process.Pid)
	kill9(t, p.pid(0))
	if out := p.must("stop", "--all"); !strings.Contains(out, "1 of its workers ended") {
		t.Errorf("the stop says %q", out)
	}
	p.nothingFar(home)
	a.die()
}

// TestStopAll_FarDirectoryDamaged damages what this machine knows of a worker on another one, in each way that a disk
// can, while no daemon runs. stop --all ends the worker all the same.
func TestStopAll_FarDirectoryDamaged(t *testing.T) {
	t.Parallel()
	torn := func(patterns ...string) func(*place) {
		return func(p *place) {
			for _, pattern := range patterns {
				found, _ := filepath.Glob(filepath.Join(p.dir, pattern))
				if len(found) != 1 {
					p.t.Fatalf("%s is there %d times", pattern, len(found))
				}
				if err := os.WriteFile(found[0], []byte("{torn"), 0o600); err != nil {
					p.t.Fatal(err)
				}
			}
		}
	}
	removed := func(dir string) func(*place) {
		return func(p *place) { _ = os.RemoveAll(filepath.Join(p.dir, dir)) }
	}
	const (
		spec  = "run/holdline/w/stools-*/spec.json"
		known = "run/holdline/known/stools-*"
		note  = "home/.local/state/holdline/away/stools-*"
	)
	for name, damage := range map[string]func(*place){
		"spec":                        torn(spec),
		"spec and register":           torn(spec, known),
		"note":                        torn(note),
		"note and spec":               torn(note, spec),
		"name of the state directory": torn("home/.local/state/holdline/origin"),
		"directory":                   removed("run/holdline/w"),
		"runtime directory":           removed("run/holdline"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, a, home := farPlace(t)
			halt(t, a.cmd.Process.Pid)
			kill9(t, p.pid(0))
			damage(p)
			p.must("stop", "--all")
			p.nothingFar(home)
			a.die()
		})
	}
}

// TestStopAll_FarWorkerUnknown loses all that says where a worker runs: stop --all fails, and names the files.
func TestStopAll_FarWorkerUnknown(t *testing.T) {
	t.Parallel()
	p, a, _ := farPlace(t)
	halt(t, a.cmd.Process.Pid)
	kill9(t, p.pid(0))
	for _, pattern := range []string{
		"run/holdline/w/stools-*/spec.json", "run/holdline/known/stools-*", "home/.local/state/holdline/away/stools-*",
	} {
		found, _ := filepath.Glob(filepath.Join(p.dir, pattern))
		if err := os.WriteFile(found[0], []byte("{torn"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := p.run("", "stop", "--all")
	if code == 0 || !strings.Contains(errs, filepath.Join(p.stateRoot(), "away/stools-")) ||
		!strings.Contains(errs, "on another machine may run on") {
		t.Errorf("stop --all ends with %d and says\n%s%s", code, out, errs)
	}
	for _, pid := range p.farWorkers() {
		kill9(t, pid)
	}
	a.die()
}

// TestStopAll_FarHostDown takes the host of a server away, and ends that server, which is then taken for dead.
// stop --all names what may run on, though its directory is gone. Once the host is back another one ends it.
func TestStopAll_FarHostDown(t *testing.T) {
	t.Parallel()
	p, a, home := farPlace(t)
	mend := p.cut()
	p.until("the loss to be noticed",
		func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].Unreachable != "" })
	p.must("servers", "stop", "tools")
	a.leave()
	out, errs, code := p.run("", "stop", "--all")
	if code == 0 || !strings.Contains(errs, "may still run on build-box") {
		t.Errorf("stop --all ends with %d and says\n%s%s", code, out, errs)
	}
	if len(p.farWorkers()) != 1 {
		t.Error("the far worker has ended by itself")
	}
	mend()
	p.must("stop", "--all")
	p.nothingFar(home)
}

// TestFarJournalCutShortAndWorkerDead_CallIsNotMadeTwice has a call in flight on another machine, kills the daemon and
// the worker there, and removes the call's record from the end of the journal, as a file system may after a loss of
// power. The next daemon knows that a record is missing: the call's outcome is unknown, and it is not made again.
func TestFarJournalCutShortAndWorkerDead_CallIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	p, a, home := farPlace(t)
	journal := p.damaged("run/holdline/w/stools-*/calls.jsonl")
	before, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	call := a.call("tools__effect", map[string]any{"token": "e", "until": p.latch("e")})
	p.untilEffect("begin e")
	halt(t, a.cmd.Process.Pid)
	kill9(t, p.pid(0))
	for _, pid := range p.farWorkers() {
		kill9(t, pid)
	}
	if err := os.WriteFile(journal, before, 0o600); err != nil {
		t.Fatal(err)
	}
	p.damageContinues(a)
	p.letThrough("e")
	if x := a.wait(call); x.code() != "outcome_unknown" || !strings.Contains(x.raw, journal) {
		t.Errorf("the call: %s", x.raw)
	}
	if n := p.effectsOf("begin e"); n != 1 {
		t.Errorf("the call was made %d times", n)
	}
	if x := a.wait(a.effect("after", 1)); x.text() != "after" {
		t.Errorf("a new call: %s", x.raw)
	}
	a.rest(call)
	p.must("stop", "--all")
	p.nothingFar(home)
}

// TestStopAll_TwiceWhileTheHostIsDownAndNoDaemonRuns_EachNamesTheWorker kills the daemon and takes the host of a server
// away. Each stop --all fails, one behind the other and two beside each other, and names the worker and its host. Once
// the host is back another one ends the worker.
func TestStopAll_TwiceWhileTheHostIsDownAndNoDaemonRuns_EachNamesTheWorker(t *testing.T) {
	t.Parallel()
	p, a, home := farPlace(t)
	halt(t, a.cmd.Process.Pid)
	mend := p.cut()
	kill9(t, p.pid(0))
	stop := func() {
		out, errs, code := p.run("", "stop", "--all")
		if code == 0 || !strings.Contains(errs, "may still run on build-box") {
			t.Errorf("stop --all ends with %d and says\n%s%s", code, out, errs)
		}
	}
	stop()
	stop()
	var beside sync.WaitGroup
	beside.Go(stop)
	beside.Go(stop)
	beside.Wait()
	if len(p.farWorkers()) != 1 {
		t.Error("the far worker has ended by itself")
	}
	mend()
	p.must("stop", "--all")
	p.nothingFar(home)
	a.die()
}

// TestFarWorkerGivenUp_NextDaemonEndsIt takes the host of a server away, ends that server, and kills the daemon that
// would end it there later. The next daemon does, as soon as the host is back, though nobody uses that server.
func TestFarWorkerGivenUp_NextDaemonEndsIt(t *testing.T) {
	t.Parallel()
	p, a, home := farPlace(t)
	mend := p.cut()
	p.until("the loss to be noticed",
		func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].Unreachable != "" })
	p.must("servers", "stop", "tools")
	p.until("its directory to be gone", func(control.StatusAnswer) bool {
		found, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/stools-*"))
		return len(found) == 0
	})
	a.leave()
	kill9(t, p.pid(0))
	mend()
	p.daemon()
	waitFor(t, "the far worker to be ended", func() bool { return len(p.farProcesses(home)) == 0 })
	p.must("stop", "--all")
	p.nothingFar(home)
}
