package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// oddEntry returns the odd server as an entry of the configuration.
func (p *place) oddEntry(h hosting, args ...string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "oddserver"), "args": append([]string{"-ledger", p.effects()}, args...),
		"holdline": h,
	}
}

// result returns the result of an answer, byte by byte.
func (x answer) result(tb testing.TB, id int) string {
	tb.Helper()
	r, ok := strings.CutPrefix(x.raw, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":`, id))
	if !ok {
		tb.Fatalf("no result of %d: %.300s", id, x.raw)
	}
	return strings.TrimSuffix(r, "}")
}

// TestLossless checks that a server's answers reach the client as they were spelled,
// however unusual and long.
func TestLossless(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	for what, result := range map[string]string{
		"numbers":         `{"content":[],"structuredContent":{"a":1e400,"b":12345678901234567890,"c":1.0,"d":-0,"e":1E+2}}`,
		"escapes":         `{"content":[{"type":"text","text":"\u0041\/\u2028<&>"}]}`,
		"duplicate keys":  `{"content":[],"x":1,"x":2,"y":{"z":1,"z":null}}`,
		"unknown members": `{"content":[{"type":"never heard of","":null}],"_meta":{"k":[{}]},"isError":false,"task":{"id":7}}`,
		"lone surrogates": `{"content":[{"type":"text","text":"\ud800 \udc00\ud800"}],"\udfff":1}`,
		"white space":     `{ "content" : [ ] ,	"a":{ } }`,
		"nested deeply": `{"content":[],"a":` + strings.Repeat(`[{"b":`, 2000) + "0" +
			strings.Repeat("}]", 2000) + "}",
	} {
		id := a.call("odd__say", map[string]any{"text": result})
		if got := a.wait(id).result(t, id); got != result {
			t.Errorf("%s: %.300s, want %.300s", what, got, result)
		}
	}
	const size = 20 << 20
	id := a.call("odd__big", map[string]any{"bytes": size})
	want := `{"content":[{"type":"text","text":"` + strings.Repeat("y", size) + `"}]}`
	if got := a.wait(id).result(t, id); got != want {
		t.Errorf("of %d bytes came %d: %.100s", len(want), len(got), got)
	}
	a.rest(id)
}

// TestServerProbe checks that a server that exits at the question for its era, or does not
// answer it, is used as a legacy server, and never asked again.
func TestServerProbe(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"-leaves", "-silent"} {
		t.Run(how, func(t *testing.T) {
			p := newPlace(t)
			p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, how)})
			d := p.daemon()
			a := p.agent().shake()
			said := func() { // by the present agent
				t.Helper()
				const words = `{"content":[{"type":"text","text":"here"}]}`
				if x := a.wait(a.call("odd__say", map[string]any{"text": words})); x.text() != "here" ||
					p.effectsOf("server/discover") != 1 {
					t.Errorf("asked %d times: %s", p.effectsOf("server/discover"), x.raw)
				}
			}
			said()
			if s := p.server("odd"); s.Restarts != 0 || s.LastFault != nil || s.State != "ready" {
				t.Errorf("the question counts as a failure: %+v", s)
			}
			another := func(than int) (pid int) {
				kill9(t, than)
				p.until("another process serves", func(s control.StatusAnswer) bool {
					pid = child(s, "odd")
					return pid != 0 && pid != than
				})
				return pid
			}
			pid := another(p.untilReady("odd"))
			said()
			kill9(t, d.Process.Pid)
			p.daemon()
			said()
			another(pid) // in a daemon that has never asked
			said()
			a.rest()
			p.must("stop", "--all")
			p.daemon() // finds no process, and knows the era all the same
			a = p.agent().shake()
			said()
			a.rest()
		})
	}
}

