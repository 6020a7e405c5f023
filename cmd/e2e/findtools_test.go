package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/tool"
	"holdline/protocol/control"
)

// searcher returns identities in which "s" finds its tools by search, with more keys.
func searcher(more ...any) map[string]any {
	s := map[string]any{"expose": "search"}
	for i := 0; i+1 < len(more); i += 2 {
		s[more[i].(string)] = more[i+1]
	}
	return map[string]any{"s": s}
}

// inner begins a call of a server's tool through call_tool.
func (a *agent) inner(server, tool string, args map[string]any) int {
	return a.call("call_tool", map[string]any{"server": server, "tool": tool, "arguments": args})
}

// found is the result of find_tools.
type found struct {
	Matches, Searched, Servers int
	Tools                      []struct {
		Server, Tool, Name, Description string
		InputSchema                     json.RawMessage
		Score                           float64
	}
	Errors []struct{ Server, Error string }
}

// find calls find_tools, and returns its result.
func (a *agent) find(args map[string]any) found {
	a.t.Helper()
	args["render"] = "json"
	x := a.wait(a.call("find_tools", args))
	var f found
	if x.Result.IsError || x.Error != nil {
		a.t.Fatalf("find_tools %v: %s", args, x.raw)
	}
	decode(a.t, string(x.Result.StructuredContent), &f)
	return f
}

// names returns the exposed names of the tools that were found.
func (f found) names() []string {
	var out []string
	for _, t := range f.Tools {
		out = append(out, t.Name)
	}
	return out
}

// troubles returns the notes about servers, by server.
func (f found) troubles() map[string]string {
	out := map[string]string{}
	for _, e := range f.Errors {
		out[e.Server] = e.Error
	}
	return out
}

// TestFindTools checks that the search finds the tools that the caller may use and sees,
// the best first. It starts no server that is started by its first call, and names servers
// that cannot be reached beside the results.
func TestFindTools(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"tools":     p.toolsEntry(hosting{"scope": "shared", "deny": []string{"die"}}),
		"other":     p.toolsEntry(hosting{"scope": "shared"}),
		"secret":    p.toolsEntry(hosting{"scope": "shared"}),
		"elsewhere": p.toolsEntry(hosting{"scope": "shared", "projects": []string{filepath.Join(p.dir, "q")}}),
		"sleeps":    p.toolsEntry(hosting{"scope": "shared", "lazy": true}),
		"gone":      map[string]any{"command": filepath.Join(p.dir, "gone"), "holdline": hosting{"scope": "shared"}},
	}, "identities", searcher("deny", []string{"secret__*", "*__words", "other__big"})).daemon()
	a := p.agent("--identity", "s").shake()
	p.untilReady("tools")
	p.untilReady("other")

	f := a.find(map[string]any{"query": "does an effect"})
	if len(f.Tools) != 8 || f.Servers != 4 || f.Searched != 2*len(toolServerTools())-4 || f.Matches != f.Searched {
		t.Errorf("found %v of %d in %d servers: %v", f.names(), f.Searched, f.Servers, f.troubles())
	}
	// Both have the rare word, so the name decides.
	if first := f.names()[:2]; !slices.Equal(first, []string{"other__effect", "tools__effect"}) ||
		f.Tools[0].Score != f.Tools[1].Score || f.Tools[1].Score <= f.Tools[2].Score {
		t.Errorf("the best are %+v", f.Tools[:3])
	}
	if best := f.Tools[0]; best.Server != "other" || best.Tool != "effect" || best.Description != "does effect" ||
		!strings.Contains(string(best.InputSchema), `"token":{"type":"string"}`) {
		t.Errorf("the best is %+v", best)
	}
	troubles := f.troubles()
	if len(troubles) != 2 || !strings.Contains(troubles["gone"], "no such file") &&
		!strings.Contains(troubles["gone"], "was not found") || !strings.Contains(troubles["sleeps"], "start=true") {
		t.Errorf("troubles: %v", troubles)
	}
	if s := p.server("sleeps"); s.State != "idle" || s.Tools != nil {
		t.Errorf("the search has started a lazy server: %+v", s)
	}
	for _, query := range []string{"die", "words", "other big"} {
		for _, name := range a.find(map[string]any{"query": query, "limit": 50}).names() {
			if name == "tools__die" || strings.HasSuffix(name, "__words") || name == "other__big" ||
				strings.HasPrefix(name, "secret") || strings.HasPrefix(name, "elsewhere") {
				t.Errorf("%q finds %s", query, name)
			}
		}
	}
	for _, denied := range [][2]string{
		{"tools", "die"}, {"tools", "words"}, {"other", "big"}, {"secret", "look"}, {"elsewhere", "look"},
	} {
		x := a.wait(a.inner(denied[0], denied[1], map[string]any{"token": "no"}))
		want := "denied"
		if denied[0] == "elsewhere" { // not visible in this project
			want = "unknown_tool"
		}
		if x.code() != want || strings.Contains(x.text(), "secret,") || strings.Contains(x.text(), "words,") {
			t.Errorf("call_tool %v: %s", denied, x.raw)
		}
	}
	if p.effectsOf("look no") != 0 {
		t.Error("a tool that is denied was called")
	}

	if f := a.find(map[string]any{
		"query": "sleeps effect", "start": true, "limit": 1,
	}); !slices.Equal(f.names(), []string{"sleeps__effect"}) || f.troubles()["sleeps"] != "" {
		t.Errorf("started: %v, %v", f.names(), f.troubles())
	}
	p.untilReady("sleeps")
	p.must("servers", "stop", "sleeps")
	if f := a.find(map[string]any{"query": "sleeps effect", "limit": 1}); !slices.Equal(f.names(),
		[]string{"sleeps__effect"}) || !strings.Contains(f.troubles()["sleeps"], "holdline servers start sleeps") {
		t.Errorf("of a stopped server: %v, %v", f.names(), f.troubles())
	}
	x := a.wait(a.call("find_tools", map[string]any{"query": "effect", "limit": 1}))
	if lines := strings.Split(x.text(), "\n"); len(lines) != 6 ||
		lines[1] != "[1] server other, tool effect: does effect" || x.Result.StructuredContent != nil {
		t.Errorf("the text:\n%s", x.text())
	}
	if x := a.wait(a.call("find_tools", map[string]any{"query": " "})); x.code() != "invalid_input" ||
		!strings.Contains(x.text(), "query: must be a string of at most 1000 characters and that is not blank") {
		t.Errorf("a blank query: %s", x.raw)
	}
	a.rest()
}

