package e2e

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/control"
)

// shakeOpen makes the handshake of a client that announces changes of its roots and has
// capabilities to be asked.
func (a *agent) shakeOpen() *agent {
	a.t.Helper()
	a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "clientInfo": map[string]string{"name": "test", "version": "1"},
		"capabilities": map[string]any{"roots": map[string]any{"listChanged": true}, "elicitation": map[string]any{}},
	})
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

// remark has the members of a message that is no answer.
type remark struct {
	Params struct {
		RequestID string
		Reason    string
		Meta      struct{ ProgressToken any } `json:"_meta"`

		ElicitationID string `json:"elicitationId"`
	}
}

// TestServerNotes checks that notifications between a process of scope session and its
// client arrive: changed roots, progress of what the server has asked for, and the
// cancellation of a server's request. No other client gets them.
func TestServerNotes(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session").login()
	a, b := p.agent("--identity", "a").shakeOpen(), p.agent("--identity", "b").shakeOpen()
	pid := p.pid(0)
	a.wait(a.effect("a", 0))
	b.wait(b.effect("b", 0))
	a.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	p.untilNotes("roots changed", 1)

	id := a.call("tools__ask", map[string]any{"token": "q", "method": "elicitation/create", "progress": true})
	asked := a.until(func(x *answer) bool { return x.Method == "elicitation/create" })
	var q remark
	decode(t, asked.raw, &q)
	if q.Params.Meta.ProgressToken != asked.ID {
		t.Errorf("the token is not the client's to be told apart by: %s", asked.raw)
	}
	note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%q,"progress":1}}`,
		q.Params.Meta.ProgressToken)
	b.send(note) // this client was not asked
	b.wait(b.effect("b", 0))
	a.send(note)
	p.untilNotes("progress 1", 1)
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept"}}`, asked.ID))
	if x := a.wait(id); !strings.Contains(x.text(), "accept") {
		t.Errorf("ask: %s", x.raw)
	}

	id = a.call("tools__withdraw", map[string]any{"token": "w", "method": "elicitation/create"})
	asked = a.until(func(x *answer) bool { return x.Method == "elicitation/create" })
	var cancelled, complete remark
	decode(t, a.until(func(x *answer) bool { return x.Method == "notifications/cancelled" }).raw, &cancelled)
	if cancelled.Params.RequestID != asked.ID || cancelled.Params.Reason != "w" {
		t.Errorf("%+v is cancelled, not %v", cancelled, asked.ID)
	}
	decode(t, a.until(func(x *answer) bool { return x.Method == "notifications/elicitation/complete" }).raw, &complete)
	if complete.Params.ElicitationID != "w" {
		t.Errorf("complete: %+v", complete)
	}
	a.wait(id)
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept"}}`, asked.ID)) // too late
	a.wait(a.effect("a", 0))
	if p.effectsOf("late") != 0 {
		t.Error("the server gets an answer that it has said it does not want")
	}

	kill9(t, pid) // whatever was sent meanwhile
	p.untilNotes("roots changed", 3)
	a.rest()
	b.rest()
}

// TestServerOverreaches checks that a server that sessions share cannot ask a client, and
// that the fault says what would help.
func TestServerOverreaches(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	if x := a.wait(a.call("tools__ask",
		map[string]any{"token": "q", "method": "roots/list"})); !strings.Contains(x.text(), "-32601") {
		t.Errorf("ask: %s", x.raw)
	}
	if out := p.must("servers", "list"); !strings.Contains(out, "roots/list") ||
		!strings.Contains(out, `"scope": "project"`) {
		t.Errorf("servers list:\n%s", out)
	}
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "server tools") ||
		!strings.Contains(out, `"scope": "project"`) {
		t.Errorf("doctor:\n%s", out)
	}
	a.rest()
}

// TestServerDenied checks that tools, resources and subscriptions that the rules deny to an
// identity do not exist for it. A call of a denied name is refused with the rule, and
// starts nothing.
func TestServerDenied(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"mem":  p.toolsEntry(hosting{"scope": "shared"}, "-resources", "told"),
		"lazy": p.toolsEntry(hosting{"scope": "shared", "lazy": true}),
	}, "identities", map[string]any{"no": map[string]any{"deny": []string{"mem__*", "lazy__die"}}}).daemon()
	yes, no := p.agent("--identity", "yes").shake(), p.agent("--identity", "no").shake()
	p.untilReady("mem")

	for name, rule := range map[string]string{
		"mem__look": "identities.no.deny[0]", "lazy__die": "identities.no.deny[1]",
	} {
		if x := no.wait(no.call(name, map[string]any{"token": "no"})); x.code() != "denied" ||
			!strings.Contains(x.text(), rule) {
			t.Errorf("a call of %s: %s", name, x.raw)
		}
	}
	if p.effectsOf("look no") != 0 || p.server("lazy").Active {
		t.Error("what is denied was asked for")
	}
	if x := no.ask("resources/list", map[string]any{}); strings.Contains(x.raw, "mem://") {
		t.Errorf("resources/list: %s", x.raw)
	}
	if x := no.ask("resources/templates/list", map[string]any{}); strings.Contains(x.raw, "mem://") {
		t.Errorf("resources/templates/list: %s", x.raw)
	}
	for _, method := range []string{"resources/read", "resources/subscribe"} {
		if x := no.ask(method, map[string]any{"uri": "mem://a"}); x.Error == nil {
			t.Errorf("%s: %s", method, x.raw)
		}
	}
	if p.effectsOf("subscribe") != 0 {
		t.Error("the server was subscribed to")
	}
	if x := yes.ask("resources/list", map[string]any{}); !strings.Contains(x.raw, "mem://a") {
		t.Errorf("resources/list of another: %s", x.raw)
	}
	only := p.agent("--identity", "no", "--server", "mem")
	if x := only.ask("initialize",
		map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}}); !strings.Contains(x.raw,
		`may use no tool of server mem`) {
		t.Errorf("initialize: %s", x.raw)
	}
	waitFor(t, "a word on stderr",
		func() bool { return strings.Contains(only.errs.String(), "may use no tool of server mem") })
	yes.rest()
	no.rest()
}

