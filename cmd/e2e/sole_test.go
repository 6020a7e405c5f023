package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// stateRoot returns the state directory of the place.
func (p *place) stateRoot() string { return filepath.Join(p.dir, "home/.local/state/holdline") }

// TestStartStallsBeforeItIsNamed_LeavesToTheNextOne kills a daemon, and stalls the next start when that has the lock and
// has not written its name there: a third one takes the lock, and serves. The stalled start leaves to it and does not
// stop it.
func TestStartStallsBeforeItIsNamed_LeavesToTheNextOne(t *testing.T) {
	t.Parallel()
	const point = "start.locked"
	p := newPlace(t).login().faults()
	kill9(t, p.daemon().Process.Pid)
	p.dieAs(point, death{held: true})
	stalled := p.command("daemon")
	var errs bytes.Buffer
	stalled.Stderr = &errs
	if err := stalled.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the stalled start", func() bool { return p.died(point) })
	next := p.daemon()
	a := p.agent("--no-autostart").shake()
	p.letGo(point)
	if err := stalled.Wait(); err != nil || !strings.Contains(errs.String(), fmt.Sprintf("pid %d", next.Process.Pid)) {
		t.Errorf("the stalled start: %v\n%s", err, &errs)
	}
	a.rest()
	if now := p.status().Daemon.PID; now != next.Process.Pid || strings.Contains(errs.String(), "to stop") {
		t.Errorf("the daemon is %d, want %d; the stalled start said\n%s", now, next.Process.Pid, &errs)
	}
}

// TestSoleDaemon checks that a second daemon, at another socket, does not start in the
// state directory of the first, however it is started, and ends none of its workers. With a
// state directory of its own it starts.
func TestSoleDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	first := p.daemon()
	before := p.status().Daemon
	other := filepath.Join(p.dir, "o/s")
	for name, args := range map[string][]string{
		"by hand":      {"daemon"},
		"by a command": {"consult", "--", "what is wrong"},
		"by a proxy":   {"mcp-stdio"},
		"to end all":   {"stop", "--all"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := p.command(args...)
			cmd.Env = append(slices.Clip(p.env), "HOLDLINE_SOCKET="+other)
			cmd.Stdin = strings.NewReader(piped)
			begin := time.Now()
			out, err := cmd.CombinedOutput()
			if err == nil || time.Since(begin) > endBound {
				t.Errorf("%v: %v after %v\n%s", args, err, time.Since(begin), out)
			}
			for _, want := range []string{fmt.Sprintf("daemon %d", first.Process.Pid), before.Socket, p.stateRoot()} {
				if !bytes.Contains(out, []byte(want)) {
					t.Errorf("%v does not say %q:\n%s", args, want, out)
				}
			}
			if args[0] != "stop" && !bytes.Contains(out, []byte("XDG_STATE_HOME")) {
				t.Errorf("%v does not say the way out:\n%s", args, out)
			}
		})
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("a socket of the second daemon is there")
	}
	if now := p.status().Daemon; now.PID != first.Process.Pid || now.Epoch != before.Epoch {
		t.Errorf("the first daemon is now %+v", now)
	}

	second := p.command("daemon", "--socket", other)
	second.Env = append(slices.Clip(p.env), "XDG_STATE_HOME="+filepath.Join(p.dir, "state"))
	p.background(second)
	waitFor(t, "the second daemon",
		func() bool { _, _, code := p.look("status", "--socket", other); return code == 0 })
}

// TestSoleDaemonAfterAKill checks that a daemon at another socket takes over the state
// directory of a killed one at once.
func TestSoleDaemonAfterAKill(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first := p.daemon()
	kill9(t, first.Process.Pid)
	begin := time.Now()
	p.env = append(p.env, "HOLDLINE_SOCKET="+filepath.Join(p.dir, "o/s"))
	second := p.daemon()
	if took := time.Since(begin); took > endBound {
		t.Errorf("it took %v", took)
	}
	if s := p.status().Daemon; s.PID != second.Process.Pid {
		t.Errorf("the daemon is %+v, want %d", s, second.Process.Pid)
	}
}

// TestSoleDaemonDisowned checks that a daemon whose runtime directory was removed makes way
// for the next one at the same socket.
func TestSoleDaemonDisowned(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first := p.daemon()
	if err := os.RemoveAll(filepath.Join(p.dir, "run/holdline")); err != nil {
		t.Fatal(err)
	}
	second := p.daemon()
	waitFor(t, "the end of the daemon without its runtime directory",
		func() bool { return !alive(first.Process.Pid) })
	if s := p.status().Daemon; s.PID != second.Process.Pid {
		t.Errorf("the daemon is %+v, want %d", s, second.Process.Pid)
	}
}

// TestSoleDaemonHanded checks that a daemon with a socket from the service manager replaces
// one at another default path, and none at a path that the user has named.
func TestSoleDaemonHanded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	elsewhere := filepath.Join(p.dir, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	env := p.env
	p.env = append(slices.Clip(env), "XDG_RUNTIME_DIR="+elsewhere)
	first := p.daemon()
	a := p.agent("--no-autostart").shake()
	p.env = env
	second := p.handed()
	waitFor(t, "the first daemon's end", func() bool { return !alive(first.Process.Pid) })
	if s := p.status().Daemon; s.PID != second.Process.Pid {
		t.Errorf("the daemon is %+v, want %d", s, second.Process.Pid)
	}
	if x := a.ask("ping", map[string]any{}); x.Error != nil {
		t.Errorf("the first one's session: %s", x.raw)
	}
	a.leave()
	_ = second.Process.Signal(sigTerm)
	waitFor(t, "the second daemon's end", func() bool { return !alive(second.Process.Pid) })

	p.env = append(slices.Clip(env), "HOLDLINE_SOCKET="+filepath.Join(p.dir, "named/s"))
	third := p.daemon()
	p.env = env
	fourth := p.handed()
	waitFor(t, "the end of the one that was handed the socket", func() bool { return !alive(fourth.Process.Pid) })
	if !alive(third.Process.Pid) {
		t.Error("the daemon at the socket that the user named was ended")
	}
}

// TestPointerComesBack checks that a daemon writes its pointer again after another daemon
// has removed it.
func TestPointerComesBack(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon("--idle-exit", "1h")
	pointer := filepath.Join(p.stateRoot(), "daemon.path")
	before, err := os.ReadFile(pointer)
	if err != nil {
		t.Fatal(err)
	}
	// A daemon of the same home with another XDG_RUNTIME_DIR and state directory starts and
	// stops.
	run := filepath.Join(p.dir, "r2")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	env := append(slices.Clip(p.env), "XDG_RUNTIME_DIR="+run, "XDG_STATE_HOME="+filepath.Join(p.dir, "s2"))
	second := p.command("daemon")
	second.Env = env
	done := p.background(second)
	waitFor(t, "the other's pointer",
		func() bool { b, err := os.ReadFile(pointer); return err == nil && !bytes.Equal(b, before) })
	_ = second.Process.Signal(sigTerm)
	<-done
	waitFor(t, "the pointer",
		func() bool { b, err := os.ReadFile(pointer); return err == nil && bytes.Equal(b, before) })
}