// TestFindToolsRemembers checks that the next daemon finds the tools of a lazy server,
// which only a call starts.
func TestFindToolsRemembers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "lazy": true})},
		"identities", searcher())
	d := p.daemon()
	a := p.agent("--identity", "s").shake()
	if x := a.wait(a.inner("tools", "effect", map[string]any{"token": "one"})); x.text() != "one" {
		t.Errorf("the first call of a server that nobody has seen: %s", x.raw)
	}
	a.rest()
	p.until("nothing runs", func(s control.StatusAnswer) bool { return len(s.Workers) == 0 })
	kill9(t, d.Process.Pid)
	p.daemon()
	b := p.agent("--identity", "s").shake()
	if f := b.find(map[string]any{
		"query": "effect", "limit": 1,
	}); !slices.Equal(f.names(), []string{"tools__effect"}) || len(f.Errors) != 0 {
		t.Errorf("found %v, %v", f.names(), f.troubles())
	}
	if s := p.server("tools"); s.State != "idle" || len(p.status().Workers) != 0 {
		t.Errorf("the search has started: %+v", s)
	}
	if x := b.wait(b.inner("tools", "effect", map[string]any{"token": "two"})); x.text() != "two" ||
		p.server("tools").State != "ready" {
		t.Errorf("the call: %s", x.raw)
	}
	b.rest()
}

