package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/calls"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// unreadable makes a file one that cannot be opened, for an error that passes, until the func that it
// returns is called. No daemon takes that for damage before, at the point of that name.
func (p *place) unreadable(path, point string) (readable func()) {
	p.t.Helper()
	fault := filepath.Join(p.dir, faultDir, faultUnread)
	if err := os.WriteFile(fault, []byte(path), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.dieAs(point, death{held: true})
	return func() {
		if err := os.Remove(fault); err != nil {
			p.t.Error(err)
		}
		p.letGo(point)
	}
}

// TestRecordUnreadableForAMoment_OnlyItsServerWaits kills the daemon while calls of two servers are pending,
// and one file of a server's worker cannot be read by the next daemon, for an error that passes. Until it
// can be read again, agents connect, and the other server's calls, pending and new ones, are answered. Then
// the pending call of that server gets its answer, and a call that is new goes to the same process.
func TestRecordUnreadableForAMoment_OnlyItsServerWaits(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		calls.File, process.FileState, process.FileTaken, process.FileLists, process.FileLock,
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			p, a := damagePlace(t)
			server := p.until("two workers", func(s control.StatusAnswer) bool { return len(s.Workers) == 2 })
			pending := a.call("m__effect", map[string]any{"token": "e", "until": p.latch("e")})
			other := a.call("o__effect", map[string]any{"token": "u", "until": p.latch("u")})
			p.untilEffect("begin e")
			p.untilEffect("begin u")
			readable := p.unreadable(p.damaged("run/holdline/w/sm-*/"+file), "hosted.unread")
			kill9(t, p.pid(0))
			p.letThrough("e")
			p.letThrough("u")
			if x := a.wait(other); x.text() != "u" {
				t.Errorf("the pending call of the other server: %s", x.raw)
			}
			late := p.agent().shake()
			fresh := late.call("m__effect", map[string]any{"token": "fresh"})
			if x := late.wait(late.call("o__effect", map[string]any{"token": "new"})); x.text() != "new" {
				t.Errorf("a new call of the other server: %s", x.raw)
			}
			readable()
			if x := a.wait(pending); x.text() != "e" {
				t.Errorf("the pending call: %s", x.raw)
			}
			if x := late.wait(fresh); x.text() != "fresh" {
				t.Errorf("a new call: %s", x.raw)
			}
			if n := p.effectsOf("begin e"); n != 1 {
				t.Errorf("the call was made %d times", n)
			}
			now := p.until("two workers", func(s control.StatusAnswer) bool { return len(s.Workers) == 2 })
			if workerOf(now, "m") != workerOf(server, "m") {
				t.Errorf("the process %d took the place of %d", workerOf(now, "m"), workerOf(server, "m"))
			}
			late.rest()
			a.rest(pending, other)
		})
	}
}

// unreadCrashes are deaths of a daemon that has tried for as long as an error may take to pass, just before the
// record counts as damaged.
var unreadCrashes = []crash{{point: "hosted.unread"}, {point: "consult.unread"}}

// TestDaemonDiesBeforeARecordIsGivenUp_NextOneReadsIt kills a daemon at each of these deaths. The next one can
// read the record, and goes on as if the error had never been.
func TestDaemonDiesBeforeARecordIsGivenUp_NextOneReadsIt(t *testing.T) {
	t.Parallel()
	for _, c := range unreadCrashes {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			p, a := damagePlace(t)
			var id int
			open := func() { p.letThrough("e") }
			want, path := "e", "run/holdline/w/sm-*/"+process.FileState
			if c.point == "consult.unread" {
				want, path = "the one answer", "home/.local/state/holdline/consults/*/job.json"
				var args map[string]any
				args, open = p.slowUntil(t)
				id = a.call("consult", args)
				p.untilSteps(1)
			} else {
				id = a.call("m__effect", map[string]any{"token": "e", "until": p.latch("e")})
				p.untilEffect("begin e")
			}
			path = p.damaged(path)
			fault := filepath.Join(p.dir, faultDir, faultUnread)
			if err := os.WriteFile(fault, []byte(path), 0o600); err != nil {
				t.Fatal(err)
			}
			p.dieAs(c.point, death{})
			kill9(t, p.pid(0))
			waitFor(t, "the daemon's death", func() bool { return p.died(c.point) })
			if err := os.Remove(fault); err != nil {
				t.Fatal(err)
			}
			open()
			if x := a.wait(id); !strings.HasPrefix(x.text(), want) {
				t.Errorf("the answer: %s", x.raw)
			}
			if calls, steps := p.effectsOf("begin e"), p.steps(); calls+steps/2 != 1 {
				t.Errorf("%d calls were made, and %d of the consult's two steps", calls, steps)
			}
			a.rest(id)
		})
	}
}

// workerOf returns the process of the worker of a server.
func workerOf(s control.StatusAnswer, server string) int {
	for _, w := range s.Workers {
		if w.Name == server {
			return w.PID
		}
	}
	return 0
}
