package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/tool"
)

// odd is the server's own name of a tool whose name is changed for sessions.
const odd = "delete/file"

// oddPlace returns a place with these identities, with the server tools, which lists the
// tool odd in place of effect and has resources, and with the server off, which is
// disabled.
func oddPlace(t *testing.T, denied string, identities map[string]any, more ...any) *place {
	t.Helper()
	p := newPlace(t)
	listing := filepath.Join(p.dir, "listing")
	if err := os.WriteFile(listing, fmt.Appendf(nil, `{"name":%q}`, odd), 0o600); err != nil {
		t.Fatal(err)
	}
	off := p.toolsEntry(hosting{"scope": "shared"})
	off["disabled"] = true
	p.configure(map[string]any{
		"tools": p.toolsEntry(hosting{"scope": "shared", "deny": []string{denied}}, "-listing", listing, "-resources",
			"told"), "off": off,
	}, append(more, "identities", identities)...).daemon()
	p.must("servers", "tools", "tools")
	waitFor(t, "what the server lists is kept", func() bool {
		_, err := os.Stat(filepath.Join(p.dir, "home/.local/state/holdline/catalog/tools.json"))
		return err == nil
	})
	return p
}

// TestRulesAgree checks for every identity, view and tool that config explain, the list of tools,
// a call of the tool and a call through call_tool agree.
func TestRulesAgree(t *testing.T) {
	t.Parallel()
	shown := tool.Shown("tools", odd)
	rule := func(kind string, globs ...string) map[string]any {
		return map[string]any{kind: append([]string{}, globs...)}
	}
	identities := map[string]any{
		"own name":   rule("deny", "tools__"+odd),
		"shown name": rule("deny", shown),
		"glob":       rule("deny", "tools__delete/*", "consult"),
		"only own":   rule("allow", "tools__"+odd, "health_snapshot"),
		"only shown": rule("allow", shown, "consult*"),
		"others":     rule("allow", "tools__look"),
		"none":       rule("allow"),
		"no server":  rule("deny", "tools__*"),
		"anonymous":  rule("allow", "*"),
		"searches":   map[string]any{"expose": "search", "deny": []string{"tools__" + odd, "call_tool"}},
		"finds":      map[string]any{"expose": "search", "allow": []string{shown}},
	}
	views := map[string]any{
		"narrow":  map[string]any{"servers": []string{"tools"}, "deny": []string{"tools__look", "consult*"}},
		"renames": map[string]any{"rename": map[string]any{"tools__" + odd: "remove", "tools__look": "glance"}},
		"hidden":  map[string]any{"rename": map[string]any{shown: "remove"}, "deny": []string{"remove"}},
		"without": map[string]any{"servers": []string{"off"}, "allow": []string{"off__*", "health_snapshot"}},
	}
	p := oddPlace(t, "big", identities, "views", views)
	names := append(tool.OwnNames(),
		"nothing", shown, "tools__look", "tools__big", "off__look", "nobody__look")
	type session struct{ identity, view string }
	var sessions []session
	for _, identity := range append(slices.Sorted(maps.Keys(identities)), "unheard of") {
		sessions = append(sessions, session{identity, ""})
	}
	for _, view := range slices.Sorted(maps.Keys(views)) {
		for _, identity := range []string{"only shown", "searches", "unheard of"} {
			sessions = append(sessions, session{identity, view})
		}
	}
	for _, who := range sessions {
		identity := who.identity + " in " + who.view
		a := p.agent("--identity", who.identity, "--view", who.view).shake()
		var listed []string
		for _, one := range a.ask("tools/list", map[string]any{}).Result.Tools {
			listed = append(listed, one.Name)
		}
		for _, name := range listed {
			if _, own := tool.OwnDispatch(name); !own && !strings.HasPrefix(name, "tools__") && who.view == "" {
				t.Errorf("%s is listed: explain does not know it", name)
			}
		}
		for _, name := range names {
			var e explained
			out, _, code := p.look("config", "explain", "--json", "--view", who.view, who.identity, name)
			decode(t, out, &e)
			if there := name != "nothing" && name != "nobody__look"; there != (code == 0) {
				t.Errorf("config explain of %s: exit %d", name, code)
			}
			x := a.wait(a.call(name, map[string]any{}))
			if may := x.code() != "denied" && x.Error == nil; may != e.Allowed {
				t.Errorf("%s of %s: explain says %v, %s\na call: %s", name, identity, e.Allowed, e.Why, x.raw)
			}
			hosted := strings.Contains(name, "__")
			if is := slices.Contains(listed, cmp.Or(e.Shown, name)); is != e.Allowed && (!hosted || e.Expose == "all") {
				t.Errorf("%s of %s: explain says %v, %s\nit is listed: %v", name, identity, e.Allowed, e.Why, is)
			}
			if name != shown {
				continue
			}
			var own explained
			out, _, _ = p.look("config", "explain", "--json", "--view", who.view, who.identity, "tools__"+odd)
			decode(t, out, &own)
			if own.Allowed != e.Allowed || own.Why != e.Why {
				t.Errorf("%s by its own name: %v, %s\nby the shown one: %v, %s", identity, own.Allowed, own.Why,
					e.Allowed, e.Why)
			}
			if e.Shown != "" {
				var again explained
				out, _, _ = p.look("config", "explain", "--json", "--view", who.view, who.identity, e.Shown)
				decode(t, out, &again)
				x := a.wait(a.call(e.Shown, map[string]any{}))
				if may := x.code() != "denied" && x.Error == nil; may != e.Allowed || again.Allowed != e.Allowed {
					t.Errorf("%s of %s, shown as %s: explain says %v and %v\na call: %s", name, identity, e.Shown, e.Allowed,
						again.Allowed, x.raw)
				}
			}
			if e.Expose != "search" || who.identity == "searches" {
				continue
			}
			for _, by := range []string{odd, shown} {
				if x := a.wait(a.inner("tools", by, nil)); (x.code() != "denied" && x.Error == nil) != e.Allowed {
					t.Errorf("call_tool of %s by %s: %s\nexplain says %v, %s", identity, by, x.raw, e.Allowed, e.Why)
				}
			}
		}
		a.rest()
	}
}

