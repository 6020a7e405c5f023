package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// A listener is an agent that holds lists, and counts the notifications that they have changed.
type listener struct {
	*agent
	name   string
	modern bool
	whole  bool           // it has all servers
	told   map[string]int // by the list, since the agent has listed it
}

// heldLists are the lists that a listener holds.
var heldLists = []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"}

// listeners starts agents of both eras, for all servers and for the one of that name, which
// list all that they can.
func (p *place) listeners(server string) []*listener {
	p.t.Helper()
	var all []*listener
	for _, modern := range []bool{false, true} {
		for _, flags := range [][]string{nil, {"--server", server}} {
			name := fmt.Sprintf("modern %v, for %q", modern, flags)
			l := &listener{agent: p.agent(append(flags, "--identity", "test")...), name: name, modern: modern, whole: flags == nil}
			if modern {
				l.begin("subscriptions/listen", modernly(map[string]any{"notifications": map[string]any{
					"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
				}}))
				l.until(func(x *answer) bool { return x.Method == "notifications/subscriptions/acknowledged" })
			} else {
				l.shake()
			}
			l.list()
			all = append(all, l)
		}
	}
	return all
}

// params returns those of a request in the era of the agent.
func (l *listener) params() map[string]any {
	if l.modern {
		return modernly(map[string]any{})
	}
	return map[string]any{}
}

// list asks for all lists, and returns the names of the tools. What it was told before counts no more.
func (l *listener) list() (tools []string) {
	l.t.Helper()
	for _, method := range heldLists {
		id := l.begin(method, l.params())
		x := l.until(func(x *answer) bool { return x.answers(id) })
		for _, tool := range x.Result.Tools {
			tools = append(tools, tool.Name)
		}
	}
	l.told = map[string]int{}
	return tools
}

// hear returns which changes the agent was told of until now, since it has listed.
func (l *listener) hear() map[string]int {
	l.t.Helper()
	method := "ping"
	if l.modern {
		method = "server/discover"
	}
	id := l.begin(method, l.params())
	l.until(func(x *answer) bool {
		if list, ok := strings.CutSuffix(x.Method, "/list_changed"); ok {
			l.told[strings.TrimPrefix(list, "notifications/")]++
		}
		return x.answers(id)
	})
	return l.told
}

// untilTold waits until the agent was told that its tools have changed.
func (l *listener) untilTold(what string) {
	l.t.Helper()
	for deadline := time.Now().Add(waitLimit); l.hear()["tools"] == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: the agent (%s) was not told", what, l.name)
		}
	}
}

// TestDaemonKilledWithoutChange_NobodyIsTold kills the daemon 50 times while nothing changes, beside
// agents of both eras that hold all lists. None of them is notified of a change.
func TestDaemonKilledWithoutChange_NobodyIsTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"all":  p.toolsEntry(hosting{"scope": "shared"}, "-own", "-resources", "told"),
		"mine": p.toolsEntry(hosting{"scope": "session"}, "-own"),
		"lazy": p.toolsEntry(hosting{"scope": "project", "lazy": true}),
	}).daemon()
	all := p.listeners("all")
	for i, l := range all {
		if l.whole { // what its own process lists is known before it answers
			params := map[string]any{"name": "mine__effect", "arguments": map[string]any{"token": fmt.Sprint("first", i)}}
			if l.modern {
				params = modernly(params)
			}
			if x := l.wait(l.begin("tools/call", params)); x.Error != nil || x.Result.IsError {
				t.Fatal(x.raw)
			}
		}
	}
	for _, l := range all {
		l.list()
	}
	pid := p.pid(0)
	for range 50 {
		kill9(t, pid)
		pid = p.pid(pid)
		for _, l := range all {
			l.hear() // it has resumed
		}
	}
	p.untilReady("all")
	for _, l := range all {
		if told := l.hear(); len(told) > 0 {
			t.Errorf("the agent (%s) was told of changes: %v", l.name, told)
		}
		l.rest()
	}
}

