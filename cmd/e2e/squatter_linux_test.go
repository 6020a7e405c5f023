package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLocksHeldByAnotherProgram_NextDaemonStarts has a program hold every lock that Holdline has, as soon as
// it is free: a confined server or a consult may open the files for reading, which suffices. The next
// daemon starts all the same, a call in flight is answered once, and commands work.
func TestLocksHeldByAnotherProgram_NextDaemonStarts(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"kill", "stop"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
			d := p.daemon()
			a := p.agent("--no-autostart").shake()
			p.untilReady("tools")
			id := a.effect("x", 3000)
			p.untilEffect("begin x")
			if end == "stop" {
				p.stopForNow()
			} else {
				kill9(t, d.Process.Pid)
			}
			for _, name := range []string{
				filepath.Join(p.dir, "run/holdline/daemon.lock"), filepath.Join(p.stateRoot(), "daemon.lock"),
				filepath.Join(p.dir, "run/holdline"), filepath.Join(p.dir, "run/holdline/start.lock"),
			} {
				f, err := os.OpenFile(name, os.O_RDONLY, 0)
				if os.IsNotExist(err) && filepath.Base(name) == "start.lock" { // no proxy has started a daemon
					f, err = os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o600)
				}
				if err == nil {
					err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = f.Close() })
			}
			begin := time.Now()
			b := p.agent().shake()
			if y := b.wait(b.effect("y", 0)); y.text() != "y" {
				t.Errorf("a new agent's call: %s", y.raw)
			}
			if late := time.Since(begin); late > endBound {
				t.Errorf("it took %v", late)
			}
			if end == "kill" {
				if x := a.wait(id); x.text() != "x" || p.effectsOf("begin x") != 1 {
					t.Errorf("the call in flight began %d times: %s", p.effectsOf("begin x"), x.raw)
				}
			}
			p.must("stop", "--all")
		})
	}
}
