package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// pane is a terminal of 80 columns and 24 lines, by tmux, with a command in it.
type pane struct {
	t   *testing.T
	dir string
	env []string
}

// open runs a command of the place in a terminal, which is closed at the end of the test. It
// skips the test where there is no tmux.
func (p *place) open(t *testing.T, env []string, args ...string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("needs tmux: apt-get install tmux")
	}
	one := &pane{t: t, dir: t.TempDir(), env: append(append(os.Environ(), p.env...), env...)}
	one.tmux("new-session", "-d", "-x", "80", "-y", "24", "-c", p.project,
		"exec "+filepath.Join(programs, "holdline")+" "+strings.Join(args, " "))
	t.Cleanup(func() { _, _ = one.try("kill-server") })
	return one
}

// try runs a tmux command and returns what it printed.
func (o *pane) try(args ...string) (string, error) {
	args = append([]string{"-S", filepath.Join(o.dir, "s"), "-f", "/dev/null"}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(o.t.Context()), "tmux", args...) // also after the end of the test
	cmd.Env = o.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tmux runs a tmux command, which must succeed.
func (o *pane) tmux(args ...string) string {
	o.t.Helper()
	out, err := o.try(args...)
	if err != nil {
		o.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return out
}

// until waits until all texts are on the screen, as often as they are given, and returns it.
func (o *pane) until(texts ...string) string {
	o.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		screen := o.tmux("capture-pane", "-p")
		missing, rest := "", screen
		for _, text := range texts {
			if before, after, found := strings.Cut(rest, text); found {
				rest = before + after
			} else {
				missing = text
			}
		}
		if missing == "" {
			return screen
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("the screen has no %q:\n%s", missing, screen)
		}
	}
}

// TestTop checks `holdline top` on a real terminal: it shows a server and its crash, restarts
// the server, goes on when the daemon is killed, starts none when it is stopped, and leaves
// the terminal as it was.
func TestTop(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().serve("shared")
	a := p.agent().shake()
	pid := p.untilReady("tools")
	o := p.open(t, []string{"TERM=xterm-256color"}, "top")
	o.until("HOLDLINE", "1 agent", "1/1 servers ok", "● tools", "ready", "q quit")
	if screen := o.tmux("capture-pane", "-p", "-e"); !strings.Contains(screen, "\x1b[38;5;") {
		t.Errorf("the screen has no colours: %q", screen)
	}

	o.tmux("send-keys", "r")
	o.until("Restart tools?", "y yes")
	o.tmux("send-keys", "y")
	o.until("tools is up again (1 process).")
	after := p.untilReady("tools")
	if after == pid {
		t.Errorf("tools still is process %d", pid)
	}
	kill9(t, after)
	o.until("crash", "up again")

	daemon := p.pid(0)
	kill9(t, daemon)
	p.pid(daemon)
	o.until("1/1 servers ok", "has started", "has started") // the first one is that of the daemon before

	o.tmux("send-keys", "enter")
	o.until("SERVER tools", "Scope", "shared: one process for all", "esc back")
	p.must("stop", "--all")
	o.until("Holdline was stopped.", "holdline start")
	if _, _, code := p.look("status"); code != exitNoDaemon {
		t.Errorf("with top and without an agent there is a daemon: status exits with %d", code)
	}
	o.tmux("send-keys", "q")
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(10 * time.Millisecond) {
		if _, err := o.try("has-session"); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("q does not end top")
		}
	}
	_ = a.stdin.Close()
}

// TestTopWithoutColours checks that NO_COLOR is obeyed, and that top finds a daemon that is
// started later.
func TestTopWithoutColours(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared")
	o := p.open(t, []string{"TERM=xterm-256color", "NO_COLOR=1"}, "top")
	o.until("Holdline is not running.", "It starts with your first agent")
	p.daemon()
	o.until("0 agents", "tools", "No agent is connected.")
	screen := o.tmux("capture-pane", "-p", "-e")
	if strings.Contains(screen, "\x1b[38;") || strings.Contains(screen, "\x1b[48;") {
		t.Errorf("the screen has colours: %q", screen)
	}
}

// TestTopWithoutATerminal checks what top says where it cannot be shown.
func TestTopWithoutATerminal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if _, errs, code := p.run("", "top"); code != exitUsage || !strings.Contains(errs, "holdline status") {
		t.Errorf("without a terminal top exits with %d and says %s", code, errs)
	}
	p.exe = filepath.Join(p.dir, "holdline")
	if err := copyFile(filepath.Join(programs, "holdline"), p.exe); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := p.run("", "top"); code != exitFailure || !strings.Contains(errs, "install --bin") {
		t.Errorf("without holdline-top top exits with %d and says %s", code, errs)
	}
}

// TestEventsAreStreamed checks that a command gets the events that are kept, and then those
// that happen.
func TestEventsAreStreamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().serve("shared")
	a := p.agent().shake()
	pid := p.untilReady("tools")
	conn, err := net.Dial("unix", p.status().Daemon.Socket)
	if err != nil {
		t.Fatal(err)
	}
	c, err := control.NewClient(t.Context(), conn, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var kinds []control.EventKind
	got := make(chan control.Event, 100)
	go func() { // ends with the connection
		_ = c.Call(t.Context(), control.Events, nil, nil, func(pr control.Progress) { got <- *pr.Event })
	}()
	next := func() control.Event {
		select {
		case e := <-got:
			kinds = append(kinds, e.Kind)
			return e
		case <-time.After(waitLimit):
			t.Fatalf("after %v comes nothing", kinds)
			return control.Event{}
		}
	}
	if e := next(); e.Kind != control.Started || e.N != 1 {
		t.Errorf("the first event is %+v", e)
	}
	if e := next(); e.Kind != control.Served || e.Subject != "tools" {
		t.Errorf("the second event is %+v", e)
	}
	kill9(t, pid)
	if e := next(); e.Kind != control.Crashed || e.Subject != "tools" || !e.Bad {
		t.Errorf("after a server was killed the event is %+v", e)
	}
	if e := next(); e.Kind != control.Served || e.Subject != "tools" {
		t.Errorf("after that the event is %+v", e)
	}
	a.rest()
}
