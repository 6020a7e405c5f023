package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// ownTools returns the tools of the server own that a session lists and that not all of its
// processes have.
func (a *agent) ownTools() []string {
	a.t.Helper()
	all := map[string]bool{}
	for _, tool := range toolServerTools("turn") {
		all["own__"+tool.(map[string]any)["name"].(string)] = true
	}
	names := []string{}
	for _, tool := range a.ask("tools/list", map[string]any{}).Result.Tools {
		if name, ok := strings.CutPrefix(tool.Name, "own__"); ok && !all[tool.Name] {
			names = append(names, name)
		}
	}
	return names
}

// resources returns the URIs that a session lists.
func (a *agent) resources() []string {
	a.t.Helper()
	var list struct {
		Result struct{ Resources []struct{ URI string } }
	}
	decode(a.t, a.ask("resources/list", map[string]any{}).raw, &list)
	uris := []string{}
	for _, one := range list.Result.Resources {
		uris = append(uris, one.URI)
	}
	return uris
}

// untilLists waits until a session lists these tools of its own process, and returns the
// resource that has that process's pid.
func (a *agent) untilLists(tools ...string) string {
	a.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		got, uris := a.ownTools(), a.resources()
		if slices.Equal(got, tools) && len(uris) == 2 {
			return uris[1]
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("listed are %q, %q, wanted are %q", got, uris, tools)
		}
	}
}

// toldChanged returns how often a session was notified so far that its list of tools has
// changed.
func (a *agent) toldChanged() int {
	a.t.Helper()
	n, id := 0, a.begin("ping", map[string]any{})
	a.until(func(x *answer) bool {
		if x.Method == "notifications/tools/list_changed" {
			n++
		}
		return x.answers(id)
	})
	return n
}

// untilTold waits until a session is notified that its list of tools has changed.
func (a *agent) untilTold() {
	a.t.Helper()
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
}

// turn calls a tool that has its server list another one. It waits for the answer and for
// the notification of the list, whichever comes first.
func (a *agent) turn(tool, token string) {
	a.t.Helper()
	id, answered, told := a.call(tool, map[string]any{"token": token}), false, false
	a.until(func(x *answer) bool {
		answered = answered || x.answers(id)
		told = told || x.Method == "notifications/tools/list_changed"
		return answered && told
	})
}

// pidOf returns the pid in the URI that a process has for itself.
func pidOf(t *testing.T, uri string) int {
	t.Helper()
	var pid int
	if _, err := fmt.Sscanf(uri, "mem://pid/%d", &pid); err != nil {
		t.Fatalf("%q: %v", uri, err)
	}
	return pid
}

// shakeAble makes the handshake of a client that can sample.
func (a *agent) shakeAble() *agent {
	a.t.Helper()
	a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{"sampling": map[string]any{}},
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	})
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

// reads returns which process has answered the read of a resource; "" if it was refused.
func (a *agent) reads(uri string) string {
	a.t.Helper()
	var read struct {
		Result struct{ Contents []struct{ Text string } }
	}
	decode(a.t, a.ask("resources/read", map[string]any{"uri": uri}).raw, &read)
	if len(read.Result.Contents) == 0 {
		return ""
	}
	return read.Result.Contents[0].Text
}

