package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// goesOn lets a process go on that [halt] has stopped.
func goesOn(tb testing.TB, pid int) {
	tb.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		tb.Fatal(err)
	}
}

// TestDaemonOfAnotherHome_NoCommandActsOnIt runs commands and a proxy of one home whose runtime
// directory is that of another home's daemon. Each refuses and names both homes. Nothing happens to
// the daemon, nor, after it was killed, to what it has left.
func TestDaemonOfAnotherHome_NoCommandActsOnIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared").login()
	a := p.agent().shake()
	if x := a.wait(a.call("tools__look", map[string]any{"token": "t"})); x.text() != "t" {
		t.Fatalf("the daemon's own home: %s", x.raw)
	}
	before := p.status().Daemon
	home := filepath.Join(p.dir, "home2")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	refuses := func(args ...string) {
		t.Helper()
		cmd := p.command(args...)
		cmd.Env = append(without(p.env, "HOME"), "HOME="+home)
		cmd.Stdin = strings.NewReader(piped)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%v succeeds:\n%s", args, out)
		}
		for _, want := range []string{p.stateRoot(), filepath.Join(home, ".local/state/holdline")} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%v does not name %s:\n%s", args, want, out)
			}
		}
	}
	for _, args := range [][]string{
		{"status"},
		{"stop"},
		{"stop", "--all"},
		{"reload"},
		{"upgrade"},
		{"servers", "restart", "tools"},
		{"start"},
		{"daemon"},
		{"mcp-stdio"},
		{"status", "--socket", before.Socket},
	} {
		refuses(args...)
	}
	if now := p.status().Daemon; now.PID != before.PID {
		t.Errorf("the daemon is %+v, want %+v", now, before)
	}
	held := a.call("tools__effect", map[string]any{"token": "e", "until": p.latch("e")})
	p.untilEffect("begin e")
	halt(t, a.cmd.Process.Pid) // else it starts the next daemon
	kill9(t, before.PID)
	refuses("stop", "--all")
	refuses("daemon")
	goesOn(t, a.cmd.Process.Pid)
	p.letThrough("e")
	if x := a.wait(held); x.text() != "e" || p.effectsOf("begin e") != 1 {
		t.Errorf("the call of the killed daemon's agent: %s, %d times", x.raw, p.effectsOf("begin e"))
	}
	a.leave()
}

// TestDaemonKilled_AgentWithoutRuntimeDirectoryStartsTheNext_CallsOfBothArriveOnce kills the daemon of two
// agents. The next one is started by the agent whose client has cleared the environment; it serves
// where the one before did, with its configuration and its state: the calls of both arrive, and no
// server runs twice.
func TestDaemonKilled_AgentWithoutRuntimeDirectoryStartsTheNext_CallsOfBothArriveOnce(t *testing.T) {
	t.Parallel()
	for _, cleared := range [][]string{{"XDG_RUNTIME_DIR"}, {"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOLDLINE_CONFIG"}} {
		t.Run(strings.Join(cleared, " "), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).serve("shared").login()
			config := filepath.Join(p.dir, "home/.config/holdline/config.json")
			named := filepath.Join(p.dir, "named.json")
			if err := os.Rename(config, named); err != nil {
				t.Fatal(err)
			}
			full := append(slices.Clip(p.env), "XDG_STATE_HOME="+filepath.Join(p.dir, "state"), "HOLDLINE_CONFIG="+named)
			p.env = full
			a := p.agent().shake()
			p.env = without(full, cleared...)
			b := p.agent().shake()
			p.env = full
			s := p.status()
			if len(s.Sessions) != 2 {
				t.Fatalf("sessions %+v, want both agents", s.Sessions)
			}
			calls := map[string]int{}
			for token, agent := range map[string]*agent{"a": a, "b": b} {
				calls[token] = agent.call("tools__effect", map[string]any{"token": token, "until": p.latch("go")})
				p.untilEffect("begin " + token)
			}
			halt(t, a.cmd.Process.Pid)
			kill9(t, s.Daemon.PID)
			p.pid(s.Daemon.PID) // waits for the next one
			next := p.status()
			goesOn(t, a.cmd.Process.Pid)
			if next.Daemon.Socket != s.Daemon.Socket {
				t.Errorf("the next daemon serves at %s, want %s", next.Daemon.Socket, s.Daemon.Socket)
			}
			p.letThrough("go")
			for token, agent := range map[string]*agent{"a": a, "b": b} {
				if x := agent.wait(calls[token]); x.text() != token || p.effectsOf("begin "+token) != 1 {
					t.Errorf("agent %s: %s, %d times", token, x.raw, p.effectsOf("begin "+token))
				}
			}
			if s := p.status(); len(s.Sessions) != 2 || len(s.Workers) != 1 {
				t.Errorf("%d sessions and %d workers, want both agents at one server", len(s.Sessions), len(s.Workers))
			}
			a.leave()
			b.leave()
		})
	}
}