// TestServerPages checks that of an endless list the entries within the limit are listed,
// with a note that there are more.
func TestServerPages(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, "-pages")}).daemon()
	a := p.agent().shake()
	p.untilReady("odd")
	x := a.ask("tools/list", map[string]any{})
	if !strings.Contains(x.raw, `"odd__t64"`) || strings.Contains(x.raw, `"odd__t65"`) ||
		p.effectsOf("tools/list") != 64 {
		t.Errorf("asked for %d pages: %.300s", p.effectsOf("tools/list"), x.raw)
	}
	if out := p.must("servers", "list"); !strings.Contains(out, "tools/list has more than 64 pages") {
		t.Errorf("servers list:\n%s", out)
	}
	a.rest()
}

// TestServerClash checks that of two servers with one resource the first by name has it,
// with a note, and that the other one's can be had in a session for that server. Prompts of
// one name do not clash.
func TestServerClash(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"a": p.oddEntry(hosting{"scope": "shared"}, "-name", "A"),
		"b": p.oddEntry(hosting{"scope": "shared"}, "-name", "B"),
	}).daemon()
	x := p.agent().shake()
	p.untilReady("a")
	p.untilReady("b")
	if l := x.ask("resources/list", map[string]any{}); strings.Count(l.raw, `"uri":"mem://one"`) != 1 {
		t.Errorf("resources/list: %s", l.raw)
	}
	if r := x.ask("resources/read", map[string]any{"uri": "mem://one"}); !strings.Contains(r.raw, "resource of A") {
		t.Errorf("resources/read: %s", r.raw)
	}
	if l := x.ask("prompts/list", map[string]any{}); !strings.Contains(l.raw, `"a__greet"`) ||
		!strings.Contains(l.raw, `"b__greet"`) {
		t.Errorf("prompts/list: %s", l.raw)
	}
	for name, want := range map[string]string{"a__greet": "prompt of A", "b__greet": "prompt of B"} {
		if r := x.ask("prompts/get", map[string]any{"name": name}); !strings.Contains(r.raw, want) {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
	var list []listedServer
	waitFor(t, "the note of the server that comes second", func() bool {
		list = nil
		decode(t, p.must("servers", "list", "--json"), &list)
		return len(list) == 2 && len(list[1].Live.Notes) > 0
	})
	if len(list[0].Live.Notes) != 0 || len(list[1].Live.Notes) != 1 {
		t.Fatalf("servers list --json: %+v", list)
	}
	if out := p.must("servers", "list"); !strings.Contains(out, "get 1 resource of server a: mem://one") ||
		!strings.Contains(out, "holdline mcp-stdio --server b") {
		t.Errorf("servers list:\n%s", out)
	}
	b := p.agent("--server", "b").shake()
	if r := b.ask("resources/read", map[string]any{"uri": "mem://one"}); !strings.Contains(r.raw, "resource of B") {
		t.Errorf("resources/read of b alone: %s", r.raw)
	}
	x.rest()
	b.rest()
}

// TestServerCacheShared checks that a public answer serves all sessions, that equal calls
// at one time are made once, and that a server that announces a change, or is reloaded, is
// asked again.
func TestServerCacheShared(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"})}).daemon()
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	const public, private = `{"content":[],"ttlMs":600000,"cacheScope":"public"}`, `{"content":[],"ttlMs":600000}`
	keep := func(who *agent, text string, want int) {
		t.Helper()
		id := who.call("odd__keep", map[string]any{"text": text})
		if got := who.wait(id).result(t, id); got != text || p.effectsOf("keep") != want {
			t.Errorf("the server was asked %d times, want %d: %s", p.effectsOf("keep"), want, got)
		}
	}
	keep(a, public, 1)
	keep(b, public, 1)
	keep(a, private, 2)
	keep(b, private, 3)
	a.wait(a.call("odd__turn", nil))
	p.until("nothing is kept", func(s control.StatusAnswer) bool { return find(t, s, "odd").CacheCount == 0 })
	keep(b, public, 4)
	p.must("servers", "reload", "odd")
	keep(a, public, 5)
	first := a.call("odd__keep", map[string]any{"text": private})
	second := a.call("odd__keep", map[string]any{"text": private})
	a.waitAll(first, second)
	if n := p.effectsOf("keep"); n != 6 {
		t.Errorf("two calls at one time were %d", n-5)
	}
	a.rest()
	b.rest()
}

// TestServersOfManySessions checks that ten sessions of a project share one process of each
// of its servers.
func TestServersOfManySessions(t *testing.T) {
	t.Parallel()
	const sessions, servers = 10, 5
	p := newPlace(t)
	entries := map[string]any{}
	for i := range servers {
		entries[fmt.Sprint("s", i)] = p.toolsEntry(hosting{"scope": "project"})
	}
	p.configure(entries).daemon()
	agents := make([]*agent, sessions)
	for i := range agents {
		agents[i] = p.agent("--identity", fmt.Sprint("i", i)).shake()
	}
	for i, a := range agents {
		for s := range servers {
			token := fmt.Sprintf("%d-%d", i, s)
			if x := a.wait(a.call(fmt.Sprintf("s%d__effect", s), map[string]any{"token": token})); x.text() != token {
				t.Errorf("call %s: %s", token, x.raw)
			}
		}
	}
	st := p.status()
	if len(st.Workers) != servers || len(st.Sessions) != sessions {
		t.Errorf("%d processes for %d sessions: %+v", len(st.Workers), len(st.Sessions), st.Workers)
	}
	for i := range servers {
		if s := find(t, st, fmt.Sprint("s", i)); s.Processes != 1 || s.RefCount != sessions || s.Restarts != 0 {
			t.Errorf("%+v", s)
		}
	}
	b, err := os.ReadFile(p.effects())
	if err != nil {
		t.Fatal(err)
	}
	pids := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		pids[strings.Fields(line)[2]] = true
	}
	if len(pids) != servers {
		t.Errorf("%d processes had effects", len(pids))
	}
	var list []listedServer
	decode(t, p.must("servers", "list", "--json"), &list)
	for _, one := range list {
		if one.Live == nil || one.Live.Processes != 1 || one.Live.RefCount != sessions {
			t.Errorf("servers list: %+v", one.Live)
		}
	}
	for _, a := range agents {
		a.rest()
	}
}

