package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/process"
)

// stray waits for the pid in a file of [claudetest.StrayScript]. The process is killed at the end of the
// test. It must have no environment, and be in another session than the worker's child.
func (p *place) stray(t *testing.T, file string) (pid int) {
	t.Helper()
	waitFor(t, "a process that is hard to find", func() bool {
		b, err := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		args := process.Args(pid)
		return err == nil && len(args) > 0 && args[0] == "sleep"
	})
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ"); err != nil || strings.Contains(string(env), p.dir) {
		t.Fatalf("the environment of the process: %q, %v", env, err)
	}
	return pid
}

// shellServer starts a daemon by an agent with a server that runs commands, and returns the worker's pid
// and the daemon's.
func (p *place) shellServer(scope string) (a *agent, worker, daemon int) {
	p.login().configure(map[string]any{"sh": shellEntry(hosting{"scope": scope})})
	a = p.agent().shake()
	p.untilReady("sh")
	s := p.status()
	return a, s.Workers[0].PID, s.Daemon.PID
}

// TestWorkerKilled_ProcessThatIsHardToFindIsGone kills workers, and daemons, of children that have started a
// process which forked twice, is in a session of its own and has an empty environment. It is gone soon; one
// that is no worker's is left alone.
func TestWorkerKilled_ProcessThatIsHardToFindIsGone(t *testing.T) {
	t.Parallel()
	// The cases may wait for long until others of the package have run.
	bystander := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "infinity")
	bystander.Env = []string{}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !alive(bystander.Process.Pid) {
			t.Error("a process that is no worker's was killed")
		}
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	})
	gone := func(t *testing.T, pid int) {
		t.Helper()
		waitFor(t, "the end of the process that is hard to find", func() bool { return !alive(pid) })
	}
	for name, kill := range map[string]func(p *place, worker, daemon int){
		"the worker": func(p *place, worker, _ int) { kill9(p.t, worker) },
		"the daemon, then the worker": func(p *place, worker, daemon int) {
			kill9(p.t, daemon)
			p.pid(daemon)
			kill9(p.t, worker)
		},
		"the worker and the daemon": func(p *place, worker, daemon int) {
			kill9(p.t, worker)
			kill9(p.t, daemon)
		},
		"the daemon and the worker, whose directory goes": func(p *place, worker, daemon int) {
			kill9(p.t, daemon)
			kill9(p.t, worker)
			dirs, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*"))
			for _, dir := range dirs {
				if err := os.RemoveAll(dir); err != nil {
					p.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			a, worker, daemon := p.shellServer("shared")
			file := filepath.Join(p.dir, "stray")
			run := "set -- " + file + "; " + claudetest.StrayScript
			if x := a.wait(a.call("sh__run", map[string]any{"command": run})); x.code() != "" {
				t.Fatalf("the server: %s", x.raw)
			}
			pid := p.stray(t, file)
			kill(p, worker, daemon)
			gone(t, pid)
			if x := a.wait(a.call("sh__run", map[string]any{"command": "echo works"})); !strings.Contains(x.text(), "works") {
				t.Errorf("the server afterwards: %s", x.raw)
			}
			a.rest()
		})
	}
	t.Run("the worker of a consult", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.daemon()
		file := p.ledger() + ".stray"
		p.agent().shake().call("consult", map[string]any{"prompt": claudetest.Prompt("x",
			claudetest.Step{Do: "stray", Message: file}, claudetest.Step{Do: "hang"})})
		pid := p.stray(t, file)
		kill9(t, p.status().Workers[0].PID)
		gone(t, pid)
	})
	t.Run("the daemon and the worker, before stop", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		a, worker, daemon := p.shellServer("shared")
		file := filepath.Join(p.dir, "stray")
		a.wait(a.call("sh__run", map[string]any{"command": "set -- " + file + "; " + claudetest.StrayScript}))
		pid := p.stray(t, file)
		a.rest()
		kill9(t, daemon)
		kill9(t, worker)
		if out, errs, code := p.run("", "stop", "--all"); code != 0 && code != exitNoDaemon {
			t.Errorf("stop --all: exit %d\n%s%s", code, out, errs)
		}
		if alive(pid) {
			t.Error("the process that is hard to find is still there")
		}
	})
}
