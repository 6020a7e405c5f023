package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/protocol/control"
)

// modernly adds the members that a modern request needs to its params, and more members to
// its _meta.
func modernly(params map[string]any, more ...any) map[string]any {
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
	for i := 0; i+1 < len(more); i += 2 {
		meta[more[i].(string)] = more[i+1]
	}
	params["_meta"] = meta
	return params
}

// said reads lines until the answer to id, and returns the data of the log messages before
// it.
func (a *agent) said(id int) []string {
	a.t.Helper()
	var data []string
	a.until(func(x *answer) bool {
		if x.Method == "notifications/message" {
			var m struct {
				Params struct{ Logger, Level, Data string }
			}
			decode(a.t, x.raw, &m)
			if m.Params.Logger != "tools" {
				a.t.Errorf("the logger of %s", x.raw)
			}
			data = append(data, m.Params.Level+" "+m.Params.Data)
		}
		return x.answers(id)
	})
	return data
}

// ping makes a request, and returns the data of the log messages before its answer.
func (a *agent) ping() []string {
	a.t.Helper()
	return a.said(a.begin("ping", map[string]any{}))
}

// log has the server log a message.
func (a *agent) log(level, token string) []string {
	a.t.Helper()
	return a.said(a.call("tools__log", map[string]any{"level": level, "token": token}))
}

func (a *agent) level(level string) {
	a.t.Helper()
	if x := a.ask("logging/setLevel", map[string]any{"level": level}); x.Error != nil {
		a.t.Errorf("setLevel %s: %s", level, x.raw)
	}
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestServerMessages checks that each session gets the log messages from its level on, and
// a modern one those of the requests that ask for them. The server is set to the most
// verbose level, again when its process is replaced, and a new daemon knows that level.
func TestServerMessages(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared", "-logs").login()
	a, b, c := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake(),
		p.agent("--identity", "c").shake()
	m := p.agent("--identity", "m")
	pid := p.pid(0)
	same(t, "before anybody has set a level", a.log("emergency", "x0"))
	a.level("warning")
	same(t, "a, of its own call", a.log("error", "x1"), "error x1")
	if p.effectsOf("level warning") != 1 {
		t.Errorf("the server was told warning %d times", p.effectsOf("level warning"))
	}
	b.level("debug")
	same(t, "b, of its own call", b.log("info", "x2"), "info x2")
	same(t, "b, of its own call", b.log("error", "x3"), "error x3")
	same(t, "a", a.ping(), "error x3")
	same(t, "c, which has set no level", c.ping())
	logs := func(level, token string, meta ...any) []string {
		return m.said(m.begin("tools/call", modernly(map[string]any{
			"name": "tools__log", "arguments": map[string]any{"level": level, "token": token},
		}, meta...)))
	}
	same(t, "a modern request that asks for nothing", logs("error", "m1"))
	same(t, "a modern request", logs("info", "m2", "io.modelcontextprotocol/logLevel", "info"), "info m2")
	same(t, "a modern request that asks for less", logs("info", "m3", "io.modelcontextprotocol/logLevel", "error"))
	same(t, "the call of another", c.log("alert", "c1"))
	same(t, "a modern client without a request that asks", logs("alert", "m4"))
	same(t, "b", b.ping(), "error m1", "info m2", "info m3", "alert c1", "alert m4")
	if x := m.ask("tools/call",
		modernly(map[string]any{"name": "tools__log"}, "io.modelcontextprotocol/logLevel", "loud")); x.Error == nil ||
		x.Error.Code != -32602 {
		t.Errorf("a level that is none: %s", x.raw)
	}

	b.rest()
	m.rest()
	p.until("two sessions", func(s control.StatusAnswer) bool { return len(s.Sessions) == 2 })
	p.untilNotes("level warning", 2)
	same(t, "a, since it began", a.log("alert", "x4"), "error m1", "alert c1", "alert m4", "alert x4")

	kill9(t, pid)
	p.pid(pid)
	same(t, "a, with the next daemon", a.log("alert", "x5"), "alert x5")
	same(t, "a, with the next daemon", a.log("info", "x6"))
	if levels := p.effectsOf("level warning") + p.effectsOf("level debug"); levels != 3 {
		t.Errorf("the server was told a level %d times, want 3", levels)
	}
	before := p.status()
	kill9(t, before.Workers[0].PID)
	p.until("the next process serves", func(s control.StatusAnswer) bool {
		next := child(s, "tools")
		return next != 0 && next != child(before, "tools")
	})
	same(t, "a, with the next process", a.log("alert", "x7"), "alert x7")
	if p.effectsOf("level warning") != 3 {
		t.Errorf("the next process was not told a level")
	}
	a.rest()
	c.rest()
}

// TestServerMessagesAtOnce checks that a request that asks for a more verbose level than
// all before gets all its messages: the server's level is set first.
func TestServerMessagesAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared", "-logs")
	p.daemon()
	m := p.agent("--identity", "m")
	for _, level := range []string{"notice", "debug"} {
		id := m.begin("tools/call", modernly(map[string]any{
			"name": "tools__log", "arguments": map[string]any{"level": level, "token": "x"},
		}, "io.modelcontextprotocol/logLevel", level))
		same(t, level, m.said(id), level+" x")
		if n := p.effectsOf("level " + level); n != 1 {
			t.Errorf("the server was told %s %d times", level, n)
		}
	}
	m.rest()
}