// TestServerListsOfSessions checks a server with a process for each session. A session
// lists, finds and calls what its own process lists, and is notified of nothing else. A
// call of a tool that no other process has outlives the daemon, and is answered honestly if
// the process dies with it.
func TestServerListsOfSessions(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"own": p.toolsEntry(hosting{"scope": "session"}, "-own")}, "identities", searcher())
	a := p.agent("--identity", "a").shakeAble()
	daemon := p.pid(0)
	ofA := a.untilLists("sample")
	b := p.agent("--identity", "b").shake()
	ofB := b.untilLists()
	s := p.agent("--identity", "s").shake()
	s.wait(s.inner("own", "effect", map[string]any{"token": "warm"})) // it has its process now
	if uris := a.resources(); !slices.Contains(uris, ofA) || slices.Contains(uris, ofB) {
		t.Errorf("a lists %q, of %s and %s", uris, ofA, ofB)
	}
	if got, want := a.reads(ofA), fmt.Sprint("of ", pidOf(t, ofA)); got != want {
		t.Errorf("a reads %q, want %q", got, want)
	}
	if got := b.reads(ofA); got != "" {
		t.Errorf("b reads what a's process lists: %q", got)
	}
	if x := b.wait(b.call("own__sample", map[string]any{"token": "b"})); x.Error == nil || x.Error.Code != -32602 {
		t.Errorf("b calls what a's process lists: %s", x.raw)
	}
	if x := s.wait(s.inner("own", "sample", map[string]any{"token": "s"})); x.code() != "unknown_tool" {
		t.Errorf("call_tool of what a's process lists: %s", x.raw)
	}
	if got := s.find(map[string]any{"query": "sample"}).names(); slices.Contains(got, "own__sample") {
		t.Errorf("find_tools of what a's process lists: %q", got)
	}
	if n := p.effectsOf("begin b") + p.effectsOf("begin s"); n != 0 {
		t.Errorf("%d of these calls were made", n)
	}

	a.toldChanged()
	b.toldChanged()
	a.turn("own__turn", "grown")
	a.untilLists("grown", "sample")
	s.wait(s.inner("own", "turn", map[string]any{"token": "other"})) // this list is remembered for the server
	if n, got := b.toldChanged(), b.ownTools(); n != 0 || len(got) != 0 {
		t.Errorf("b was told %d times, and lists %q", n, got)
	}

	long := a.call("own__grown", map[string]any{"token": "long", "ms": 1500})
	p.untilEffect("begin long")
	kill9(t, daemon)
	daemon = p.pid(daemon)
	if got := b.untilLists(); got != ofB {
		t.Errorf("b's process is %s, was %s", got, ofB)
	}
	if x := a.wait(long); x.text() != "long" || p.effectsOf("end long") != 1 {
		t.Errorf("the call: %s", x.raw)
	}
	if got := a.untilLists("grown", "sample"); got != ofA {
		t.Errorf("a's process is %s, was %s", got, ofA)
	}
	if x := a.wait(a.call("own__grown", map[string]any{"token": "after"})); x.text() != "after" {
		t.Errorf("a call with the next daemon: %s", x.raw)
	}

	lost := a.call("own__grown", map[string]any{"token": "lost", "ms": 60_000})
	p.untilEffect("begin lost")
	workers := p.status().Workers
	i := slices.IndexFunc(workers, func(w control.Worker) bool { return w.ChildPID == pidOf(t, ofA) })
	if i < 0 {
		t.Fatalf("no worker of %s: %+v", ofA, workers)
	}
	kill9(t, daemon)
	kill9(t, workers[i].PID)
	if x := a.wait(lost); x.code() != "outcome_unknown" {
		t.Errorf("a call whose process died with the daemon: %s", x.raw)
	}
	if got := b.untilLists(); got != ofB {
		t.Errorf("b's process is %s, was %s", got, ofB)
	}
	if got := a.untilLists("sample"); got == ofA {
		t.Errorf("a's process is still %s", got)
	}
	a.rest(long, lost)
	b.rest()
	s.rest()
}

