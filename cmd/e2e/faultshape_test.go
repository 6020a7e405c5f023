package e2e

import (
	"strings"
	"testing"

	"holdline/protocol/control"
)

// failed checks that an answer is a failed tool call: a result with isError whose text has
// all of the words.
func failed(t *testing.T, what string, x answer, words ...string) {
	t.Helper()
	if x.Error != nil || !x.Result.IsError || len(x.Result.StructuredContent) == 0 {
		t.Errorf("%s is no failed call: %s", what, x.raw)
	}
	for _, word := range words {
		if !strings.Contains(x.text(), word) {
			t.Errorf("%s does not say %q: %s", what, word, x.text())
		}
	}
}

// TestRefusedHandshakeSaysWhy checks that if a server refuses initialize its own words are
// shown, whether or not it exits then.
func TestRefusedHandshakeSaysWhy(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{
		"ends": {"-leaves"}, "stays": nil, "ends, unasked": {"-leaves", "-silent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"},
				append(more, "-refuse", "the token has expired")...)}).daemon()
			a := p.agent().shake()
			x := a.wait(a.call("odd__say", nil))
			failed(t, "the call", x, "the token has expired")
			if strings.Contains(x.text(), "exit code 0") {
				t.Errorf("the reason is said to be the exit code: %s", x.text())
			}
			s := p.until("its fault is known",
				func(s control.StatusAnswer) bool { return find(t, s, "odd").LastFault != nil })
			if f := find(t, s, "odd").LastFault; !strings.Contains(f.Fault.Detail, "the token has expired") {
				t.Errorf("status says %+v", f)
			}
			a.rest()
		})
	}
}

// TestFaultsHaveOneShape checks that a failed call is a failed tool's result whatever the
// cause: a server that died, with its last words, the limit of calls in flight, a rule,
// which names the server, or the proxy without a daemon.
func TestFaultsHaveOneShape(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"odd":    p.oddEntry(hosting{"scope": "shared"}, "-dies", "tools/call"),
		"tools":  p.toolsEntry(hosting{"scope": "shared"}),
		"denied": p.oddEntry(hosting{"scope": "shared", "deny": []string{"say"}}),
	}, "limits", map[string]any{"in_flight": 1}).daemon()
	a := p.agent().shake()
	x := a.wait(a.call("odd__say", nil))
	failed(t, "the call of a server that died", x, "outcome_unknown", "exit code 9",
		"Traceback of odd\nOddError: out of paper")
	x = a.wait(a.call("denied__say", nil))
	failed(t, "a denied call", x, "denied")
	if !strings.Contains(x.raw, `"operation":"tools/call:denied__say"`) {
		t.Errorf("a denied call does not name the server: %s", x.raw)
	}
	alone := p.agent("--server", "denied").shake()
	if x = alone.wait(alone.call("say", nil)); !strings.Contains(x.raw, `"operation":"tools/call:denied__say"`) {
		t.Errorf("a denied call of a session for one server does not name it: %s", x.raw)
	}
	alone.rest()
	hangs := a.call("tools__hang", nil)
	failed(t, "one call too many of a server", a.wait(a.call("tools__look", nil)), "resource_exhausted")
	failed(t, "one call too many of an own tool", a.wait(a.call("consult_result", map[string]any{})),
		"resource_exhausted")
	if x = a.ask("resources/read", map[string]any{"uri": "mem://one"}); x.Error == nil || x.Error.Code != -32603 {
		t.Errorf("one request too many that is no call: %s", x.raw)
	}
	if x = a.wait(a.call("nowhere__t", nil)); x.Error == nil && !x.Result.IsError {
		t.Errorf("an unknown tool: %s", x.raw)
	}
	p.must("stop")
	failed(t, "a call whose daemon was stopped", a.wait(hangs), "outcome_unknown")
}
