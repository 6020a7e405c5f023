package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/protocol/control"
)

// untilAnother waits until a server has another process than pid, which serves, and returns
// it with the server's status.
func (p *place) untilAnother(name string, pid int) (int, control.Server) {
	p.t.Helper()
	s := p.until("another process serves", func(s control.StatusAnswer) bool {
		n := child(s, name)
		return n != 0 && n != pid && find(p.t, s, name).State == "ready"
	})
	return child(s, name), find(p.t, s, name)
}

// TestServerClosesPipe checks that a server that closes its stdin or stdout and lives on is
// ended, and that another process answers the next call, long before the first call's time
// is over.
func TestServerClosesPipe(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"stdin", "stdout"} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared"})}).daemon()
			a := p.agent().shake()
			before := p.untilReady("stray")
			x := a.wait(a.call("stray__shut", map[string]any{"token": stream}))
			if stream == "stdin" && x.text() != "stdin" {
				t.Errorf("the call before the server closes its stdin: %s", x.raw)
			}
			if stream == "stdout" &&
				(x.code() != "outcome_unknown" || !strings.Contains(x.text(), "closed its stdout")) {
				t.Errorf("the call that the server has, but cannot answer: %s", x.raw)
			}
			if x := a.wait(a.call("stray__say", map[string]any{"token": "next"})); x.text() != "next" ||
				p.effectsOf("say next") != 1 {
				t.Errorf("the next call: %s; it was made %d times", x.raw, p.effectsOf("say next"))
			}
			_, s := p.untilAnother("stray", before)
			if s.LastFault == nil || !strings.Contains(s.LastFault.Fault.Detail, "closed its "+stream) ||
				s.Restarts != 1 {
				t.Errorf("the server: %+v", s)
			}
			a.rest()
		})
	}
}

// TestServerClosesStdinUnread has a server close its stdin with a call unread in the pipe,
// and live on. That call gets outcome_unknown at once, and the one behind it is answered by
// another process.
func TestServerClosesStdinUnread(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	before := p.untilReady("stray")
	if x := a.wait(a.call("stray__shut", map[string]any{"token": "late"})); x.text() != "late" {
		t.Errorf("the call before the server closes its stdin: %s", x.raw)
	}
	if x := a.wait(a.call("stray__say", map[string]any{"token": "unread"})); x.code() != "outcome_unknown" ||
		p.effectsOf("say unread") != 0 {
		t.Errorf("the call that was not read: %s", x.raw)
	}
	if x := a.wait(a.call("stray__say", map[string]any{"token": "next"})); x.text() != "next" ||
		p.effectsOf("say next") != 1 {
		t.Errorf("the next call: %s; it was made %d times", x.raw, p.effectsOf("say next"))
	}
	p.untilAnother("stray", before)
	a.rest()
}

// TestServerHangs stops a server's process. After a call without an answer the daemon pings
// the server, and ends and restarts it if it does not answer. The circuit that opened
// meanwhile does not keep calls from the new process.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"stray": p.strayEntry(hosting{
		"scope": "shared", "timeout": "12s", "circuit_threshold": 1, "circuit_reset": "10m",
	})}).daemon()
	a := p.agent().shake()
	before := p.untilReady("stray")
	if x := a.wait(a.call("stray__stop", map[string]any{"token": "a"})); x.code() != "timeout" {
		t.Errorf("the call that stops the server: %s", x.raw)
	}
	// Only this server is unwell, and everything else works.
	if x := a.wait(a.call("health_snapshot", nil)); !strings.HasPrefix(x.text(), "Needs attention. ") ||
		!strings.Contains(x.text(), "\nstray: has left a call without an answer") {
		t.Errorf("the health meanwhile: %s", x.raw)
	}
	_, s := p.untilAnother("stray", before)
	if s.LastFault == nil || !strings.Contains(s.LastFault.Fault.Detail, "hung, so Holdline ended it") ||
		s.Restarts != 1 {
		t.Errorf("the server: %+v", s)
	}
	if x := a.wait(a.call("stray__say", map[string]any{"token": "next"})); x.text() != "next" ||
		p.effectsOf("say next") != 1 {
		t.Errorf("the next call: %s", x.raw)
	}
	a.rest()
}