// TestServerListsOfProjects checks the same for two projects, whose sessions share a
// process each. A cacheable answer of one is not given to the other.
func TestServerListsOfProjects(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"own": p.toolsEntry(hosting{"scope": "project"}, "-own")})
	other := filepath.Join(p.dir, "q")
	if err := os.MkdirAll(filepath.Join(other, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, a2 := p.agent().shake(), p.agent().shake()
	daemon := p.pid(0)
	cmd := p.command("mcp-stdio", "--server", "own")
	cmd.Dir = other
	b := p.agentOf(cmd).shake()
	inA, inB := "mem://in/"+filepath.Base(p.project), "mem://in/q"
	waitFor(t, "each project's list", func() bool {
		return slices.Contains(a.resources(), inA) && slices.Contains(b.resources(), inB)
	})
	check := func(when string) {
		t.Helper()
		for _, c := range []struct {
			who       *agent
			has, lack string
		}{{a, inA, inB}, {a2, inA, inB}, {b, inB, inA}} {
			if got := c.who.resources(); !slices.Contains(got, c.has) || slices.Contains(got, c.lack) {
				t.Errorf("%s: listed are %q, of %s and %s", when, got, c.has, c.lack)
			}
		}
	}
	check("at first")
	for _, one := range []*agent{a, a2, b} {
		one.ask("tools/list", map[string]any{})
		one.toldChanged()
	}
	a.turn("own__turn", "grown")
	a2.untilTold()
	a.untilLists("grown")
	a2.untilLists("grown")
	b.turn("turn", "other")
	if n := a.toldChanged() + a2.toldChanged(); n != 0 {
		t.Errorf("the first project's were told %d times of what the other's process lists", n)
	}
	if x := b.wait(b.call("grown", map[string]any{"token": "b"})); x.Error == nil || p.effectsOf("begin b") != 0 {
		t.Errorf("a call of what the other project's process lists: %s", x.raw)
	}
	if out := p.must("servers", "tools", "own"); !strings.Contains(out, "grown") || strings.Contains(out, "other") {
		t.Errorf("servers tools, in the first project:\n%s", out)
	}
	for _, tool := range []string{"own__fresh", "own__fresh"} {
		a.wait(a.call(tool, map[string]any{"token": "f", "ttl": 600_000}))
	}
	b.wait(b.call("fresh", map[string]any{"token": "f", "ttl": 600_000}))
	if n := p.effectsOf("fresh f"); n != 2 {
		t.Errorf("two projects' processes were asked %d times in all, want 2", n)
	}

	long := a2.call("own__grown", map[string]any{"token": "long", "ms": 1500})
	p.untilEffect("begin long")
	kill9(t, daemon)
	p.pid(daemon)
	if x := a2.wait(long); x.text() != "long" || p.effectsOf("end long") != 1 {
		t.Errorf("the call: %s", x.raw)
	}
	check("with the next daemon")
	a.untilLists("grown")
	for _, one := range []*agent{a, a2, b} {
		one.rest(long)
	}
}

// TestServerListsUnlisted checks that a session whose process does not run yet gets the
// list that another session's process listed last, with a notification if that changes.
// Once its own process has listed, it is notified and gets that list.
func TestServerListsUnlisted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"own": p.toolsEntry(hosting{"scope": "session", "lazy": true}, "-own")}).daemon()
	a := p.agent().shakeAble()
	ofA := a.untilLists("sample")
	b := p.agent().shake()
	if got := b.untilLists("sample"); got != ofA || len(p.status().Workers) != 1 {
		t.Errorf("b lists %s, of a process of its own?", got)
	}
	a.wait(a.call("own__turn", map[string]any{"token": "grown"}))
	b.untilTold()
	if got := b.untilLists("grown", "sample"); got != ofA {
		t.Errorf("b lists %s, of a process of its own?", got)
	}
	b.begin("tools/call", map[string]any{"name": "own__look", "arguments": map[string]any{"token": "l"}})
	b.untilTold()
	if got := b.untilLists(); got == ofA {
		t.Errorf("b lists %s, which is a's", got)
	}
	if got := a.untilLists("grown", "sample"); got != ofA {
		t.Errorf("a lists %s", got)
	}
	a.rest()
	b.rest()
}

// TestServerListsChangedInAbsence checks that if a process announces a changed list while
// no daemon runs, the next daemon asks for it.
func TestServerListsChangedInAbsence(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"own": p.toolsEntry(hosting{"scope": "project"}, "-own")})
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	uri := a.untilLists()
	id := a.call("own__turn", map[string]any{"token": "grown", "ms": 1000})
	p.untilEffect("begin grown")
	kill9(t, d.Process.Pid)
	p.untilEffect("turn grown")
	p.daemon()
	if x := a.wait(id); x.text() != "grown" {
		t.Errorf("the call: %s", x.raw)
	}
	if got := a.untilLists("grown"); got != uri {
		t.Errorf("the process is %s, was %s", got, uri)
	}
	a.rest(id)
}
