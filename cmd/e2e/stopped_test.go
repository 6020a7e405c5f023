package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/bootclock"
)

// startAgain is what everybody is told who needs Holdline while it is stopped.
const startAgain = "holdline start"

// refused checks that the answer x to an agent's request says that Holdline was stopped, and how to start it.
func refused(tb testing.TB, x answer) {
	tb.Helper()
	if x.Error == nil || !strings.Contains(x.Error.Message, "Holdline was stopped by `holdline stop`") ||
		!strings.Contains(x.Error.Message, startAgain) {
		tb.Errorf("an agent of a stopped Holdline gets %s", x.raw)
	}
}

// initialize begins the handshake, and returns the answer, which may be an error.
func (a *agent) initialize() answer {
	a.t.Helper()
	return a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	})
}

// refusedAgent checks that a new agent of a stopped Holdline is told so at once, and starts no daemon.
func (p *place) refusedAgent() {
	p.t.Helper()
	a := p.agent()
	refused(p.t, a.initialize())
	a.leave(exitNoDaemon)
	if !strings.Contains(a.errs.String(), startAgain) { // all of it is there once the process has ended
		p.t.Errorf("the proxy says %q", a.errs)
	}
	if p.listens() {
		p.t.Error("an agent has started the daemon that its user had stopped")
	}
}

// TestStopped_AgentsAndCommandsAreToldUntilStart stops the daemon. Agents that were there, new ones, and commands that
// need a daemon start none, and are told how to; start does, and a stop while nothing runs holds, too.
func TestStopped_AgentsAndCommandsAreToldUntilStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		agent bool // one is there
	}{
		"stop":                          {[]string{"stop"}, true},
		"stop --all":                    {[]string{"stop", "--all"}, true},
		"stop before the first daemon":  {[]string{"stop"}, false},
		"stop --all, without a runtime": {[]string{"stop", "--all"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
			var a *agent
			if c.agent {
				a = p.agent().shake()
				a.wait(a.effect("one", 1))
			}
			out, errs, code := p.run("", c.args...)
			if code != exitOK || !strings.Contains(errs, startAgain) {
				t.Errorf("stop: exit %d, %s%s", code, out, errs)
			}
			if c.agent {
				_ = a.cmd.Wait()
				if code := a.cmd.ProcessState.ExitCode(); code != exitLost || !strings.Contains(a.errs.String(), startAgain) {
					t.Errorf("the proxy that was there: exit %d, %s", code, a.errs)
				}
			}
			p.refusedAgent()
			for _, args := range [][]string{
				{"status"}, {"sessions"}, {"upgrade"}, {"consult", "what"}, {"servers", "call", "tools", "effect"},
			} {
				_, errs, code := p.run("", args...)
				if code != exitNoDaemon || !strings.Contains(errs, "it was stopped by `holdline stop` at ") ||
					!strings.Contains(errs, "hint: start it again with: holdline start\n") {
					t.Errorf("%q: exit %d, %s", args, code, errs)
				}
			}
			for _, args := range [][]string{{}, {"doctor"}} {
				if out := p.must(args...); !strings.Contains(out, startAgain) || !strings.Contains(out, "was stopped by") {
					t.Errorf("%q: %s", args, out)
				}
			}
			// What needs no daemon goes on, and says it.
			out, errs, code = p.run("", "servers")
			if code != exitOK || !strings.Contains(out, "tools") || !strings.Contains(errs, startAgain) ||
				!strings.Contains(errs, "it was stopped by `holdline stop` at ") {
				t.Errorf("servers: exit %d, %s%s", code, out, errs)
			}
			p.must(c.args...) // once more
			p.refusedAgent()
			p.must("start")
			b := p.agent("--no-autostart").shake()
			if x := b.wait(b.effect("two", 1)); x.text() != "two" {
				t.Errorf("after the start: %s", x.raw)
			}
			b.leave()
		})
	}
}

// TestStopped_CallInFlight_FaultSaysHowToStart stops the daemon during a call, and one that halted proxies find out
// about later.
func TestStopped_CallInFlight_FaultSaysHowToStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	a, b := p.agent().shake(), p.agent().shake()
	calls := map[*agent]int{
		a: a.call("tools__effect", map[string]any{"token": "a", "until": p.latch("a")}),
		b: b.call("tools__effect", map[string]any{"token": "b", "until": p.latch("b")}),
	}
	p.untilEffect("begin a")
	p.untilEffect("begin b")
	halt(t, b.cmd.Process.Pid)
	p.must("stop", "--all")
	goesOn(t, b.cmd.Process.Pid)
	for who, id := range calls {
		x := who.wait(id)
		failed(t, "the call", x, "outcome_unknown")
		if !strings.Contains(x.raw, startAgain) {
			t.Errorf("the fault does not say what to do: %s", x.raw)
		}
		_ = who.cmd.Wait()
		if code := who.cmd.ProcessState.ExitCode(); code != exitLost {
			t.Errorf("the proxy ended with %d: %s", code, who.errs)
		}
	}
}

// TestStopped_MarkBesideADaemonThatAnswers_AgentsAreServed leaves the mark beside a living daemon, as a stop does that
// is killed right after it has written that: the daemon serves old and new agents, and commands.
func TestStopped_MarkBesideADaemonThatAnswers_AgentsAreServed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	a := p.agent().shake()
	p.markStopped(bootclock.Mark())
	for _, who := range []*agent{a, p.agent().shake()} {
		if x := who.wait(who.effect("x", 1)); x.text() != "x" {
			t.Errorf("beside the mark: %s", x.raw)
		}
		who.leave()
	}
	p.must("status")
	p.must("servers", "tools", "tools")
}

// TestStopped_MarkThatDoesNotCount_AgentStartsDaemon leaves marks that say nothing: of another boot, of a time that
// has not come, and a directory.
func TestStopped_MarkThatDoesNotCount_AgentStartsDaemon(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]func(*place){
		"of another boot": func(p *place) { p.markStopped([]byte("another-boot 5\n")) },
		"of a time that has not come": func(p *place) {
			boot, _, _ := strings.Cut(string(bootclock.Mark()), " ")
			p.markStopped([]byte(boot + " 9000000000000000000\n"))
		},
		"a directory": func(p *place) {
			if err := os.MkdirAll(filepath.Join(p.dir, "run/holdline/stopped/x"), 0o700); err != nil {
				p.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			mark(p)
			p.agent().shake().leave()
		})
	}
}

// TestStopped_SetupAndInstallStartItAgain checks that commands by which a person wants Holdline to run end the stop and
// say so, and that their dry runs do not.
func TestStopped_SetupAndInstallStartItAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dry, real []string }{
		{[]string{"install", "--bin", "--dry-run"}, []string{"install", "--bin"}},
		{[]string{"setup", "--dry-run"}, []string{"setup", "--yes"}},
	} {
		t.Run(c.real[0], func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			p.must("stop")
			p.must(c.dry...)
			p.refusedAgent()
			if _, errs, code := p.run("", c.real...); code != exitOK || !strings.Contains(errs, "agents start it again") {
				t.Errorf("%q: exit %d, %s", c.real, code, errs)
			}
			p.agent().shake().leave()
		})
	}
}

// markStopped writes a mark that the daemon was stopped.
func (p *place) markStopped(mark []byte) {
	p.t.Helper()
	path := filepath.Join(p.dir, "run/holdline/stopped")
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, mark, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
