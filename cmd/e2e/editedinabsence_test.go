package e2e

import (
	"testing"
)

// edits are what a user may do to a server's entry while no daemon runs.
var edits = map[string]func(p *place, scope string){
	"unchanged": func(*place, string) {},
	"edited":    func(p *place, scope string) { p.serve(scope, "-logs") },
	"rescoped": func(p *place, scope string) {
		if scope == "session" {
			p.serve("shared")
		} else {
			p.serve("session")
		}
	},
	"removed": func(p *place, _ string) { p.configure(map[string]any{}) },
}

// TestServerEditedInAbsence kills the daemon during a call, and edits the server's entry
// before the next daemon starts. The process with the call is not the configured one any
// more. Its answer arrives all the same, once.
func TestServerEditedInAbsence(t *testing.T) {
	t.Parallel()
	for name, edit := range edits {
		for _, scope := range []string{"session", "project", "shared"} {
			t.Run(name+" "+scope, func(t *testing.T) {
				p := newPlace(t).serve(scope)
				d := p.daemon()
				a := p.agent("--no-autostart").shake()
				id := a.effect("e", 1500)
				p.untilEffect("begin e")
				kill9(t, d.Process.Pid)
				edit(p, scope)
				next := p.daemon()
				if x := a.wait(id); x.Error != nil || x.Result.IsError || x.text() != "e" {
					t.Errorf("the answer: %s", x.raw)
				}
				if n := p.effectsOf("begin e"); n != 1 {
					t.Errorf("the call was made %d times", n)
				}
				if pid := p.status().Daemon.PID; pid != next.Process.Pid {
					t.Errorf("daemon %d serves, want %d", pid, next.Process.Pid)
				}
				a.rest(id)
			})
		}
	}
}

// TestServerEditedInAbsence_AsksItsClient has the process of an edited entry ask its client
// during the call. No daemon crashes, and the call ends.
func TestServerEditedInAbsence_AsksItsClient(t *testing.T) {
	t.Parallel()
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t).serve("session").faults()
			p.dieAs("hosted.dispatched", death{})
			p.daemon()
			m := p.agent("--identity", "m", "--no-autostart")
			m.modernPing()
			id := m.askMe(elicit("e"), nil)
			p.untilEffect("asked e")
			waitFor(t, "the daemon's end", func() bool { return p.died("hosted.dispatched") })
			edit(p, "session")
			next := p.daemon()
			in := m.required(id)
			if name == "removed" {
				t.Log("no server is there to go on with the call")
			} else if x := m.wait(m.askMe(elicit("e"),
				in.with(`{"action":"accept"}`))); x.text() != `e {"action":"accept"}` {
				t.Errorf("the answer: %s", x.raw)
			}
			if asked := p.effectsOf("asked e"); asked != 1 {
				t.Errorf("the call was made %d times", asked)
			}
			if pid := p.status().Daemon.PID; pid != next.Process.Pid {
				t.Errorf("daemon %d serves, want %d", pid, next.Process.Pid)
			}
			m.rest()
		})
	}
}
