package e2e

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// agentElsewhere starts an agent whose proxy is the child of a client process of its own.
// The proxies of [place.agent] are all children of the test.
func (p *place) agentElsewhere(args ...string) *agent {
	p.t.Helper()
	// With a single command the shell would replace itself by the proxy.
	script := `"$@"; exit $?`
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", p.command().Path, "mcp-stdio"}, args...)...)
	cmd.Env, cmd.Dir = p.env, p.project
	return p.agentOf(cmd)
}

// TestSessionsOfOneClient_CountTogether checks that sessions of one client process share
// its limit of calls in flight, and are one row of status. Sessions of another process
// count separately.
func TestSessionsOfOneClient_CountTogether(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"one": p.toolsEntry(hosting{"scope": "shared"}), "two": p.toolsEntry(hosting{"scope": "shared"}),
	},
		"limits", map[string]any{"in_flight": 2}).daemon()
	a, b := p.agent("--server", "one", "--identity", "first").shake(),
		p.agent("--server", "two", "--identity", "first").shake()
	c := p.agentElsewhere("--server", "two", "--identity", "second").shake()
	var held []int
	for i, agent := range []*agent{a, b} {
		token := string(rune('a' + i))
		held = append(held, agent.call("hang", map[string]any{"token": token}))
		waitFor(t, "the call to begin", func() bool { return p.effectsOf("begin "+token) == 1 })
	}
	look := map[string]any{"token": "t"}
	for _, agent := range []*agent{a, b} {
		if x := agent.wait(agent.call("look", look)); !strings.Contains(x.raw, `"code":"resource_exhausted"`) ||
			!strings.Contains(x.raw, `"limit":{"name":"calls in flight","value":2,"spent":2}`) {
			t.Errorf("a third call of the same client: %s", x.raw)
		}
	}
	if x := c.wait(c.call("look", look)); x.text() != "t" {
		t.Errorf("a call of another client: %s", x.raw)
	}

	s := p.status()
	if len(s.Sessions) != 3 || s.Sessions[0].ClientPID != s.Sessions[1].ClientPID ||
		s.Sessions[0].ClientPID == s.Sessions[2].ClientPID || s.Sessions[2].ClientPID == 0 {
		t.Errorf("sessions %+v", s.Sessions)
	}
	rows := map[string]int{}
	for line := range strings.Lines(p.must("status")) {
		for _, who := range []string{"first", "second"} {
			if strings.HasPrefix(line, who+" ") {
				rows[who]++
				if both := strings.Contains(line, "one, two"); both != (who == "first") {
					t.Errorf("the row of %s is %q", who, line)
				}
			}
		}
	}
	if rows["first"] != 1 || rows["second"] != 1 {
		t.Errorf("rows of agents: %v, want one of each", rows)
	}

	a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + strconv.Itoa(held[0]) + `}}`)
	if x := a.wait(a.call("look", look)); x.text() != "t" {
		t.Errorf("after a call was cancelled: %s", x.raw)
	}
	b.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + strconv.Itoa(held[1]) + `}}`)
	for _, agent := range []*agent{a, b, c} {
		agent.rest()
	}
}
