package e2e

import (
	"path/filepath"
	"syscall"
	"testing"

	"holdline/protocol/control"
)

// TestSessionDesertedInAbsence ends a proxy while no daemon runs, with a call of the
// session's own server under way. The first daemon that starts afterwards ends that server.
func TestSessionDesertedInAbsence(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "session"})})
	stays, goes := p.agent("--identity", "stays").shake(), p.agent("--identity", "goes").shake()
	s := p.until("a server for each session", func(s control.StatusAnswer) bool { return len(s.Workers) == 2 })
	// A server that is not ready yet would be started again by the next daemon.
	stays.wait(stays.call("tools__effect", map[string]any{"token": "ready"}))
	goes.call("tools__hang", map[string]any{"token": "a"})
	p.untilEffect("begin a")
	for _, pid := range []int{s.Daemon.PID, goes.cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // so that neither sees the other's end
			t.Fatal(err)
		}
	}
	kill9(t, s.Daemon.PID)
	if err := goes.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = goes.cmd.Wait() // until then the process exists, as a zombie
	p.pid(s.Daemon.PID)
	left := p.until("one server", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 })
	if x := stays.wait(stays.call("tools__effect", map[string]any{"token": "b"})); x.text() != "b" {
		t.Errorf("the call of the session that stays: %s", x.raw)
	}
	waitFor(t, "the directory of the other to be removed", func() bool {
		dirs, err := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*"))
		return err == nil && len(dirs) == 1 && filepath.Base(dirs[0]) == left.Workers[0].ID
	})
	stays.rest()
}
