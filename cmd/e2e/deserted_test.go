package e2e

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

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
	// None of them sees the end of another, and the proxy that stays starts no daemon before.
	for _, pid := range []int{s.Daemon.PID, goes.cmd.Process.Pid, stays.cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	kill9(t, s.Daemon.PID)
	if err := goes.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = goes.cmd.Wait() // until then the process exists, as a zombie
	if err := stays.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
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

// TestConsultDesertedInAbsence kills the daemon and then a proxy, whose client waits for one consult
// and has the id of another. The next daemon ends the first at once, and the other goes on.
func TestConsultDesertedInAbsence(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	background := p.hangs()
	background["wait_s"], background["render"] = 0, "json"
	id := consultID(t, a.wait(a.call("consult", background)))
	a.call("consult", p.hangs())
	p.untilSteps(2)
	for _, pid := range []int{d.Process.Pid, a.cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // so that neither sees the other's end
			t.Fatal(err)
		}
	}
	kill9(t, d.Process.Pid)
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.cmd.Wait()

	began := time.Now()
	p.daemon()
	p.ended()
	if took := time.Since(began); took > waitLimit/2 {
		t.Errorf("the consult ended after %v, want it soon", took)
	}
	var list []control.Consult
	decode(t, p.must("consult", "list", "--json"), &list)
	for _, c := range list {
		if want := map[bool]string{true: "running", false: "cancelled"}[c.ID == id]; c.State != want || len(list) != 2 {
			t.Errorf("of %d consults %s is %s, want %s", len(list), c.ID, c.State, want)
		}
	}
	p.run("", "consult", "cancel", id)
	if n := p.steps(); n != 2 {
		t.Errorf("the programs took %d steps, want 2: each ran once", n)
	}
}

// TestCallDesertedInAbsence kills the daemon and then two proxies, all with calls of a server
// that sessions share under way. The next daemon cancels the call that one of them waited for, at
// once. The call of the other is a task, which continues; the next session of its client has its
// answer. So does the call of a third session, whose proxy is slow to come back.
func TestCallDesertedInAbsence(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"shared", "project"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login().tasking(scope)
			d := p.daemon()
			stays, goes := p.agent("--no-autostart").shake(), p.agent("--no-autostart").shake()
			leaves := p.agent("--no-autostart", "--identity", "leaves")
			stays.wait(stays.call("tools__effect", map[string]any{"token": "ready"}))
			id := stays.call("tools__effect", map[string]any{"token": "slow", "until": p.latch("slow")})
			p.untilEffect("begin slow")
			goes.call("tools__hang", map[string]any{"token": "a"})
			p.untilEffect("begin a")
			left := leaves.callTask("tools__effect", map[string]any{"token": "left", "until": p.latch("left")}).TaskID
			for _, a := range []*agent{stays, goes, leaves} {
				if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil { // neither sees the daemon's end
					t.Fatal(err)
				}
			}
			kill9(t, d.Process.Pid)
			for _, a := range []*agent{goes, leaves} {
				if err := a.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = a.cmd.Wait()
			}

			began := time.Now()
			p.daemon()
			p.untilEffect("cancelled a")
			if took := time.Since(began); took > waitLimit/2 {
				t.Errorf("the call was cancelled after %v, want it soon", took)
			}
			if err := stays.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			p.letThrough("slow")
			p.letThrough("left")
			if x := stays.wait(id); x.Error != nil || x.text() != "slow" {
				t.Errorf("the call of the session that stays: %s", x.raw)
			}
			leaves = p.agent("--no-autostart", "--identity", "leaves")
			if got := leaves.untilTask(t, left); got.Status != "completed" || got.Result.Content[0].Text != "left" {
				t.Errorf("the task is %+v", got)
			}
			for _, token := range []string{"slow", "left"} {
				if n := p.effectsOf("cancelled " + token); n > 0 {
					t.Errorf("the call %s was cancelled", token)
				}
				if n := p.effectsOf("begin " + token); n != 1 {
					t.Errorf("the call %s was made %d times", token, n)
				}
			}
			leaves.leave()
			stays.rest(id)
		})
	}
}
