package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/bootclock"
	"holdline/protocol/control"
)

// login gives the place's user a profile with which the login shell finds the programs: a daemon
// that a proxy starts asks the shell for its environment.
func (p *place) login() *place {
	p.t.Helper()
	profile := fmt.Sprintf("export PATH=%s:$PATH ANTHROPIC_API_KEY=stand-in\n", programs)
	if err := os.WriteFile(filepath.Join(p.dir, "home", ".profile"), []byte(profile), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// pid waits for a daemon with another pid than before, and returns its pid.
func (p *place) pid(before int) int {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		out, errs, code := p.look("status", "--json")
		var s control.StatusAnswer
		if code == 0 && json.Unmarshal([]byte(out), &s) == nil && s.Daemon.PID != before {
			return s.Daemon.PID
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("no daemon besides %d: %s", before, errs)
		}
	}
}

// kill9 kills a process, and waits until it has ended.
func kill9(tb testing.TB, pid int) {
	tb.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		tb.Fatalf("killing %d: %v", pid, err)
	}
	for alive(pid) {
		time.Sleep(time.Millisecond)
	}
}

// programs returns the directory in which the program of a consult in the project may write.
func (p *place) programs() string {
	return claudetest.Writable(filepath.Join(p.dir, "home"), p.project)
}

// ledger returns the file in which the program of a consult notes its steps.
func (p *place) ledger() string { return filepath.Join(p.programs(), "ledger") }

func (p *place) steps() int {
	b, err := os.ReadFile(p.ledger())
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "\n")
}

// untilSteps waits until the program has noted n steps.
func (p *place) untilSteps(n int) {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); p.steps() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("the program took %d steps, want %d", p.steps(), n)
		}
	}
}

// slow returns a prompt whose program notes its beginning and its end, which are seconds
// apart, and answers.
func (p *place) slow(seconds float64) map[string]any {
	note := claudetest.Step{Do: "ledger", Message: p.ledger()}
	last := note
	last.Delay = seconds
	return map[string]any{"prompt": claudetest.Prompt("x", note, last, claudetest.Say("the one answer"))}
}

// slowUntil is slow with a program that goes on to its end once open is called.
func (p *place) slowUntil(tb testing.TB) (args map[string]any, open func()) {
	tb.Helper()
	note := claudetest.Step{Do: "ledger", Message: p.ledger()}
	wait, open := p.hold(tb, "held")
	return map[string]any{"prompt": claudetest.Prompt("x", note, wait, note, claudetest.Say("the one answer"))}, open
}

// hangs returns a prompt whose program notes its beginning and never answers.
func (p *place) hangs() map[string]any {
	return map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "ledger", Message: p.ledger()},
		claudetest.Step{Do: "hang"})}
}

// rest closes the agent's side, and checks that the proxy exits with 0 and that none of the
// ids has a second answer.
func (a *agent) rest(ids ...int) {
	a.t.Helper()
	_ = a.stdin.Close()
	for line := range a.lines {
		for _, id := range ids {
			if strings.Contains(line, fmt.Sprintf(`"id":%d,`, id)) {
				a.t.Errorf("a second answer: %s", line)
			}
		}
	}
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("the proxy ended with %v: %s", err, a.errs)
	}
}

// ended waits until the place's only consult has ended, and returns its line of the list.
func (p *place) ended() string {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		out, errs, _ := p.look("consult", "list")
		for _, state := range []string{"done", "failed", "cancelled"} {
			if strings.Contains(out, state) {
				return out
			}
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the consult has not ended: %s%s", out, errs)
		}
	}
}

// TestDaemonKilled kills the daemon, and then the next one, while a consult runs. The agent
// does not notice.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.agent().shake()
	connected := time.Now()
	id := a.call("consult", p.slow(2.5))
	p.untilSteps(1)
	pid, age := p.pid(0), int64(0)
	for range 2 {
		age = time.Since(connected).Milliseconds()
		begin := time.Now()
		kill9(t, pid)
		x := a.ask("tools/call", map[string]any{"name": "health_snapshot"})
		took := time.Since(begin)
		t.Logf("health_snapshot %v after the kill", took)
		if x.Error != nil || x.Result.IsError {
			t.Errorf("after %v: %s", took, x.raw)
		}
		pid = p.pid(pid)
	}
	if s := p.status().Sessions; len(s) != 1 || s[0].SinceMS < age {
		t.Errorf("the sessions are %+v, want one that was %d ms old before the last kill", s, age)
	}
	x := a.wait(id)
	if x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "the one answer") {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	a.rest(id)
	if n := p.steps(); n != 2 {
		t.Errorf("the program took %d steps, want 2: it ran once", n)
	}
}