// TestServerMessagesNotOffered checks that a server without log messages never gets a level,
// and that clients are offered log messages only if a server has them.
func TestServerMessagesNotOffered(t *testing.T) {
	t.Parallel()
	for _, logs := range []bool{false, true} {
		var args []string
		if logs {
			args = append(args, "-logs")
		}
		p := newPlace(t).serve("shared", args...)
		p.daemon()
		a := p.agent("--identity", "a").shake()
		a.level("debug")
		a.log("error", "x")
		if told := p.effectsOf("level debug") == 1; told != logs {
			t.Errorf("logs %t, the server was told a level: %t", logs, told)
		}
		m, alone := p.agent("--identity", "m"), p.agent("--server", "tools")
		hello := map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
			"clientInfo": map[string]string{"name": "test", "version": "1"},
		}
		for name, x := range map[string]answer{
			"modern": m.ask("server/discover", modernly(map[string]any{})), "alone": alone.ask("initialize", hello),
		} {
			var got struct {
				Result struct {
					Capabilities map[string]json.RawMessage
				}
			}
			decode(t, x.raw, &got)
			if said := got.Result.Capabilities["logging"] != nil; said != logs {
				t.Errorf("logs %t, %s: %s", logs, name, x.raw)
			}
		}
		a.rest()
		m.rest()
		alone.rest()
	}
}

// news reads until wanted returns true. It returns the notifications about resources before
// that: the URI, and the subscription.
func (a *agent) news(wanted func(*answer) bool) []string {
	a.t.Helper()
	told := []string{}
	a.until(func(x *answer) bool {
		var m struct {
			Params struct {
				URI  string
				Meta map[string]any `json:"_meta"`
				Told struct {
					Resources []string `json:"resourceSubscriptions"`
				} `json:"notifications"`
			}
		}
		decode(a.t, x.raw, &m)
		words := m.Params.URI
		if id := m.Params.Meta["io.modelcontextprotocol/subscriptionId"]; id != nil {
			words += fmt.Sprintf(" for %v", id)
		}
		switch x.Method {
		case "notifications/resources/updated":
			told = append(told, words)
		case "notifications/subscriptions/acknowledged":
			told = append(told, fmt.Sprintf("%q%s", m.Params.Told.Resources, words))
		}
		return wanted(x)
	})
	return told
}

// newsBefore returns the notifications about resources before the answer to id.
func (a *agent) newsBefore(id int) []string {
	a.t.Helper()
	return a.news(func(x *answer) bool {
		return x.answers(id)
	})
}

// touch changes a resource, and returns the agent's own notifications.
func (a *agent) touch(uri string) []string {
	a.t.Helper()
	return a.newsBefore(a.call("tools__touch", map[string]any{"token": uri}))
}

// modernPing returns the notifications about resources that a modern agent has got so far.
func (a *agent) modernPing() []string {
	a.t.Helper()
	return a.newsBefore(a.begin("server/discover", modernly(map[string]any{})))
}