// TestServerBusy checks that a server that does one thing at a time, and answers neither
// calls nor pings meanwhile, does not count as hung: neither if it answers a call late,
// nor, for longer, if it computes.
func TestServerBusy(t *testing.T) {
	t.Parallel()
	for tool, work := range map[string]struct {
		timeout string
		ms      int
	}{"busy": {"9s", 12_000}, "spin": {"9s", 30_000}} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			if tool == "spin" && runtime.GOOS != "linux" {
				t.Skip("the time that others compute is not known here")
			}
			p := newPlace(t)
			p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared", "timeout": work.timeout})}).
				daemon()
			a := p.agent().shake()
			before := p.untilReady("stray")
			if x := a.wait(a.call("stray__"+tool, map[string]any{"token": "a", "ms": work.ms})); x.code() != "timeout" {
				t.Errorf("the call that takes longer than it may: %s", x.raw)
			}
			p.until("the server is heard again", func(control.StatusAnswer) bool {
				return !strings.Contains(a.wait(a.call("health_snapshot", nil)).text(), "without an answer")
			})
			if x := a.wait(a.call("stray__say", map[string]any{"token": "next"})); x.text() != "next" {
				t.Errorf("the next call: %s", x.raw)
			}
			if s := p.server("stray"); s.Restarts != 0 || s.LastFault != nil || child(p.status(), "stray") != before {
				t.Errorf("the server: %+v", s)
			}
			a.rest()
		})
	}
}

// TestUnansweredPing checks that the record of a ping that a living server leaves without an
// answer is dropped.
func TestUnansweredPing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h := hosting{"scope": "shared", "timeout": "12s"}
	p.configure(map[string]any{"wild": p.wildEntry(h, "-murmurs")}).daemon()
	a := p.agent().shake()
	before := p.untilReady("wild")
	x := a.wait(a.call("wild__raw", map[string]any{"text": `{"jsonrpc":"2.0","method":"notifications/unknown"}`}))
	if x.code() != "timeout" {
		t.Errorf("the call without an answer: %s", x.raw)
	}
	probed := func() bool {
		files, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*", calls.File))
		for _, file := range files {
			left, err := calls.Load(filepath.Dir(file), true)
			isPing := func(r calls.Record) bool { return r.Kind == calls.KindProbe }
			if err == nil && slices.ContainsFunc(left.Records, isPing) {
				return true
			}
		}
		return false
	}
	waitFor(t, "the ping", probed)
	waitFor(t, "its record's end", func() bool { return !probed() })
	if x := a.wait(a.call("wild__echo", map[string]any{"text": "next"})); x.text() != "next" {
		t.Errorf("the next call: %s", x.raw)
	}
	if child(p.status(), "wild") != before {
		t.Error("the server was ended")
	}
	a.rest()
}

// TestServerHangsForImpatientClient checks that a client's early cancellation also makes
// the daemon check the server.
func TestServerHangsForImpatientClient(t *testing.T) {
	if os.Getenv("HOLDLINE_LONG") == "" {
		t.Skip("HOLDLINE_LONG=1 is not set: it takes more than a minute")
	}
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared", "timeout": "40s"})}).daemon()
	a := p.agent().shake()
	before := p.untilReady("stray")
	id := a.call("stray__stop", map[string]any{"token": "a"})
	p.untilEffect("stop a")
	time.Sleep(31 * time.Second) // the client's own limit
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	for end := time.Now().Add(3 * time.Minute); child(p.status(), "stray") == before; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("the server was not ended")
		}
	}
	if _, s := p.untilAnother("stray", before); !strings.Contains(s.LastFault.Fault.Detail,
		"hung, so Holdline ended it") {
		t.Errorf("the server: %+v", s)
	}
	a.rest(id)
}

// TestHealthNamesServer checks that the health names the server that is unwell, and that
// the daemon still counts as ready.
func TestHealthNamesServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"gone": map[string]any{
			"command": filepath.Join(p.dir, "nowhere"), "holdline": hosting{"scope": "shared", "max_restarts": 0},
		},
		"well": p.strayEntry(hosting{"scope": "shared"}),
	}).daemon()
	a := p.agent().shake()
	p.untilReady("well")
	p.until("one server is ejected", func(s control.StatusAnswer) bool { return find(t, s, "gone").Ejected })
	if x := a.wait(a.call("health_snapshot", nil)); !strings.HasPrefix(x.text(), "Needs attention. ") ||
		!strings.Contains(x.text(), "\ngone: failed too often") || strings.Contains(x.text(), "well: ") {
		t.Errorf("health: %s", x.raw)
	}
	x := a.wait(a.call("health_snapshot", map[string]any{"detail": "full"}))
	if !strings.Contains(x.text(), "\ngone: failed too often") || !strings.Contains(x.text(), "was not found") ||
		strings.Contains(x.text(), "well: ") {
		t.Errorf("health in full: %s", x.raw)
	}
	a.rest()
}
