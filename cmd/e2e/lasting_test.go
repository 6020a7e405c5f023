package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/waiting"
	"holdline/protocol/control"
)

// asking is a command that runs in the background.
type asking struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, errs words
	ended     chan struct{}
}

// asking starts a command in the background.
func (p *place) asking(t *testing.T, args ...string) *asking {
	t.Helper()
	a := &asking{t: t, cmd: p.command(args...), ended: make(chan struct{})}
	a.cmd.Stdout, a.cmd.Stderr = &a.out, &a.errs
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = a.cmd.Wait(); close(a.ended) }()
	return a
}

// end waits for the command's end, which must have this exit code, and returns what it
// printed.
func (a *asking) end(code int) string {
	a.t.Helper()
	select {
	case <-a.ended:
	case <-time.After(waitLimit):
		a.t.Fatalf("%v has not ended", a.cmd.Args[1:])
	}
	if got := a.cmd.ProcessState.ExitCode(); got != code {
		a.t.Errorf("%v: exit %d, want %d\n%s%s", a.cmd.Args[1:2], got, code, &a.out, &a.errs)
	}
	return a.out.String()
}

// want waits for the command's end, and checks its exit code and output.
func (a *asking) want(code int, out, errs string) {
	a.t.Helper()
	a.end(code)
	if a.out.String() != out || !strings.Contains(a.errs.String(), errs) {
		a.t.Errorf("%v: stdout %q, want %q\nstderr %q, want %q in it", a.cmd.Args[1:2], a.out.String(), out,
			a.errs.String(), errs)
	}
}

// id returns the id of the place's only consult.
func (p *place) id(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(p.dir + "/home/.local/state/holdline/consults")
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, consults %v", err, entries)
	}
	return entries[0].Name()
}

// connected waits until the command has a connection, or has ended.
func (a *asking) connected() *asking {
	a.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid)
	waitFor(a.t, "the command's connection", func() bool {
		if waiting.IsClosed(a.ended) { // on a busy machine it may before this has seen its connection
			return true
		}
		fds, _ := os.ReadDir(dir)
		return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			to, err := os.Readlink(filepath.Join(dir, fd.Name()))
			return err == nil && strings.HasPrefix(to, "socket:")
		})
	})
	return a
}

// TestConsultCommandLasts ends the daemon in several ways while commands wait for a
// consult. Each prints its answer, and the consult runs once.
func TestConsultCommandLasts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, p *place, pid int){
		"killed":     func(t *testing.T, _ *place, pid int) { t.Helper(); kill9(t, pid) },
		"terminated": func(_ *testing.T, _ *place, pid int) { _ = syscall.Kill(pid, syscall.SIGTERM) },
		"upgraded": func(t *testing.T, p *place, _ int) {
			t.Helper()
			p.installVersion(t, newer)
			p.upgrade(newer + " has taken over")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t).login()
			if name == "upgraded" {
				p.installVersion(t, older)
				p.daemonAt(p.bin())
			} else {
				p.up()
			}
			pid := p.pid(0)
			ask := p.asking(t, "consult", p.slow(2)["prompt"].(string))
			p.untilSteps(1)
			wait := p.asking(t, "consult", "wait", p.id(t)).connected()
			end(t, p, pid)
			ask.want(0, "the one answer\n", "")
			wait.want(0, "the one answer\n", "")
			if n := p.steps(); n != 2 {
				t.Errorf("the program took %d steps, want 2: it ran once", n)
			}
		})
	}
}

// TestConsultCommandKilledAtStart kills the daemon at many moments of a command's beginning
// and end. Its consult runs once.
func TestConsultCommandKilledAtStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().up()
	p.must("consult", p.slow(0)["prompt"].(string)) // so that the check of the program is done
	every := 17 * time.Millisecond
	if raceEnabled {
		every = 51 * time.Millisecond
	}
	for after := time.Duration(0); after < 150*time.Millisecond; after += every {
		p.up() // the last command may have ended before the kill
		before, pid := p.steps(), p.pid(0)
		ask := p.asking(t, "consult", p.slow(0.05)["prompt"].(string)).connected()
		time.Sleep(after)
		kill9(t, pid)
		ask.want(0, "the one answer\n", "")
		if steps := p.steps() - before; steps != 2 {
			t.Errorf("killed after %v: %d steps, want 2", after, steps)
		}
	}
}

// TestConsultCommandStopped checks that a command whose daemon is stopped by the user says
// how to get the answer, and that this works.
func TestConsultCommandStopped(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().up()
	args, open := p.slowUntil(t)
	ask := p.asking(t, "consult", args["prompt"].(string))
	p.untilSteps(1)
	p.must("stop")
	id := p.id(t)
	ask.want(exitLost, "", "holdline consult wait "+id)
	if _, _, code := p.run("", "status"); code != exitNoDaemon {
		t.Errorf("the command started a daemon that its user had stopped: status exits %d", code)
	}
	open()
	p.must("start")
	if out := p.must("consult", "wait", id); out != "the one answer\n" || p.steps() != 2 {
		t.Errorf("%d steps, answer %q", p.steps(), out)
	}
}

// TestConsultCommandAbandoned checks that a consult whose command died with the daemon ends
// if the command does not come back, unless another command waits for it.
func TestConsultCommandAbandoned(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		p := newPlace(t).login()
		args := p.slow(8)
		if !waits {
			p.windows(20) // the command may come back for 4.4 s
			args = p.hangs()
		}
		d := p.daemon()
		ask := p.asking(t, "consult", args["prompt"].(string))
		p.untilSteps(1)
		_ = ask.cmd.Process.Signal(syscall.SIGSTOP) // it starts no daemon
		kill9(t, d.Process.Pid)
		_ = ask.cmd.Process.Kill()
		<-ask.ended
		p.daemon()
		if waits {
			p.asking(t, "consult", "wait", p.id(t)).want(0, "the one answer\n", "")
			continue
		}
		if list := p.ended(); !strings.Contains(list, "cancelled") || p.steps() != 1 {
			t.Errorf("%d steps, %s", p.steps(), list)
		}
	}
}

// TestServersCallLost checks that a call whose daemon dies is not made again, and that the
// command says what that means.
func TestServersCallLost(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{})})
	d := p.daemon()
	call := p.asking(t, "servers", "call", "tools", "hang")
	p.until("the call", func(s control.StatusAnswer) bool { return find(t, s, "tools").InFlight == 1 })
	kill9(t, d.Process.Pid)
	call.want(exitLost, "", "whether it had its effect is not known")
}