func (a *agent) pingNews() []string {
	a.t.Helper()
	return a.newsBefore(a.begin("ping", map[string]any{}))
}

func (a *agent) subscribe(method, uri string) answer {
	a.t.Helper()
	return a.ask("resources/"+method, map[string]any{"uri": uri})
}

// untilNotes waits until the ledger has n lines with this beginning.
func (p *place) untilNotes(prefix string, n int) {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); p.effectsOf(prefix) != n; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(p.effects())
			p.t.Fatalf("%d lines %q, want %d:\n%s", p.effectsOf(prefix), prefix, n, b)
		}
	}
}

// TestServerSubscriptions checks that sessions are notified of the resources that they have
// subscribed to and of no others. The server gets one subscription for all of them, again
// when its process is replaced, and an unsubscribe after the last of them.
func TestServerSubscriptions(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared", "-resources", "told").login()
	a, b, c := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake(),
		p.agent("--identity", "c").shake()
	m := p.agent("--identity", "m")
	pid := p.pid(0)
	for _, one := range []*agent{a, b, b} { // a second time does not count
		if x := one.subscribe("subscribe", "mem://a"); x.Error != nil {
			t.Fatalf("subscribe: %s", x.raw)
		}
	}
	listen := m.begin("subscriptions/listen", modernly(map[string]any{"notifications": map[string]any{
		"resourceSubscriptions": []string{"mem://a", "other://x"}, "promptsListChanged": true,
	}}))
	forM := fmt.Sprintf("mem://a for %d", listen)
	same(t, "the acknowledgement",
		m.news(func(x *answer) bool { return x.Method == "notifications/subscriptions/acknowledged" }),
		fmt.Sprintf("[%q] for %d", "mem://a", listen))
	same(t, "c, which has subscribed to nothing", c.touch("mem://a"))
	same(t, "a", a.touch("mem://b"), "mem://a")
	same(t, "b", b.pingNews(), "mem://a")
	same(t, "m", m.modernPing(), forM)
	if x := b.subscribe("unsubscribe", "mem://a"); x.Error != nil {
		t.Errorf("unsubscribe: %s", x.raw)
	}
	same(t, "a", a.touch("mem://a"), "mem://a")
	same(t, "b, which has ended its subscription", b.pingNews())
	same(t, "m", m.modernPing(), forM)

	kill9(t, pid)
	p.pid(pid)
	same(t, "a, with the next daemon", a.touch("mem://a"), "mem://a")
	same(t, "m, with the next daemon, which does not acknowledge again",
		m.news(func(x *answer) bool { return x.Method == "notifications/resources/updated" }), forM)
	same(t, "b, with the next daemon", b.pingNews())
	if n, m := p.effectsOf("subscribe mem://a"), p.effectsOf("unsubscribe"); n != 1 || m != 0 {
		t.Errorf("the server was told %d times to begin, %d times to stop", n, m)
	}
	kill9(t, p.status().Workers[0].PID)
	same(t, "a, with the next process",
		a.news(func(x *answer) bool { return x.Method == "notifications/resources/updated" }), "mem://a")
	same(t, "m, with the next process",
		m.news(func(x *answer) bool { return x.Method == "notifications/resources/updated" }), forM)
	same(t, "a, with the next process", a.touch("mem://a"), "mem://a")
	if n := p.effectsOf("subscribe mem://a"); n != 2 {
		t.Errorf("the server was told %d times", n)
	}
	a.subscribe("unsubscribe", "mem://a")
	a.touch("mem://a")
	same(t, "m alone", m.modernPing(), forM, forM)
	m.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, listen))
	p.untilNotes("unsubscribe mem://a", 1)
	b.subscribe("subscribe", "mem://b")
	b.rest()
	p.untilNotes("unsubscribe mem://b", 1)
	a.touch("mem://a")
	same(t, "m, which listens no more", m.modernPing())
	a.rest()
	c.rest()
	m.rest()
}

