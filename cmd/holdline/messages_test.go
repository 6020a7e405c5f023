package main

import (
	"encoding/json"
	"slices"
	"testing"

	"holdline/protocol/control"
)

// modernly are the members of a request's params with what a modern one carries,
// and more members of its _meta.
func modernly(params map[string]any, more ...any) map[string]any {
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
	for i := 0; i+1 < len(more); i += 2 {
		meta[more[i].(string)] = more[i+1]
	}
	params["_meta"] = meta
	return params
}

// said reads until the answer to id and returns the data of the log messages
// before it.
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
		n, ok := x.ID.(float64)
		return ok && int(n) == id && x.Method == ""
	})
	return data
}

// ping is a request whose answer comes behind all that was said before.
func (a *agent) ping() []string {
	a.t.Helper()
	return a.said(a.begin("ping", map[string]any{}))
}

// log has the server say something.
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

// TestServerMessages: each session gets the log messages from the level on that
// it has set, a modern one those of the requests that ask for them; the server
// is told the most verbose level, again when it is another process, and a new
// daemon knows what it was told.
func TestServerMessages(t *testing.T) {
	p := newPlace(t).serve("shared", "-logs").login()
	a, b, c := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake(), p.agent("--identity", "c").shake()
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
	if x := m.ask("tools/call", modernly(map[string]any{"name": "tools__log"}, "io.modelcontextprotocol/logLevel", "loud")); x.Error == nil || x.Error.Code != -32602 {
		t.Errorf("a level that is none: %s", x.raw)
	}

	b.rest()
	m.rest()
	p.until("two sessions", func(s control.StatusAnswer) bool { return len(s.Sessions) == 2 })
	for p.effectsOf("level warning") != 2 { // its calls are no cause for it
		a.log("debug", "w")
	}
	same(t, "a, since it began", a.log("alert", "x4"), "error m1", "alert c1", "alert m4", "alert x4")

	kill9(t, pid)
	p.pid(pid)
	same(t, "a, with the next daemon", a.log("alert", "x5"), "alert x5")
	same(t, "a, with the next daemon", a.log("info", "x6"))
	if levels := p.effectsOf("level warning") + p.effectsOf("level debug"); levels != 3 {
		t.Errorf("the server was told a level %d times, want 3", levels)
	}
	kill9(t, p.status().Workers[0].PID)
	p.untilReady("tools")
	same(t, "a, with the next process", a.log("alert", "x7"), "alert x7")
	if p.effectsOf("level warning") != 3 {
		t.Errorf("the next process was not told a level")
	}
	a.rest()
	c.rest()
}

// TestServerMessagesNotOffered: a server that sends no log messages is told no
// level, and clients are told what there is.
func TestServerMessagesNotOffered(t *testing.T) {
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
		hello := map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "test", "version": "1"}}
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