// TestResourceAtOnce checks that a known resource can be read without waiting for a server
// that does not start.
func TestResourceAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"mem":   p.toolsEntry(hosting{"scope": "shared"}, "-resources", "told", "-own"),
		"sleep": map[string]any{"command": "sleep", "args": []string{"600"}},
	}).daemon()
	a := p.agent().shake()
	p.untilReady("mem")
	list := a.begin("resources/list", map[string]any{})
	read := a.begin("resources/read", map[string]any{"uri": "mem://in/home"})
	if x := a.until(func(x *answer) bool { return x.Method == "" }); x.ID != float64(read) {
		t.Errorf("the read of a known resource waits: %s", x.raw)
	}
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, list))
	a.rest(list)
}

// TestServerOtherEra checks that a server is asked again for its era if it has changed, and
// that a modern server that starts slowly is not taken for a legacy one.
func TestServerOtherEra(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	modern := p.dir + "/modern"
	p.configure(map[string]any{
		"odd":  p.oddEntry(hosting{"scope": "shared"}, "-modern", modern),
		"slow": p.oddEntry(hosting{"scope": "shared"}, "-modern", p.project, "-late", "1200ms"),
	}).daemon()
	a := p.agent().shake()
	said := func(server string) {
		t.Helper()
		if x := a.wait(a.call(server+"__say",
			map[string]any{"text": `{"content":[{"type":"text","text":"here"}]}`})); x.text() != "here" {
			t.Errorf("%s: %s", server, x.raw)
		}
	}
	said("odd")
	be := func(is bool) {
		t.Helper()
		err := os.WriteFile(modern, nil, 0o600)
		if !is {
			err = os.Remove(modern)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	be(true)
	p.must("servers", "restart", "odd") // forgets the era; the next starts do not
	said("odd")
	for _, is := range []bool{false, true} {
		pid := p.untilReady("odd")
		be(is)
		kill9(t, pid)
		p.until("another process serves",
			func(s control.StatusAnswer) bool { n := child(s, "odd"); return n != 0 && n != pid })
		said("odd")
	}
	if s := p.server("odd"); s.Restarts > 2 || s.State != "ready" {
		t.Errorf("odd: %+v", s)
	}
	said("slow")
	if s := p.server("slow"); s.Restarts != 0 {
		t.Errorf("slow: %+v", s)
	}
	a.rest()
}

// TestServerDoesNotRead checks that a call that its server does not even read ends in its
// time like any other.
func TestServerDoesNotRead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "timeout": "12s"})}).daemon()
	a := p.agent().shake()
	pid := p.untilReady("tools")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" { // it may run on for a moment
		waitFor(t, "the server to stand still", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && strings.Contains(string(stat), ") T ")
		})
	}
	// More than a pipe holds, and one call behind it.
	ids := []int{
		a.call("tools__effect", map[string]any{"token": strings.Repeat("x", 1<<20)}),
		a.call("tools__effect", map[string]any{"token": "y"}),
	}
	for _, x := range a.waitAll(ids...) {
		if x.code() != "timeout" {
			t.Errorf("a call: %.500s", x.raw)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if x := a.wait(a.effect("z", 0)); x.text() != "z" {
		t.Errorf("a call after it reads again: %s", x.raw)
	}
	a.rest()
}

// TestServerOddLists checks that a server whose tools can be listed is usable, however it
// answers when it is asked for its other lists, or if it does not answer.
func TestServerOddLists(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		`-list {"resources":7}`:          "the answer to resources/list makes no sense",
		`-list {}`:                       "",
		"-mute resources/templates/list": "resources/templates/list was not answered within 5s",
	} {
		if strings.HasPrefix(args, "-mute") && os.Getenv("HOLDLINE_LONG") == "" {
			continue // that takes as long
		}
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, strings.SplitN(args, " ", 2)...)}).
				daemon()
			a := p.agent().shake()
			if x := a.wait(a.call("odd__say",
				map[string]any{"text": `{"content":[{"type":"text","text":"here"}]}`})); x.text() != "here" {
				t.Errorf("a call: %s", x.raw)
			}
			if out := p.must("servers", "list"); !strings.Contains(out, want) ||
				want == "" && strings.Contains(out, "resources") {
				t.Errorf("servers list lacks %q:\n%s", want, out)
			}
			a.rest()
		})
	}
}

// TestServerForsakenAtStart checks that a server whose only agent disconnects while it
// starts does not count as failed.
func TestServerForsakenAtStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"slow": p.oddEntry(hosting{"scope": "shared"}, "-late", "1h")}).daemon()
	a := p.agent().shake()
	p.until("it comes up", func(s control.StatusAnswer) bool {
		return find(t, s, "slow").State == "starting" && len(s.Workers) == 1
	})
	a.rest()
	p.until("it rests", func(s control.StatusAnswer) bool {
		one := find(t, s, "slow")
		return one.State == "idle" && len(s.Workers) == 0
	})
	if out, _, _ := p.run("", "doctor", "-v"); regexp.MustCompile(`(?m)^(note|fail).*server slow`).MatchString(out) {
		t.Errorf("doctor:\n%s", out)
	}
}
