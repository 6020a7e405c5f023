package e2e

import (
	"slices"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestViews checks two sessions with different views of one process. Each sees and uses what its view
// has: tools, also renamed ones, resources and completions. The views hold after the daemon's death,
// and their edits at once: sessions are notified, and calls are denied.
func TestViews(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	servers := map[string]any{
		"tools": p.toolsEntry(hosting{"scope": "shared"}, "-resources", "told"),
		"other": p.toolsEntry(hosting{"scope": "shared"}),
	}
	rename := map[string]any{"tools__look": "glance"}
	views := map[string]any{
		"reads": map[string]any{
			"servers": []string{"tools"}, "rename": rename,
			"allow": []string{"tools__look", "tools__mem://a", "tools__mem://many/*"}, "deny": []string{"*//many/9*"},
		},
		"all": map[string]any{"deny": []string{"*mem://a"}},
	}
	p.configure(servers, "views", views)
	reads, all := p.agent("--view", "reads").shake(), p.agent("--view", "all").shake()
	daemon, server := p.pid(0), p.untilReady("tools")
	p.untilReady("other")
	list := func(a *agent) (names []string) {
		for _, one := range a.ask("tools/list", map[string]any{}).Result.Tools {
			names = append(names, one.Name)
		}
		return names
	}
	check := func(when string) {
		t.Helper()
		if got := list(reads); !slices.Equal(got, []string{"glance"}) {
			t.Errorf("%s: the view reads lists %q", when, got)
		}
		if got := list(all); !slices.Contains(got, "other__look") || !slices.Contains(got, "tools__look") ||
			!slices.Contains(got, "consult") || slices.Contains(got, "glance") {
			t.Errorf("%s: the view all lists %q", when, got)
		}
		for name, may := range map[string]bool{
			"glance": true, "tools__look": true, "tools__effect": false, "other__look": false, "health_snapshot": false,
		} {
			if x := reads.wait(reads.call(name, map[string]any{"token": "x"})); (x.code() != "denied") != may {
				t.Errorf("%s: %s in the view reads: %s", when, name, x.raw)
			}
		}
		for uri, may := range map[string]bool{
			"mem://a": true, "mem://many/1": true, "mem://many/91": false, "mem://fixed": false,
		} {
			for method, params := range map[string]any{
				"resources/read": map[string]any{"uri": uri},
				"completion/complete": map[string]any{
					"ref":      map[string]any{"type": "ref/resource", "uri": uri},
					"argument": map[string]any{"name": "n", "value": ""},
				},
			} {
				// The server does not know the method: its error says that it was asked.
				if x := reads.ask(method, params); strings.Contains(x.raw, "unknown method "+method) != may {
					t.Errorf("%s: %s of %s in the view reads: %s", when, method, uri, x.raw)
				}
			}
		}
		if x := all.ask("resources/list", map[string]any{}); strings.Contains(x.raw, `"mem://a"`) ||
			!strings.Contains(x.raw, `"mem://fixed"`) {
			t.Errorf("%s: the view all lists %s", when, x.raw)
		}
		if got := child(p.status(), "tools"); got != server {
			t.Errorf("%s: the server's process is %d, was %d", when, got, server)
		}
	}
	check("at first")
	if out := p.must("status"); !strings.Contains(out, "all in view reads") {
		t.Errorf("status does not name the view:\n%s", out)
	}
	kill9(t, daemon)
	p.pid(daemon)
	p.untilReady("tools")
	p.untilReady("other")
	check("with the next daemon")

	reads.toldChanged()
	views["reads"] = map[string]any{"servers": []string{"tools"}, "allow": []string{"tools__effect"}}
	p.configure(servers, "views", views)
	reads.untilTold()
	if got := list(reads); !slices.Equal(got, []string{"tools__effect"}) {
		t.Errorf("after an edit of the view it lists %q", got)
	}
	if x := reads.wait(reads.call("tools__look", map[string]any{"token": "x"})); x.code() != "denied" {
		t.Errorf("a tool that the edited view denies: %s", x.raw)
	}
	delete(views, "reads")
	p.configure(servers, "views", views)
	reads.untilTold()
	if got := list(reads); len(got) != 0 {
		t.Errorf("after the removal of the view it lists %q", got)
	}
	if x := reads.wait(reads.call("tools__effect", map[string]any{"token": "x"})); x.code() != "denied" ||
		!strings.Contains(x.raw, "has no views.reads any more") {
		t.Errorf("a call in a view that was removed: %s", x.raw)
	}
	p.until("the session keeps its view", func(s control.StatusAnswer) bool {
		return slices.ContainsFunc(s.Sessions, func(one control.Session) bool { return one.View == "reads" })
	})
	x := p.agent("--view", "al")
	x.begin("initialize", map[string]any{})
	for range x.lines {
	}
	if err := x.cmd.Wait(); err == nil ||
		!strings.Contains(x.errs.String(), `there is no view "al"; those that there are: all`) {
		t.Errorf("an unknown view: %v, %s", err, x.errs)
	}
	x = p.agent("--server", "tolls")
	got := x.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	})
	if !strings.Contains(got.raw, `there is no server \"tolls\"; did you mean tools?`) {
		t.Errorf("an unknown server: %s", got.raw)
	}
	x.rest()
	reads.rest()
	all.rest()
}
