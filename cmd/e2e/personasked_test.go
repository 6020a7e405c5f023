package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// question reads until a server asks the agent's user something, and returns the id that
// the answer needs.
func (a *agent) question(method string) string {
	a.t.Helper()
	x := a.until(func(x *answer) bool { return x.Method == method })
	return fmt.Sprintf("%q", x.ID)
}

// accept answers a question of a server in the user's name.
func (a *agent) accept(id string) {
	a.t.Helper()
	a.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept"}}`)
}

// TestServerSpeaksWhileUserIsAsked checks that while a user thinks, for however long,
// nothing that the server says to others is delayed, however much it is, and that the user
// is asked once, even if the daemon dies.
func TestServerSpeaksWhileUserIsAsked(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session").login()
	a := p.agent().shake()
	id := a.call("tools__ask", elicit("slow"))
	question := a.question("elicitation/create")
	worker := p.until("the worker", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 }).Workers[0].ID
	for range 4 { // 16 MiB: twice what a worker keeps
		if x := a.wait(a.call("tools__big", map[string]any{"token": "b", "bytes": 4 << 20})); len(x.text()) < 4<<20 {
			t.Fatalf("a large answer meanwhile: %.300s", x.raw)
		}
	}
	for range 45 { // more pieces than a worker keeps
		var ids []int
		for range 100 {
			ids = append(ids, a.call("tools__look", map[string]any{"token": "l"}))
		}
		a.waitAll(ids...)
	}
	waitFor(t, "the output to be acknowledged",
		func() bool { said, acked := p.said(t, worker); return said-acked < 100 })
	again := false
	answerOf := func(id int) answer {
		return a.until(func(x *answer) bool {
			again = again || x.Method == "elicitation/create"
			return x.answers(id)
		})
	}
	pid := p.pid(0)
	for range 2 {
		kill9(t, pid)
		pid = p.pid(pid)
		answerOf(a.call("tools__look", map[string]any{"token": "again"}))
	}
	a.accept(question)
	x := answerOf(id)
	if again || x.text() != `slow {"action":"accept"}` || p.effectsOf("asked slow") != 1 ||
		p.effectsOf("told slow") != 1 {
		t.Errorf("asked again: %v; %s", again, x.raw)
	}
	left := filepath.Join(p.dir, "run/holdline/w", worker, "q", "*")
	waitFor(t, "the end of the request's file", func() bool { files, _ := filepath.Glob(left); return len(files) == 0 })
	// The next daemon does not ask an answered question again.
	kill9(t, pid)
	p.pid(pid)
	answerOf(a.call("tools__look", map[string]any{"token": "last"}))
	if again {
		t.Error("asked again by the last daemon")
	}
	a.rest(id)
}