// TestDaemonKilledAsServerListsMore_EachAgentTold has a server list another tool at the moment in
// which the daemon is killed, some times before and some times after it. Each agent is told, and
// finds the tool in its list.
func TestDaemonKilledAsServerListsMore_EachAgentTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"all": p.toolsEntry(hosting{"scope": "shared"}, "-own")}).daemon()
	all := append(p.listeners("all"), p.listeners("all")...)
	caller := p.agent().shake()
	pid := p.pid(0)
	for i := range 12 {
		token := fmt.Sprintf("grown%d", i)
		id := caller.call("all__turn", map[string]any{"token": token, "ms": 2 * (i % 6)})
		p.untilEffect([]string{"begin ", "turn "}[i%2] + token)
		kill9(t, pid)
		pid = p.pid(pid)
		caller.wait(id)
		for _, l := range all {
			l.untilTold(token)
			if n := l.told["tools"]; n > 2 || len(l.told) > 2 { // twice at most, by the one daemon and the next
				t.Errorf("%s: the agent (%s) was told %v", token, l.name, l.told)
			}
			if tools := l.list(); !slices.ContainsFunc(tools, func(tool string) bool { return strings.HasSuffix(tool, token) }) {
				t.Errorf("%s: the agent (%s) was told, and lists %q", token, l.name, tools)
			}
		}
	}
	for _, l := range all {
		l.rest()
	}
}

// TestConfigurationEditedBeforeKill_EachAgentTold edits the configuration and kills the daemon before
// it has read that. The next daemon tells each agent of it whose list is another one by that, once,
// and no agent of an edit that changes no list.
func TestConfigurationEditedBeforeKill_EachAgentTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	entry := func(args ...string) map[string]any { return p.toolsEntry(hosting{"scope": "shared"}, args...) }
	servers := map[string]any{"all": entry(), "other": entry()}
	p.configure(servers).daemon()
	all := p.listeners("all")
	with := func(servers map[string]any, name string, entry map[string]any) map[string]any {
		changed := maps.Clone(servers)
		if changed[name] = entry; entry == nil {
			delete(changed, name)
		}
		return changed
	}
	lazy := entry()
	lazy["holdline"] = hosting{"scope": "shared", "lazy": true}
	environment := entry()
	environment["env"] = map[string]string{"A": "b"}
	broken := entry()
	broken["command"] = "/nonexistent/server"
	more := with(servers, "lazy", lazy)
	identity := map[string]any{"test": map[string]any{"deny": []string{"all__big"}}}
	pid := p.pid(0)
	for _, c := range []struct {
		what       string
		servers    map[string]any
		identities map[string]any
		all, one   bool // agents of all servers are told, and those of one
	}{
		{what: "a server that is gone", servers: with(servers, "other", nil), all: true},
		{what: "one more server", servers: servers, all: true},
		{what: "another environment", servers: with(servers, "other", environment)},
		{what: "the same again", servers: servers},
		{what: "one more server that is lazy", servers: more, all: true},
		{what: "a server that does not start", servers: with(more, "other", broken), all: true},
		{what: "a server that starts again", servers: more, all: true},
		{what: "a rule", servers: more, identities: identity, all: true, one: true},
		{what: "no rule", servers: more, all: true, one: true},
	} {
		identities := map[string]any{}
		maps.Copy(identities, c.identities)
		p.configure(c.servers, "identities", identities)
		kill9(t, pid)
		pid = p.pid(pid)
		if c.servers["other"] != nil {
			p.until("the server has started, or has not", func(s control.StatusAnswer) bool {
				other := find(t, s, "other")
				return other.State == "ready" || other.State == "failed" || other.State == "ejected"
			})
		}
		for i, l := range all {
			alone := i%2 == 1
			switch told := c.all && !alone || c.one && alone; {
			case told:
				l.untilTold(c.what)
			case l.hear()["tools"] > 0:
				t.Errorf("%s: the agent (%s) was told", c.what, l.name)
			}
			if n := l.told["tools"]; n > 1 {
				t.Errorf("%s: the agent (%s) was told %d times", c.what, l.name, n)
			}
		}
		for _, l := range all {
			l.list()
		}
	}
	for _, l := range all {
		l.rest()
	}
}
