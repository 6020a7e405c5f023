package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestChangedToolBlocked edits a server's entry so that one of its tools changes. The tool
// is neither listed nor called until the user accepts the change, also by the next daemon
// and by a process that is started for a call. Agents are told why, and when it is
// available again. Other tools work.
func TestChangedToolBlocked(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	listing := filepath.Join(p.dir, "listing")
	configure := func(pin string, more ...string) {
		t.Helper()
		p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "pin": pin},
			append([]string{"-listing", listing}, more...)...)},
			"identities", searcher())
	}
	configure("block")
	p.daemon()
	pid := p.pid(0)
	a, s := p.agent().shake(), p.agent("--identity", "s").shake()
	listed := func() bool {
		t.Helper()
		return strings.Contains(a.ask("tools/list", map[string]any{}).raw, `"tools__effect"`)
	}
	p.untilReady("tools")
	if !listed() {
		t.Fatal("the tool is not listed at first")
	}
	blocked := func(when string) {
		t.Helper()
		if listed() {
			t.Errorf("%s: the tool is listed", when)
		}
		for by, x := range map[string]answer{
			"by name":      a.wait(a.call("tools__effect", map[string]any{"token": "no"})),
			"by call_tool": s.wait(s.inner("tools", "effect", map[string]any{"token": "no"})),
		} {
			if x.code() != "denied" ||
				!strings.Contains(x.text(), "has changed since it was first seen (description)") ||
				!strings.Contains(x.text(), "--accept") {
				t.Errorf("%s, %s: %s", when, by, x.raw)
			}
		}
		if x := a.wait(a.call("tools__look", map[string]any{"token": "yes"})); x.text() != "yes" {
			t.Errorf("%s: another tool: %s", when, x.raw)
		}
		f := s.find(map[string]any{"query": "effect"})
		if slices.Contains(f.names(), "tools__effect") ||
			!strings.Contains(f.troubles()["tools"], "blocked until the user accepts") {
			t.Errorf("%s: found %v, %v", when, f.names(), f.troubles())
		}
		if _, errs, code := p.run("", "servers", "call", "tools", "effect", `{"token":"no"}`); code == 0 ||
			!strings.Contains(errs, "--accept") {
			t.Errorf("%s: called on the command line: %d, %s", when, code, errs)
		}
	}

	// The edited entry changes the tool.
	configure("block", "-noise")
	p.relist(map[string]any{"description": "does effect, and more"})
	blocked("after the edit")
	for _, args := range [][]string{{"servers", "tools"}, {"servers"}, {"doctor"}} {
		if out, _, _ := p.run("", args...); !strings.Contains(out, "blocked") &&
			!strings.Contains(out, "cannot use them") {
			t.Errorf("holdline %v does not say it:\n%s", args, out)
		}
	}

	kill9(t, pid)
	p.pid(pid)
	blocked("after the daemon died")

	// By default the change is only reported to the user.
	listed()
	configure("warn", "-noise")
	p.must("reload")
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	if x := a.wait(a.effect("warned", 0)); x.text() != "warned" || !listed() {
		t.Errorf("with warn: %s", x.raw)
	}
	configure("block", "-noise")
	p.must("reload")
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	blocked("with block again")

	p.must("servers", "tools", "tools", "--accept")
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	if x := a.wait(a.effect("accepted", 0)); x.text() != "accepted" || !listed() {
		t.Errorf("accepted: %s", x.raw)
	}
	if n := p.effectsOf("begin no"); n != 0 {
		t.Errorf("the blocked tool was called %d times", n)
	}
	a.rest()
	s.rest()
}

// TestChangedToolBlocked_StartedForTheCall checks that a call is not made if the tool was
// unchanged when it was listed, but is changed in the process that is started for the call.
func TestChangedToolBlocked_StartedForTheCall(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	entry := p.toolsEntry(hosting{"scope": "shared", "pin": "block", "lazy": true}, "-listing",
		filepath.Join(p.dir, "listing"))
	p.configure(map[string]any{"tools": entry}).daemon()
	a := p.agent().shake()
	if x := a.wait(a.effect("first", 0)); x.text() != "first" {
		t.Fatalf("at first: %s", x.raw)
	}
	p.must("servers", "stop", "tools")
	p.listAs(map[string]any{"description": "does another effect"})
	p.must("servers", "start", "tools")
	if x := a.wait(a.effect("second", 0)); x.code() != "denied" || p.effectsOf("begin second") != 0 {
		t.Errorf("a call that starts a process: %s", x.raw)
	}
	a.rest()
}