// TestExposeSearch checks that an identity with expose "search" lists no hosted tools, and
// that all others list them as before.
func TestExposeSearch(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	servers := map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"}, "-listing",
		filepath.Join(p.dir, "listing"))}
	p.configure(servers, "identities", searcher()).daemon()
	listed := func(a *agent) (own, hosted []string) {
		t.Helper()
		for _, one := range a.ask("tools/list", map[string]any{}).Result.Tools {
			if strings.HasPrefix(one.Name, "tools__") {
				hosted = append(hosted, one.Name)
			} else {
				own = append(own, one.Name)
			}
		}
		return own, hosted
	}
	a, b := p.agent("--identity", "s"), p.agent("--identity", "b").shake()
	x := a.ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}})
	if !strings.Contains(x.raw, "find_tools finds them") {
		t.Errorf("initialize: %s", x.raw)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	all := tool.OwnNames()
	p.untilReady("tools")
	if own, hosted := listed(a); !slices.Equal(own, all) || len(hosted) != 0 {
		t.Errorf("with search: %v, %v", own, hosted)
	}
	if x := a.ask("tools/list", map[string]any{}); strings.Contains(callToolOf(t, x.raw), `"readOnlyHint":true`) {
		t.Errorf("call_tool is read-only: %s", callToolOf(t, x.raw))
	}
	if own, hosted := listed(b); slices.Contains(own, "find_tools") || slices.Contains(own, "call_tool") ||
		len(hosted) != len(toolServerTools()) {
		t.Errorf("with all: %v, %v", own, hosted)
	}
	for _, name := range []string{"find_tools", "call_tool"} {
		if x := b.wait(b.call(name,
			map[string]any{"query": "x", "server": "tools", "tool": "effect"})); x.Error == nil ||
			x.Error.Code != -32602 {
			t.Errorf("%s of an identity that has all: %s", name, x.raw)
		}
	}
	// A tool that is not listed can still be called by its name.
	if x := a.wait(a.effect("direct", 0)); x.text() != "direct" {
		t.Errorf("by name: %s", x.raw)
	}
	one := p.agent("--identity", "s", "--server", "tools").shake()
	if x := one.ask("tools/list", map[string]any{}); len(x.Result.Tools) != len(toolServerTools()) ||
		strings.Contains(x.raw, "call_tool") {
		t.Errorf("an agent of one server: %s", x.raw)
	}
	one.rest()
	if out := p.must("config", "explain", "s", "tools__effect"); !strings.Contains(out,
		`identities.s.expose is "search"`) {
		t.Errorf("explain:\n%s", out)
	}
	if out, _, code := p.run("", "config", "explain", "s", "tools__efect"); code != exitFailure ||
		!strings.Contains(strings.Join(strings.Fields(out), " "), "did you mean tools__effect?") {
		t.Errorf("explain of a tool that the server does not have: exit %d\n%s", code, out)
	}
	// A change of a server's list does not change this identity's list; a change of what it
	// may use does.
	listed(a)
	listed(b)
	p.relist(map[string]any{"description": "does another effect"})
	b.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	p.status()
	a.begin("ping", map[string]any{})
	if x := a.until(func(*answer) bool { return true }); x.Method != "" {
		t.Errorf("an agent that searches is told of changes: %s", x.raw)
	}
	listed(b)
	p.configure(servers, "identities",
		map[string]any{"b": map[string]any{"expose": "search", "deny": []string{"call_tool"}}})
	p.must("reload")
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	if own, hosted := listed(a); len(own) != len(all)-2 || len(hosted) != len(toolServerTools()) {
		t.Errorf("after the reload: %v, %v", own, hosted)
	}
	if own, hosted := listed(b); len(own) != len(all)-1 || slices.Contains(own, "call_tool") || len(hosted) != 0 {
		t.Errorf("after the reload: %v, %v", own, hosted)
	}
	a.rest()
	b.rest()
}

// callToolOf returns the listing of call_tool in a list of tools.
func callToolOf(t *testing.T, raw string) string {
	t.Helper()
	var x struct {
		Result struct{ Tools []json.RawMessage }
	}
	decode(t, raw, &x)
	for _, one := range x.Result.Tools {
		if strings.Contains(string(one), `"name":"call_tool"`) {
			return string(one)
		}
	}
	t.Fatalf("call_tool is not listed: %s", raw)
	return ""
}