// TestRulesOfOneServer checks that the same rules apply to a session for one server, which
// uses the server's own names, and to the command line.
func TestRulesOfOneServer(t *testing.T) {
	t.Parallel()
	shown := tool.Shown("tools", odd)
	for _, by := range []string{"tools__" + odd, shown} {
		denies := map[string]any{"deny": []string{by}}
		p := oddPlace(t, "big", map[string]any{"i": denies, "cli": denies})
		a := p.agent("--identity", "i", "--server", "tools").shake()
		if x := a.ask("tools/list", map[string]any{}); strings.Contains(x.raw, odd) ||
			!strings.Contains(x.raw, `"look"`) {
			t.Errorf("denied by %s, and listed: %s", by, x.raw)
		}
		if x := a.wait(a.call(odd, map[string]any{"token": "denied"})); x.code() != "denied" {
			t.Errorf("denied by %s, and called: %s", by, x.raw)
		}
		for _, name := range []string{odd, shown} {
			if out, errs, code := p.run("", "servers", "call", "tools", name, `{"token":"denied"}`); code == 0 ||
				!strings.Contains(errs, "identities.cli.deny[0]") {
				t.Errorf("denied by %s, and called as %s on the command line: %d %s%s", by, name, code, out, errs)
			}
		}
		if n := p.effectsOf("look denied"); n != 0 {
			t.Errorf("denied by %s: it was called %d times", by, n)
		}
		a.rest()
	}
	// The server's own list may also use the name that sessions see.
	p := oddPlace(t, shown, map[string]any{})
	a := p.agent("--server", "tools").shake()
	if x := a.wait(a.call(odd, map[string]any{"token": "denied"})); x.code() != "denied" ||
		p.effectsOf("look denied") != 0 {
		t.Errorf("a call: %s", x.raw)
	}
	a.rest()
}