// TestServerSubscriptionsRefused checks that a subscription that is not possible is refused
// with the reason.
func TestServerSubscriptionsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"tools": p.toolsEntry(hosting{"scope": "shared"}, "-resources", "told"),
	}).daemon()
	a := p.agent("--identity", "a").shake()
	for _, c := range []struct {
		params map[string]any
		code   int
		words  string
	}{
		{map[string]any{"uri": "mem://fixed"}, -32602, "it never changes"}, // the server's own text
		{map[string]any{"uri": "other://x"}, -32602, "no hosted server offers the resource other://x"},
		{map[string]any{"uri": 7}, -32602, "params.uri must be a string"},
	} {
		if x := a.ask("resources/subscribe", c.params); x.Error == nil || x.Error.Code != c.code ||
			!strings.Contains(x.raw, c.words) {
			t.Errorf("%v: %s", c.params, x.raw)
		}
	}
	for i := range 256 {
		if x := a.subscribe("subscribe", fmt.Sprintf("mem://many/%d", i)); x.Error != nil {
			t.Fatalf("subscription %d: %s", i, x.raw)
		}
	}
	if x := a.subscribe("subscribe", "mem://many/256"); x.Error == nil ||
		!strings.Contains(x.raw, "resource_exhausted") {
		t.Errorf("one too many: %s", x.raw)
	}
	a.subscribe("unsubscribe", "mem://many/7")
	if x := a.subscribe("subscribe", "mem://many/256"); x.Error != nil {
		t.Errorf("when there is room again: %s", x.raw)
	}
	m := p.agent("--identity", "m")
	if x := m.ask("resources/subscribe", modernly(map[string]any{"uri": "mem://a"})); x.Error == nil ||
		x.Error.Code != -32601 {
		t.Errorf("of a modern client: %s", x.raw)
	}
	m.begin("subscriptions/listen",
		modernly(map[string]any{"notifications": map[string]any{"resourceSubscriptions": []string{
			"mem://a", "mem://fixed",
		}}}))
	same(t, "what is agreed to",
		m.news(func(x *answer) bool { return x.Method == "notifications/subscriptions/acknowledged" }),
		fmt.Sprintf("[%q] for %d", "mem://a", m.next))
	many := make([]string, 257)
	for i := range many {
		many[i] = fmt.Sprintf("mem://many/%d", i)
	}
	for _, uris := range []any{many, "mem://a"} {
		if x := m.ask("subscriptions/listen",
			modernly(map[string]any{"notifications": map[string]any{"resourceSubscriptions": uris}})); x.Error == nil {
			t.Errorf("listen: %s", x.raw)
		}
	}
	a.rest()
	m.rest()

	q := newPlace(t).serve("shared", "-resources", "untold")
	q.daemon()
	for _, flags := range [][]string{nil, {"--server", "tools"}} {
		d := q.agent(flags...).shake()
		if x := d.subscribe("subscribe", "mem://a"); x.Error == nil || x.Error.Code != -32601 ||
			!strings.Contains(x.raw, "tools does not tell changes") {
			t.Errorf("a server that tells no changes, %q: %s", flags, x.raw)
		}
		d.rest()
	}
}

// TestServerSubscriptionsForsaken checks that subscriptions of sessions that do not resume
// at the next daemon are ended, and no others.
func TestServerSubscriptionsForsaken(t *testing.T) {
	t.Parallel()
	p := newPlace(t).windows(3).serve("shared", "-resources", "told").login()
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	pid := p.pid(0)
	a.subscribe("subscribe", "mem://a")
	b.subscribe("subscribe", "mem://b")
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kill9(t, pid)
	p.pid(pid)
	_ = b.cmd.Process.Kill()
	p.untilNotes("unsubscribe mem://b", 1)
	if x := a.subscribe("subscribe", "mem://b"); x.Error != nil {
		t.Fatalf("subscribe: %s", x.raw)
	}
	if n, m := p.effectsOf("subscribe mem://a"), p.effectsOf("unsubscribe mem://a"); n != 1 || m != 0 {
		t.Errorf("the server was told %d times to begin, %d times to stop", n, m)
	}
	if n := p.effectsOf("subscribe mem://b"); n != 2 {
		t.Errorf("the server was told %d times to begin with what was ended", n)
	}
	a.rest()
}
