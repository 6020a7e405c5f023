package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestUnknownKeyInOneEntry_OthersServed checks that a key that nobody knows, in the entry of one server, costs
// that server alone: at the start of a daemon and in an edit while it runs. Each command names the server,
// the key and what to do, edits of other servers are made, and removing it ends the matter.
func TestUnknownKeyInOneEntry_OthersServed(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	bad := map[string]any{"command": "/bin/cat", "surely_no_key": true}
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{}), "broken": bad})
	p.daemon()
	a := p.agent().shake()
	p.untilReady("tools")
	left := func(when string, names ...string) {
		t.Helper()
		s := p.until(when, func(s control.StatusAnswer) bool { return len(s.LeftOut) == len(names) })
		if len(s.Servers) == 0 || s.Daemon.ConfigRefused != "" {
			t.Fatalf("%s: servers %+v, refused %q", when, s.Servers, s.Daemon.ConfigRefused)
		}
		for i, name := range names {
			if got := s.LeftOut[i]; got.Name != name || !strings.Contains(got.Why, "surely_no_key") {
				t.Errorf("%s: left out %+v, want %s", when, got, name)
			}
		}
	}
	left("at the start", "broken")
	for _, x := range []struct {
		args  []string
		fails bool
	}{
		{[]string{"status"}, false},
		{[]string{"servers"}, false},
		{[]string{"doctor"}, true},
		{[]string{"config", "check"}, true},
		{[]string{"servers", "test", "broken"}, true},
		{[]string{"servers", "enable", "broken"}, true},
	} {
		args := x.args
		out, errs, code := p.run("", args...)
		said := strings.Join(strings.Fields(out+errs), " ")
		for _, part := range []string{"broken", "left out", "surely_no_key"} {
			if !strings.Contains(said, part) {
				t.Errorf("%v does not say %q: %s", args, part, said)
			}
		}
		if x.fails != (code != exitOK) {
			t.Errorf("%v: exit %d: %s", args, code, said)
		}
	}

	x := a.wait(a.call("broken__any", map[string]any{}))
	if x.Error == nil || !strings.Contains(x.raw, "surely_no_key") || !strings.Contains(x.raw, "holdline servers remove broken") {
		t.Errorf("a call of a tool of the server that is left out: %s", x.raw)
	}

	// An edit of the file by hand makes a second entry wrong, and the third server takes its edit.
	path := filepath.Join(p.dir, "home/.config/holdline/config.json")
	p.must("servers", "add", "other", "--no-check", "--", "/bin/cat")
	left("after an edit beside it", "broken")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(text), `"other": {`, `"other": {"surely_no_key": 2, `, 1)
	if edited == string(text) {
		t.Fatalf("the file has no entry of that shape:\n%s", text)
	}
	if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	left("after an edit by hand", "broken", "other")
	if out, errs, code := p.run("", "reload"); code == exitOK || !strings.Contains(errs, "other: its entry is wrong") {
		t.Errorf("reload: exit %d: %s%s", code, out, errs)
	}
	if got := a.wait(a.call("tools__look", map[string]any{"token": "yes"})).text(); got != "yes" {
		t.Errorf("the good server answers %q", got)
	}
	p.must("servers", "remove", "other")
	p.must("servers", "remove", "broken")
	left("after they are removed")
	p.must("config", "check")
}