// TestClockStopsWhileUserIsAsked checks that a call does not time out while a person is
// asked, for input or to allow sampling, even if the daemon dies meanwhile. After the
// answer it has its full time again.
func TestClockStopsWhileUserIsAsked(t *testing.T) {
	t.Parallel()
	const timeout = 12 * time.Second // enough on a busy machine
	think := func() { time.Sleep(timeout + time.Second) }
	limits := hosting{"scope": "session", "timeout": timeout.String()}
	for _, method := range []string{"elicitation/create", "sampling/createMessage"} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprint(filepath.Dir(method), " dies=", dies), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t).login()
				p.configure(map[string]any{"tools": p.toolsEntry(limits)})
				a := p.agent().shake()
				id := a.call("tools__ask", map[string]any{"token": "w", "method": method})
				question := a.question(method)
				think()
				if dies {
					pid := p.pid(0)
					kill9(t, pid)
					p.pid(pid)
					think()
				}
				a.accept(question)
				if x := a.wait(id); x.text() != `w {"action":"accept"}` || p.effectsOf("told w") != 1 {
					t.Errorf("the call: %s", x.raw)
				}
				// Only a person may take that long.
				if x := a.wait(a.call("tools__hang", map[string]any{"token": "h"})); x.code() != "timeout" {
					t.Errorf("a call that hangs: %s", x.raw)
				}
				a.rest()
			})
		}
	}
	t.Run("not roots", func(t *testing.T) { // answered by a program
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"tools": p.toolsEntry(limits)}).daemon()
		a := p.agent().shake()
		if x := a.wait(a.call("tools__ask",
			map[string]any{"token": "r", "method": "roots/list"})); x.code() != "timeout" {
			t.Errorf("a client that does not answer: %s", x.raw)
		}
		a.rest()
	})
	t.Run("limit", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"tools": p.toolsEntry(hosting{
			"scope": "session", "timeout": timeout.String(), "max_timeout": (2 * timeout).String(),
		})}).daemon()
		a := p.agent().shake()
		if x := a.wait(a.call("tools__ask", elicit("never"))); x.code() != "timeout" ||
			!strings.Contains(x.text(), (2*timeout).String()) {
			t.Errorf("a user who never answers: %s", x.raw)
		}
		a.rest()
	})
	t.Run("modern client", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"tools": p.toolsEntry(limits)}).daemon()
		m := p.agent("--identity", "m")
		m.modernPing()
		in := m.required(m.askMe(elicit("w"), nil))
		think()
		if x := m.wait(m.askMe(elicit("w"), in.with(`{"action":"accept"}`))); x.text() != `w {"action":"accept"}` {
			t.Errorf("the call: %s", x.raw)
		}
		m.rest()
	})
	t.Run("modern server", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"sdk": map[string]any{
			"command": filepath.Join(programs, "sdkserver"), "args": []string{"modern"}, "holdline": limits,
		}}).daemon()
		a := p.agent()
		a.ask("initialize", map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{"elicitation": map[string]any{}},
			"clientInfo": map[string]string{"name": "test", "version": "1"},
		})
		a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		id := a.call("sdk__inquire", map[string]any{"word": "w"})
		question := a.question("elicitation/create")
		think()
		a.send(`{"jsonrpc":"2.0","id":` + question + `,"result":{"action":"accept","content":{"word":"yes"}}}`)
		if x := a.wait(id); string(x.Result.StructuredContent) != `{"word":"w accept yes"}` {
			t.Errorf("the call: %s", x.raw)
		}
		a.rest()
	})
}

// questionCrashes are deaths of the daemon around a question that is in a file.
var questionCrashes = []crash{{point: "hosted.askwritten"}, {point: "hosted.errand"}}

// TestServerQuestionKept kills the daemon right after it has written a server's question to
// a file, or right after it has sent the answer to the server, with the file still there.
// The user is asked once, and the server gets one answer.
func TestServerQuestionKept(t *testing.T) {
	t.Parallel()
	for _, c := range questionCrashes {
		point := c.point
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).serve("session").login().faults()
			a := p.agent().shake()
			a.wait(a.call("tools__look", map[string]any{"token": "first"}))
			if point == "hosted.askwritten" {
				p.dieAt(point, 1)
			}
			id := a.call("tools__ask", elicit("w"))
			question := a.question("elicitation/create")
			waitFor(t, "the file of the question", func() bool {
				files, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*/q/[0-9]*"))
				return len(files) == 1
			})
			if point == "hosted.errand" {
				p.dieAt(point, 1)
			} else {
				waitFor(t, "the daemon's death", func() bool { return p.died(point) })
			}
			a.accept(question)
			x := a.until(func(x *answer) bool {
				if x.Method == "elicitation/create" {
					t.Errorf("asked again: %s", x.raw)
				}
				return x.answers(id)
			})
			if x.text() != `w {"action":"accept"}` || p.effectsOf("told w") != 1 || p.effectsOf("late") != 0 {
				t.Errorf("the call: %s", x.raw)
			}
			waitFor(t, "the daemon's death", func() bool { return p.died(point) })
			if x := a.wait(a.call("tools__look", map[string]any{"token": "last"})); x.text() != "last" {
				t.Errorf("after that: %s", x.raw)
			}
			a.rest(id)
		})
	}
}