// TestDaemonTerminated stops the daemon as a service manager does. No more is lost than by
// a kill.
func TestDaemonTerminated(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.agent().shake()
	id := a.call("consult", p.slow(1.5))
	p.untilSteps(1)
	for range 2 {
		pid := p.pid(0)
		_ = syscall.Kill(pid, syscall.SIGTERM)
		p.pid(pid)
	}
	if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "the one answer") {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	a.rest(id)
	if n := p.steps(); n != 2 {
		t.Errorf("the program took %d steps, want 2: it ran once", n)
	}
}

// TestDaemonKilledUnderAnswers kills the daemon while answers are on their way. Each
// request gets one answer.
func TestDaemonKilledUnderAnswers(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.agent().shake()
	pid := p.pid(0)
	first := a.next + 1
	for i := range 200 {
		a.begin("tools/call",
			map[string]any{"name": "telemetry_snapshot", "arguments": map[string]any{"detail": "full"}})
		if i == 100 {
			kill9(t, pid)
		}
	}
	seen := map[string]int{}
	for range 200 {
		var x answer
		line := a.read()
		if err := json.Unmarshal([]byte(line), &x); err != nil || x.Error != nil || x.Result.IsError {
			t.Fatalf("%v %s", err, line)
		}
		seen[fmt.Sprint(x.ID)]++
	}
	for i := range 200 {
		if n := seen[fmt.Sprint(first+i)]; n != 1 {
			t.Errorf("request %d has %d answers", first+i, n)
		}
	}
	a.rest()
}

// TestDaemonKilledAtStart kills the daemon at many moments of a consult's beginning and
// end. The consult's program runs once, and there is one answer.
func TestDaemonKilledAtStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.agent().shake()
	pid := p.pid(0)
	// The check of the program is then done.
	if x := a.wait(a.call("consult", p.slow(0))); x.Result.IsError {
		t.Fatal(x.raw)
	}
	every := 9 * time.Millisecond
	if raceEnabled {
		every = 31 * time.Millisecond
	}
	for after := time.Duration(0); after < 150*time.Millisecond; after += every {
		before := p.steps()
		id := a.call("consult", p.slow(0.05))
		time.Sleep(after)
		kill9(t, pid)
		x := a.wait(id)
		if steps := p.steps() - before; x.Result.IsError || x.Error != nil ||
			!strings.Contains(x.text(), "the one answer") || steps != 2 {
			t.Errorf("killed after %v: %d steps, %s", after, steps, x.raw)
		}
		pid = p.pid(pid)
	}
	a.rest()
}

// TestAnswerWithoutDaemon has a consult end while no daemon runs.
func TestAnswerWithoutDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	id := a.call("consult", p.slow(0.5))
	p.untilSteps(1)
	kill9(t, d.Process.Pid)
	p.untilSteps(2)
	p.daemon()
	if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "the one answer") {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	a.rest(id)
	if list := p.ended(); !strings.Contains(list, "done") || p.steps() != 2 {
		t.Errorf("%d steps, %s", p.steps(), list)
	}
}

// TestDaemonAndWorkerKilled checks that only the loss of the worker makes an outcome
// unknown, and that this is said once.
func TestDaemonAndWorkerKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.agent().shake()
	id := a.call("consult", p.hangs())
	p.untilSteps(1)
	s := p.status()
	if len(s.Workers) != 1 {
		t.Fatalf("workers: %+v", s.Workers)
	}
	kill9(t, s.Daemon.PID)
	kill9(t, s.Workers[0].PID)
	x := a.wait(id)
	if !x.Result.IsError || !strings.Contains(x.raw, "outcome_unknown") {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	a.rest(id)
	if n := p.steps(); n != 1 || alive(s.Workers[0].ChildPID) {
		t.Errorf("the program took %d steps, want 1; it lives: %v", n, alive(s.Workers[0].ChildPID))
	}
}