// TestRulesOfResources checks that allow and deny apply to resources and templates, also to
// a URI in another spelling, and that a subscription ends when its resource is denied.
func TestRulesOfResources(t *testing.T) {
	t.Parallel()
	p := oddPlace(t, "mem://b", map[string]any{
		"deny":  map[string]any{"deny": []string{"tools__mem://a", "mem://many/9*"}},
		"allow": map[string]any{"allow": []string{"tools__mem://many/*", "tools__touch"}},
		"none":  map[string]any{"deny": []string{"tools__mem://many/{n}"}},
	})
	for _, x := range []struct {
		identity, uri string
		listed, may   bool
	}{
		{"any", "mem://a", true, true},
		{"any", "mem://b", false, false}, // denied by the server's own list
		{"any", "mem://many/1", false, true},
		{"deny", "mem://a", false, false},
		{"deny", "mem://%61", false, false},
		{"deny", "mem://fixed", true, true},
		{"deny", "mem://many/1", false, true},
		{"deny", "mem://many/91", false, false},
		{"deny", "mem://many/1/../91", false, false},
		{"allow", "mem://a", false, false},
		{"allow", "mem://many/1", false, true},
		{"allow", "mem://many/../a", false, false},
		{"none", "mem://many/1", false, false},
	} {
		for _, only := range []string{"", "tools"} {
			a := p.agent("--identity", x.identity, "--server", only).shake()
			list := a.ask("resources/list", map[string]any{})
			if listed := strings.Contains(list.raw, fmt.Sprintf("%q", x.uri)); listed != x.listed {
				t.Errorf("%s of %s, --server %q: listed %v: %s", x.uri, x.identity, only, listed, list.raw)
			}
			// The server does not know the method: an error from the server says so.
			for method, params := range map[string]any{
				"resources/read": map[string]any{"uri": x.uri},
				"completion/complete": map[string]any{
					"ref":      map[string]any{"type": "ref/resource", "uri": x.uri},
					"argument": map[string]any{"name": "n", "value": ""},
				},
			} {
				answer := a.ask(method, params)
				if asked := strings.Contains(answer.raw, "unknown method "+method); asked != x.may {
					t.Errorf("%s of %s by %s, --server %q: the server is asked: %v: %s", method, x.uri, x.identity,
						only, asked, answer.raw)
				}
			}
			if got := a.ask("resources/subscribe", map[string]any{"uri": x.uri}); x.uri != "mem://fixed" &&
				(got.Error == nil) != x.may {
				t.Errorf("%s of %s, --server %q: subscribed: %s", x.uri, x.identity, only, got.raw)
			}
			a.rest()
		}
	}
}

// explained is the output of `holdline config explain --json`.
type explained struct {
	Allowed            bool
	Why, Expose, Shown string
}

// TestRulesHold_AllKinds checks that the rules of views and of identities hold for prompts, templates, resources and
// completions alike, by the name that the server gives and by the one that is shown.
func TestRulesHold_AllKinds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	lists := filepath.Join(p.dir, "lists")
	p.makeDir(lists)
	for name, text := range map[string]string{
		"prompts-list":        `{"prompts":[{"name":"greet"},{"name":"tell/me"}]}`,
		"completion-complete": `{"completion":{"values":["x"]}}`,
		"resources-templates-list": `{"resourceTemplates":[{"name":"a","uriTemplate":"mem://a/{n}"},` +
			`{"name":"b","uriTemplate":"mem://b/{n}"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(lists, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown := tool.Shown("odd", "tell/me")
	rules := map[string]any{}
	for _, kind := range []string{"allow", "deny"} {
		for how, name := range map[string]string{"own": "odd__tell/me", "shown": shown} {
			rules[kind+"-"+how] = map[string]any{kind: []string{name, "odd__mem://a/*"}}
		}
	}
	servers := map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, "-lists", lists)}
	p.configure(servers, "views", rules, "identities", rules).daemon()
	for rule := range rules {
		for _, by := range []string{"--view", "--identity"} {
			a := p.agent(by, rule).shake()
			for first, names := range map[bool][2]string{true: {shown, "a"}, false: {"odd__greet", "b"}} {
				may := first == strings.HasPrefix(rule, "allow") // the rules name the first of two
				prompt, template := names[0], "mem://"+names[1]+"/{n}"
				complete := func(kind, key, name string) map[string]any {
					argument := map[string]any{"name": "n", "value": ""}
					return map[string]any{"ref": map[string]any{"type": kind, key: name}, "argument": argument}
				}
				for _, c := range []struct {
					method string
					params map[string]any
					want   string // in the answer, if it may be
				}{
					{"prompts/list", map[string]any{}, `"` + prompt + `"`},
					{"prompts/get", map[string]any{"name": prompt}, "prompt of"},
					{"completion/complete", complete("ref/prompt", "name", prompt), `"x"`},
					{"resources/templates/list", map[string]any{}, template},
					{"resources/read", map[string]any{"uri": "mem://" + names[1] + "/1"}, "resource of"},
					{"completion/complete", complete("ref/resource", "uri", template), `"x"`},
				} {
					if x := a.ask(c.method, c.params); strings.Contains(x.raw, c.want) != may {
						t.Errorf("%s %s: %s of %v: %s", by, rule, c.method, names, x.raw)
					}
				}
			}
			a.rest()
		}
	}
}
