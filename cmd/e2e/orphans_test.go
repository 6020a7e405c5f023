package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// everything returns the processes of the place: those that have its home in their
// environment, and those, like workers, whose command line has a directory of it.
func (p *place) everything() map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, _ := os.ReadFile(filepath.Join(d, "environ"))
		cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if len(cmd) == 0 || !bytes.Contains(env, []byte("="+p.dir+"/")) && !bytes.Contains(cmd, []byte(p.dir+"/")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(d), &pid); err == nil && alive(pid) {
			found[pid] = string(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// victims are all processes of a place at work. Each child ignores the end of its input and
// SIGTERM, and has a child of its own, in another session, that does the same.
type victims struct {
	daemon  *os.Process
	agents  []*agent
	workers []control.Worker
}

// hard returns a prompt whose program is such a child.
func (p *place) hard() map[string]any {
	return map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "grandchild", N: 1},
		claudetest.Step{Do: "ledger", Message: p.ledger()}, claudetest.Step{Do: "deaf"})}
}

// atWork starts a daemon with two agents, a consult and a hosted server, each with a call
// in flight.
func (p *place) atWork(t *testing.T) victims {
	t.Helper()
	p.serve("session", "-deaf", "-grandchild")
	v := victims{daemon: p.daemon().Process}
	for range 2 {
		v.agents = append(v.agents, p.agent("--no-autostart").shake())
	}
	v.agents[0].call("consult", p.hard())
	v.agents[1].call("tools__hang", map[string]any{"token": "orphan"})
	p.untilSteps(1)
	p.untilEffect("begin orphan")
	// These run: the daemon, its proxies, and each worker with its child and a grandchild.
	// Below the worker of a consult are the engine process, the program and its child.
	v.workers = p.until("all to run", func(s control.StatusAnswer) bool {
		processes := 1 + len(v.agents) + 3*len(s.Workers)
		for _, w := range s.Workers {
			if w.Kind == process.KindConsult {
				processes++
			}
		}
		return len(s.Workers) >= 2 && len(p.everything()) == processes
	}).Workers
	return v
}

// kill kills groups of victims, one after the other, without waiting.
func (v *victims) kill(t *testing.T, groups ...string) {
	t.Helper()
	strike := func(pid int) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("killing %d: %v", pid, err)
		}
	}
	for _, group := range groups {
		switch group {
		case "daemon":
			strike(v.daemon.Pid)
		case "proxies":
			for _, a := range v.agents {
				strike(a.cmd.Process.Pid)
			}
		case "workers":
			for _, w := range v.workers {
				strike(w.PID)
			}
		case "children":
			for _, w := range v.workers {
				strike(w.ChildPID)
			}
		}
	}
	if slices.Contains(groups, "daemon") {
		for alive(v.daemon.Pid) {
			time.Sleep(time.Millisecond)
		}
	}
}

// nothingButTheDaemon waits until nothing of the place is left but its daemon, and no
// directory of a worker. It fails the test when within is over.
func (p *place) nothingButTheDaemon(daemon int, within time.Duration) {
	p.t.Helper()
	begin := time.Now()
	for {
		all := p.everything()
		delete(all, daemon)
		dirs, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*"))
		if len(all) == 0 && len(dirs) == 0 {
			p.t.Logf("nothing is left after %v", time.Since(begin))
			return
		}
		if time.Since(begin) > within {
			p.t.Fatalf("left after %v: %v, directories %v", within, all, dirs)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// noOrphans kills in several orders, starts one daemon each time, and checks that nothing
// else is left after the windows.
func noOrphans(t *testing.T, by int, orders ...string) {
	t.Helper()
	for _, order := range orders {
		t.Run(order, func(t *testing.T) {
			if by == 1 {
				// The hunt of one might kill the orphans of another, but one after the
				// other takes too long.
				t.Parallel()
			}
			p := newPlace(t).windows(by)
			v := p.atWork(t)
			v.kill(t, strings.Fields(order)...)
			// As a crash leaves them in the middle of a start.
			for _, dir := range []string{"w/dead0001", "w/dead0002"} {
				if err := os.MkdirAll(filepath.Join(p.dir, "run/holdline", dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			spec := []byte(`{"version":1,"id":"dead0002","kind":"server","name":"x","argv":["/bin/true"],"socket":"x"}`)
			if err := os.WriteFile(filepath.Join(p.dir, "run/holdline/w/dead0002/spec.json"), spec, 0o600); err != nil {
				t.Fatal(err)
			}
			d := p.daemon()
			within := 90 * time.Second
			if by > 1 { // the last kill ladder begins when the window ends, and is not shortened
				within = protocol.StartWindow/time.Duration(by) + 2*waitLimit
			}
			p.nothingButTheDaemon(d.Process.Pid, within)
		})
	}
}

// TestNoOrphans checks that after any crash nothing of what ran is left, once a daemon has
// run again for a while. The windows are much shorter than the users'.
func TestNoOrphans(t *testing.T) {
	if raceEnabled { // a worker that no daemon attaches to in time ends
		noOrphans(t, 12, "daemon proxies workers", "daemon proxies")
		return
	}
	noOrphans(t, 60, "daemon proxies workers", "workers daemon proxies", "proxies daemon", "daemon proxies",
		"children workers proxies daemon", "children daemon proxies")
}

// TestNoOrphansInTheirTime does the same with the windows that users have.
func TestNoOrphansInTheirTime(t *testing.T) {
	if os.Getenv("HOLDLINE_LONG") == "" {
		t.Skip("HOLDLINE_LONG=1 is not set: it takes two minutes")
	}
	noOrphans(t, 1, "daemon proxies workers", "daemon proxies")
}

// TestStopAllOfTheHard checks that stop --all ends the same victims at once, with a daemon
// and without one.
func TestStopAllOfTheHard(t *testing.T) {
	t.Parallel()
	all := []string{"", "daemon workers", "daemon", "daemon proxies", "workers"}
	if raceEnabled {
		all = all[:2]
	}
	for _, without := range all {
		t.Run("without "+without, func(t *testing.T) {
			p := newPlace(t)
			v := p.atWork(t)
			v.kill(t, strings.Fields(without)...)
			if out, errs, code := p.run("", "stop", "--all"); code != 0 && code != exitNoDaemon {
				t.Errorf("stop --all: exit %d\n%s%s", code, out, errs)
			}
			begin := time.Now()
			for {
				left := p.everything()
				for _, a := range v.agents {
					delete(left, a.cmd.Process.Pid) // the test ends these
				}
				if len(left) == 0 {
					break
				}
				// Under the race detector a process sleeps before it ends.
				if !raceEnabled || time.Since(begin) > waitLimit {
					t.Fatalf("left: %v", left)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}