// TestServerCallsOutliveDaemons kills three daemons during the slow calls of four sessions.
// Each call has one effect and one answer.
func TestServerCallsOutliveDaemons(t *testing.T) {
	t.Parallel()
	const sessions, calls = 4, 10
	p := newPlace(t).serve("project").login()
	agents := make([]*agent, sessions)
	ids := make([][]int, sessions)
	for i := range agents {
		agents[i] = p.agent("--identity", fmt.Sprint("i", i)).shake()
	}
	pid := p.pid(0)
	agents[0].wait(agents[0].effect("warm", 0))
	server := p.status().Workers[0].ChildPID
	for i, a := range agents {
		for k := range calls {
			ids[i] = append(ids[i], a.effect(fmt.Sprintf("e%d-%d", i, k), 400+50*k))
		}
	}
	for i := range sessions {
		p.untilEffect(fmt.Sprintf("begin e%d-%d", i, calls-1))
	}
	for range 3 {
		kill9(t, pid)
		pid = p.pid(pid)
	}
	for i, a := range agents {
		answers := a.waitAll(ids[i]...)
		for k, id := range ids[i] {
			token := fmt.Sprintf("e%d-%d", i, k)
			if begun, ended := p.effectsOf("begin "+token), p.effectsOf("end "+token); answers[id].text() != token ||
				begun != 1 || ended != 1 {
				t.Errorf("%s: begun %d times, ended %d times: %s", token, begun, ended, answers[id].raw)
			}
		}
	}
	if s := p.status(); len(s.Workers) != 1 || s.Workers[0].ChildPID != server {
		t.Errorf("the server was %d and is %+v", server, s.Workers)
	}
	for i, a := range agents {
		a.rest(ids[i]...)
	}
}