// TestCallTool checks that a call through call_tool is in all respects a call of the other
// tool: what the server gets and answers, budget, cache, circuit, progress, cancellation,
// log.
func TestCallTool(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "circuit_threshold": 1})}, "identities",
		searcher("budget", map[string]any{"calls": 9})).daemon()
	a := p.agent("--identity", "s").shake()

	// Calls 1 to 4: byte for byte, with and without arguments, in both eras.
	const modern = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	for args, meta := range map[string]string{`,"arguments":{ "b":1.0,"a":[9007199254740993,1E2],` +
		`"ü":"\u00fc<&" }`: `{"x":{"y":1.50}}`, ``: modern} {
		var got []string
		for i, params := range []string{
			`{"name":"tools__mirror","_meta":` + meta + args + `}`,
			`{"name":"call_tool","_meta":` + meta + `,"arguments":{"server":"tools","tool":"mirror"` + args + `}}`,
		} {
			a.next++
			a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, a.next, params))
			x := a.wait(a.next)
			got = append(got, strings.Replace(x.raw, fmt.Sprintf(`"id":%d,`, a.next), "", 1))
			if i == 1 && got[0] != got[1] || !strings.Contains(x.raw, `"odd": 1.0`) ||
				strings.Contains(x.raw, `"arguments":`) != (args != "") {
				t.Errorf("by way of call_tool:\n%s\ndirectly:\n%s", got[1], got[0])
			}
		}
	}

	// Call 5: progress arrives, and a cancellation is passed on.
	id := a.inner("tools", "effect", map[string]any{"token": "c", "ms": 60_000})
	a.until(func(x *answer) bool { return x.Method == "notifications/progress" })
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	p.untilEffect("cancelled c")

	// Calls 6 and 7: a cached answer serves both ways.
	a.wait(a.call("tools__fresh", map[string]any{"token": "f", "ttl": 600_000}))
	if x := a.wait(a.inner("tools", "fresh", map[string]any{"token": "f", "ttl": 600_000})); x.text() != "f" ||
		p.effectsOf("fresh f") != 1 {
		t.Errorf("the server was asked %d times: %s", p.effectsOf("fresh f"), x.raw)
	}

	// Call 8: a failure of the server opens its circuit. The name may also be the one
	// listed to other identities.
	if x := a.wait(a.inner("tools", "tools__die", map[string]any{})); x.code() != "outcome_unknown" ||
		!strings.Contains(x.raw, `"operation":"tools/call:tools__die"`) {
		t.Errorf("die: %s", x.raw)
	}
	if x := a.wait(a.inner("tools", "look", map[string]any{"token": "l"})); x.code() != "circuit_open" {
		t.Errorf("with an open circuit: %s", x.raw)
	}

	// Call 10 exceeds the budget.
	x := a.wait(a.inner("tools", "look", map[string]any{"token": "l"}))
	if x.code() != "budget_exceeded" || !strings.Contains(x.raw, `"limit":{"name":"calls","value":9,"spent":9}`) {
		t.Errorf("beyond the budget: %s", x.raw)
	}

	// None of these calls is made or charged.
	for _, test := range []struct {
		args map[string]any
		code string
		want string
	}{
		{
			map[string]any{"server": "tool", "tool": "look"},
			"unknown_tool",
			`no server "tool" is hosted here; there is tools`,
		},
		{
			map[string]any{"server": "tools", "tool": "loo"},
			"unknown_tool",
			`server tools offers no tool "loo"; there are look, `,
		},
		{map[string]any{"tool": "look"}, "invalid_input", "server: is required"},
		{map[string]any{"server": "tools", "tool": "look", "token": "l"}, "invalid_input", "belong into arguments"},
		{
			map[string]any{"server": "tools", "tool": "look", "arguments": "{}"},
			"invalid_input",
			"arguments: must be an object",
		},
	} {
		if x := a.wait(a.call("call_tool", test.args)); x.code() != test.code ||
			!strings.Contains(x.text(), test.want) {
			t.Errorf("%v: %s", test.args, x.raw)
		}
	}
	var counted struct {
		Telemetry struct {
			Methods []struct {
				Method       string
				RequestCount int `json:"request_count"`
			}
		}
	}
	decode(t, p.must("telemetry", "--json"), &counted)
	counts := map[string]int{}
	for _, m := range counted.Telemetry.Methods {
		counts[m.Method] = m.RequestCount
	}
	if counts["tools/call:tools__look"] != 2 || counts["tools/call:tools__mirror"] != 4 ||
		counts["tools/call:call_tool"] != 5 {
		t.Errorf("counted: %v", counts)
	}
	var lines []string
	for _, line := range p.callLog(9) {
		lines = append(lines, strings.Join([]string{line.Server, line.Tool, line.Cache, line.Kind}, " "))
	}
	// A call is logged after its answer was sent, so the next call may be logged before it.
	if got, want := slices.Sorted(slices.Values(lines[4:9])), []string{
		"tools tools__die  outcome_unknown", "tools tools__effect  cancelled", "tools tools__fresh hit ",
		"tools tools__fresh miss ",
		"tools tools__look miss circuit_open",
	}; !slices.Equal(got, want) {
		t.Errorf("the call log has %q, want %q", got, want)
	}
	a.rest(id)
}