// reboot leaves things as another start of the machine finds them, with at least that many files of
// consults. No process of the place may live.
func (p *place) reboot(t *testing.T, least int) {
	t.Helper()
	// After a reboot the runtime directory is gone, and the boot has another id.
	run := filepath.Join(p.dir, "run", "holdline")
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "home/.local/state/holdline/consults/*/*.json"))
	if err != nil || len(files) < least {
		t.Fatalf("%q, %v", files, err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err == nil {
			now := bytes.ReplaceAll(b, []byte(bootclock.ID()), []byte("00000000-0000-0000-0000-000000000000"))
			err = os.WriteFile(path, sealedAgain(path, b, now), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestReboot checks that after a reboot ended consults can be read, one that was running is
// reported as lost, and everything else starts afresh.
func TestReboot(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.agent().shake()
	if x := a.wait(a.call("consult", p.slow(0))); x.Result.IsError {
		t.Fatalf("the first consult: %s", x.raw)
	}
	args := p.hangs()
	args["wait_s"] = 0
	a.wait(a.call("consult", args))
	p.untilSteps(3)
	s := p.status()
	for _, pid := range []int{a.cmd.Process.Pid, s.Daemon.PID, s.Workers[0].PID} {
		kill9(t, pid)
	}
	waitFor(t, "the end of the child, which dies with its worker",
		func() bool { return !alive(s.Workers[0].ChildPID) })
	p.reboot(t, 3)
	p.daemon()
	// The daemon serves while it reads what the worker has left.
	p.until("the end of the lost consult", func(s control.StatusAnswer) bool { return s.Consults.Running == 0 })
	list := p.must("consult", "list")
	if strings.Count(list, " done ") != 1 || strings.Count(list, "\n") != 3 || strings.Contains(list, " running ") {
		t.Errorf("the consults are\n%s", list)
	}
	for line := range strings.Lines(list) {
		id, _, _ := strings.Cut(line, " ")
		out, _, code := p.run("", "consult", "show", id)
		switch {
		case strings.Contains(line, " done "):
			if code != 0 || !strings.Contains(out, "the one answer") {
				t.Errorf("the answer of %s: exit %d, %s", id, code, out)
			}
		case id != "CONSULT" && code == 0:
			t.Errorf("%s: exit 0, %s", id, out)
		}
	}
	if s := p.status(); len(s.Workers) != 0 || len(s.Sessions) != 0 || p.steps() != 3 {
		t.Errorf("after the start: %+v, %d steps", s, p.steps())
	}
}

// TestSilentWorker checks that a worker that lives and does not answer delays no other
// call, and is killed before its call is answered.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	for range 3 { // a busy machine may be late with the other call
		if silentWorker(t) || t.Failed() {
			return
		}
	}
	t.Error("three times, the other call waited until the silent worker was given up")
}

// silentWorker makes the scene of [TestSilentWorker], and reports whether the other call was answered before
// the silent worker was given up.
func silentWorker(t *testing.T) (inTime bool) {
	t.Helper()
	p := newPlace(t).login()
	a := p.agent().shake()
	id := a.call("consult", p.hangs())
	p.untilSteps(1)
	s := p.status()
	workertest.Freeze(t, s.Workers[0].PID)
	begin := time.Now()
	kill9(t, s.Daemon.PID)
	if x := a.ask("tools/call", map[string]any{"name": "health_snapshot"}); x.Result.IsError {
		t.Errorf("after %v: %s", time.Since(begin), x.raw)
	}
	inTime = alive(s.Workers[0].PID)
	x := a.wait(id)
	t.Logf("given up after %v", time.Since(begin))
	if !strings.Contains(x.raw, "outcome_unknown") || alive(s.Workers[0].PID) || alive(s.Workers[0].ChildPID) {
		t.Errorf("worker lives: %v, child lives: %v, %s", alive(s.Workers[0].PID), alive(s.Workers[0].ChildPID), x.raw)
	}
	a.rest(id)
	return inTime
}

// TestLeftInAbsence has the client cancel, and disconnect, while no daemon runs. What it
// waited for ends. A proxy whose client has left waits for a daemon only as long as it drains:
// on a slow machine it may be gone before there is one.
func TestLeftInAbsence(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancel", "end of input"} {
		t.Run(how, func(t *testing.T) {
			p := newPlace(t)
			d := p.daemon()
			a := p.agent("--no-autostart", "--drain", "200ms").shake()
			id := a.call("consult", p.hangs())
			p.untilSteps(1)
			child := p.status().Workers[0].ChildPID
			kill9(t, d.Process.Pid)
			if how == "cancel" {
				a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`,
					id))
			} else {
				_ = a.stdin.Close()
			}
			if !alive(child) {
				t.Error("the program died with its daemon")
			}
			p.daemon()
			if how == "cancel" {
				a.ask("ping", nil)
				if list := p.ended(); !strings.Contains(list, "cancelled") {
					t.Errorf("consults: %s", list)
				}
			}
			if how == "cancel" {
				a.rest(id)
			} else {
				a.leave(exitLost)
			}
			p.ended()
			if alive(child) {
				t.Error("the program lives")
			}
		})
	}
}

// TestStoppedInAbsence checks that a stop by the user also counts for a proxy that had no
// connection then.
func TestStoppedInAbsence(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.up().agent("--reconnect-timeout", "1s").shake()
	id := a.call("consult", p.hangs())
	p.untilSteps(1)
	if err := os.WriteFile(filepath.Join(p.dir, "run", "holdline", "stopped"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill9(t, p.pid(0))
	if x := a.wait(id); !strings.Contains(x.raw, "outcome_unknown") {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	_ = a.cmd.Wait()
	if code := a.cmd.ProcessState.ExitCode(); code != exitLost {
		t.Errorf("the proxy ended with %d: %s", code, a.errs)
	}
	if _, _, code := p.run("", "status"); code != exitNoDaemon {
		t.Errorf("a daemon was started: status exits %d", code)
	}
}

// TestStopAllInAbsence checks that stop --all also counts for a proxy that has not noticed
// yet that its daemon is dead.
func TestStopAllInAbsence(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	a := p.up().agent("--reconnect-timeout", "1s").shake()
	workertest.Freeze(t, a.cmd.Process.Pid)
	kill9(t, p.pid(0))
	if out, errs, code := p.run("", "stop", "--all"); code != 0 {
		t.Errorf("stop --all: exit %d\n%s%s", code, out, errs)
	}
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	waitFor(t, "the proxy's end", func() bool { return !alive(a.cmd.Process.Pid) })
	_ = a.cmd.Wait()
	if code := a.cmd.ProcessState.ExitCode(); code != exitLost {
		t.Errorf("the proxy ended with %d: %s", code, a.errs)
	}
	if _, _, code := p.run("", "status"); code != exitNoDaemon {
		t.Errorf("a daemon was started: status exits %d", code)
	}
	p.must("start")
	p.agent().shake().rest()
}

// TestStopLeavesConsults stops the daemon in order during two consults. The one in the
// background continues; the other, which has no client any more, ends.
func TestStopLeavesConsults(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	a := p.agent("--no-autostart").shake()
	args := p.slow(1)
	args["wait_s"] = 0
	if x := a.wait(a.call("consult", args)); x.Result.IsError || x.Error != nil {
		t.Fatalf("begun: %s", x.raw)
	}
	p.untilSteps(1)
	if out, errs, code := p.run("", "stop"); code != 0 {
		t.Fatalf("stop: exit %d\n%s%s", code, out, errs)
	}
	p.untilSteps(2)
	p.daemon()
	if list := p.ended(); !strings.Contains(list, "done") {
		t.Errorf("consults: %s", list)
	}
	// And stop --all ends workers without a daemon, too.
	b := p.agent("--no-autostart").shake()
	b.call("consult", p.hangs())
	p.untilSteps(3)
	s := p.status()
	kill9(t, s.Daemon.PID)
	if out, errs, code := p.run("", "stop", "--all"); code != 0 || !strings.Contains(out, "1 of its workers ended") {
		t.Errorf("stop --all: exit %d\n%s%s", code, out, errs)
	}
	if alive(s.Workers[0].PID) || alive(s.Workers[0].ChildPID) {
		t.Error("stop --all left a worker")
	}
}

// TestOwedAnswer checks that a client that was away while its consult ended, and then more
// consults than are kept, gets its answer when it is back.
func TestOwedAnswer(t *testing.T) {
	t.Parallel()
	p := newPlace(t).configure(map[string]any{}, "consult", map[string]any{"keep": map[string]any{"count": 1}})
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	id := a.call("consult", p.slow(0.2))
	p.untilSteps(1)
	workertest.Freeze(t, a.cmd.Process.Pid)
	kill9(t, d.Process.Pid)
	p.daemon()
	p.ended()
	b := p.agent("--no-autostart").shake()
	for range 3 {
		if x := b.wait(b.call("consult", map[string]any{"prompt": "x"})); x.Error != nil || x.Result.IsError {
			t.Fatalf("another's: %s", x.raw)
		}
	}
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "the one answer") {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	b.rest()
	a.rest(id)
	if n := p.steps(); n != 2 {
		t.Errorf("the program took %d steps, want 2: it ran once", n)
	}
	waitFor(t, "the answers beyond the limit of 1 to go", func() bool {
		return strings.Count(p.must("consult", "list"), "done") == 1
	})
}
