package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/worker/workertest"
)

// installed starts an agent whose proxy is the installed program, from which it also starts
// daemons.
func (p *place) installed(args ...string) *agent {
	p.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), p.bin(), append([]string{"mcp-stdio"}, args...)...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.project, 5*time.Second
	return p.agentOf(cmd)
}

// misconfigure leaves a configuration with which no daemon starts, and no copy of a good
// one.
func (p *place) misconfigure() {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.stateRoot(), "config")); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "home/.config/holdline/config.json"), []byte("{"), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// TestDaemonFixed kills the daemon during a call while no other can be started, and fixes
// that after a start has failed. The call gets its answer, and its effect happens once.
func TestDaemonFixed(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join(programs, "holdline"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name       string
		spoil, fix func(p *place)
		says       string
	}{
		{
			"garbage",
			func(p *place) { p.install([]byte("garbage"), 0o700) },
			func(p *place) { p.install(program, 0o700) },
			"exec format error",
		},
		{
			"half written",
			func(p *place) { p.install(program[:len(program)/2], 0o700) },
			func(p *place) { p.install(program, 0o700) },
			"",
		},
		{
			"missing",
			func(p *place) { _ = os.Remove(p.bin()) },
			func(p *place) { p.install(program, 0o700) },
			"no such file",
		},
		{"configuration", func(p *place) { p.misconfigure() }, func(p *place) { p.serve("project") }, "config.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t).serve("project").login()
			p.install(program, 0o700)
			a := p.installed().shake()
			pid := p.pid(0)
			id := a.effect("e", 1500)
			p.untilEffect("begin e")
			tt.spoil(p)
			kill9(t, pid)
			waitFor(t, "a start that failed",
				func() bool { return strings.Contains(a.errs.String(), "daemon not started, going on") })
			if !strings.Contains(a.errs.String(), tt.says) {
				t.Errorf("the proxy said %s, want %q in it", a.errs, tt.says)
			}
			tt.fix(p)
			if x := a.wait(id); x.Error != nil || x.Result.IsError || x.text() != "e" {
				t.Errorf("the call's answer: %s", x.raw)
			}
			a.rest(id)
			if n := p.effectsOf("begin e"); n != 1 {
				t.Errorf("the call was made %d times", n)
			}
		})
	}
}

// TestDaemonNotFixed checks that a proxy that found no daemon in its time says why the last
// start failed.
func TestDaemonNotFixed(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join(programs, "holdline"))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t).serve("project").login()
	p.install(program, 0o700)
	p.installed().shake().rest() // starts the daemon, for which the next agent has no time
	a := p.installed("--reconnect-timeout", "3s").shake()
	id := a.effect("e", 60_000)
	p.untilEffect("begin e")
	p.install([]byte("garbage"), 0o700)
	begin := time.Now()
	kill9(t, p.pid(0))
	x := a.wait(id)
	if took := time.Since(begin); took < 3*time.Second || !strings.Contains(x.raw, "outcome_unknown") ||
		!strings.Contains(x.raw, "exec format error") {
		t.Errorf("after %v: %s", took, x.raw)
	}
	a.wantLost()
}

// wantLost checks that the proxy ends because it lost its daemon.
func (a *agent) wantLost() {
	a.t.Helper()
	for line := range a.lines {
		a.t.Errorf("the proxy printed %s", line)
	}
	_ = a.cmd.Wait()
	if code := a.cmd.ProcessState.ExitCode(); code != exitLost {
		a.t.Errorf("the proxy ended with %d, want %d: %s", code, exitLost, a.errs)
	}
}

// TestProxyStoodStill stops a proxy for longer than its time to resume, and kills its
// daemon meanwhile. The next daemon has discarded the session, so a repeated call would be
// made twice. A session without a pending call continues.
func TestProxyStoodStill(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project").windows(6) // 10 s, 14.7 s and 20 s
	d := p.daemon()
	a, idle := p.agent("--no-autostart").shake(), p.agent("--no-autostart").shake()
	a.wait(a.effect("warm", 0))
	id := a.effect("e", 60_000)
	p.untilEffect("begin e")
	idle.wait(idle.effect("warm", 0))
	for _, one := range []*agent{idle, a} {
		workertest.Freeze(t, one.cmd.Process.Pid)
	}
	kill9(t, d.Process.Pid)
	p.daemon()
	p.untilEffect("cancelled e") // the daemon does not wait for the client any more
	for _, one := range []*agent{a, idle} {
		if err := one.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if x := a.wait(id); !strings.Contains(x.raw, "outcome_unknown") {
		t.Errorf("the call's answer: %s", x.raw)
	}
	a.wantLost()
	if n := p.effectsOf("begin e"); n != 1 {
		t.Errorf("the call was made %d times", n)
	}
	if x := idle.wait(idle.effect("later", 0)); x.Error != nil || x.Result.IsError {
		t.Errorf("a call of the idle session: %s", x.raw)
	}
	idle.rest()
}