// TestCallToolOutlivesDaemon kills the daemon during calls through call_tool; the last time
// the next daemon's configuration does not offer call_tool any more. Each call has one
// effect and one answer.
func TestCallToolOutlivesDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	servers := map[string]any{"tools": p.toolsEntry(hosting{"scope": "project"})}
	p.configure(servers, "identities", searcher())
	a := p.agent("--identity", "s").shake()
	pid := p.pid(0)
	a.wait(a.inner("tools", "effect", map[string]any{"token": "warm"}))
	worker := p.status().Workers[0]
	var ids []int
	for i := range 10 {
		ids = append(ids, a.inner("tools", "effect", map[string]any{"token": fmt.Sprint("e", i), "ms": 1000 + 20*i}))
	}
	for i := range ids { // a call that was not begun would be refused at the end
		p.untilEffect(fmt.Sprint("begin e", i))
	}
	for i := range 3 {
		if i == 2 {
			p.configure(servers)
		}
		kill9(t, pid)
		pid = p.pid(pid)
	}
	answers := a.waitAll(ids...)
	for i, id := range ids {
		token := fmt.Sprint("e", i)
		if x := answers[id]; x.Result.IsError || x.Error != nil || x.text() != token {
			t.Errorf("%s: %s", token, x.raw)
		}
		if begun, ended := p.effectsOf("begin "+token), p.effectsOf("end "+token); begun != 1 || ended != 1 {
			t.Errorf("%s: begun %d times, ended %d times", token, begun, ended)
		}
	}
	if s := p.status(); len(s.Workers) != 1 || s.Workers[0].ChildPID != worker.ChildPID {
		t.Errorf("workers %+v, before %+v", s.Workers, worker)
	}
	if x := a.wait(a.inner("tools", "effect", map[string]any{"token": "late"})); x.Error == nil ||
		p.effectsOf("begin late") != 0 {
		t.Errorf("a call when it is not offered: %s", x.raw)
	}
	a.rest(ids...)
}

// TestFindToolsWaits checks that a server that does not answer is named after a while,
// beside the results of the others.
func TestFindToolsWaits(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOLDLINE_LONG") == "" {
		t.Skip("HOLDLINE_LONG=1 is not set: it takes eight seconds")
	}
	p := newPlace(t).firstList("8s")
	mute := map[string]any{"command": "sleep", "args": []string{"600"}, "holdline": hosting{"scope": "shared"}}
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"}), "mute": mute, "dumb": mute},
		"identities", searcher()).daemon()
	a := p.agent("--identity", "s").shake()
	p.untilReady("tools")
	begin := time.Now()
	f := a.find(map[string]any{"query": "effect", "limit": 1})
	if !slices.Equal(f.names(), []string{"tools__effect"}) || len(f.Errors) != 2 ||
		!strings.Contains(f.troubles()["mute"], "has not said within 8s") {
		t.Errorf("found %v, %v", f.names(), f.troubles())
	}
	if took := time.Since(begin); took < 5*time.Second {
		t.Errorf("it took %v", took)
	}
	a.rest()
}

// TestCallToolAsks checks that a question that a server asks during a call through
// call_tool is answered in the next call, also by the next daemon.
func TestCallToolAsks(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "session"})}, "identities", searcher())
	m := p.agent("--identity", "s")
	m.modernPing()
	pid := p.pid(0)
	begin := func(more map[string]any) int {
		t.Helper()
		params := modernly(map[string]any{
			"name":      "call_tool",
			"arguments": map[string]any{"server": "tools", "tool": "ask", "arguments": elicit("q")},
		},
			"io.modelcontextprotocol/clientCapabilities", map[string]any{"elicitation": map[string]any{}})
		maps.Copy(params, more)
		return m.begin("tools/call", params)
	}
	in := m.required(begin(nil))
	kill9(t, pid)
	p.pid(pid)
	if x := m.wait(begin(in.with(`{"action":"accept","content":{"x":1.0}}`))); x.text() !=
		`q {"action":"accept","content":{"x":1.0}}` || p.effectsOf("asked q") != 1 {
		t.Errorf("asked %d times: %s", p.effectsOf("asked q"), x.raw)
	}
	m.rest()
}
