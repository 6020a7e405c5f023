package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestServerSpoilsNoList has one server list tools that clients would refuse. Agents get
// all other tools, also of that server, and `servers` names what they do not get.
func TestServerSpoilsNoList(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	long := strings.Repeat("say_", 40)[:120]
	listed := t.TempDir()
	deep := strings.Repeat(`{"properties":{"a":`, 4500) + `{}` + strings.Repeat("}}", 4500)
	err := os.WriteFile(filepath.Join(listed, "tools-list"),
		[]byte(`{"tools":[{"name":"deep","inputSchema":`+deep+`},{"name":"odd","description":7,"inputSchema":{}},`+
			`{"name":"say","description":"`+strings.Repeat("words ", 2<<20)+`","inputSchema":{"type":"object"}},`+
			`{"name":"`+long+`","inputSchema":{"type":"object"}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p.configure(map[string]any{
		"bad":  p.oddEntry(hosting{"scope": "shared"}, "-lists", listed),
		"good": p.oddEntry(hosting{"scope": "shared"}),
	}).daemon()
	a, alone := p.agent().shake(), p.agent("--server", "bad").shake()
	p.untilReady("bad") // a list waits for a first start, but not for longer than clients do
	p.untilReady("good")
	for of, c := range map[*agent]struct {
		most  int // length of a name, in characters
		tools []string
	}{a: {49, []string{"bad__say", "good__say"}}, alone: {118, []string{"say"}}} {
		x := of.ask("tools/list", map[string]any{})
		if len(x.raw) > 128<<10 {
			t.Errorf("the list has %d bytes", len(x.raw))
		}
		var names []string
		shortened := ""
		for _, tool := range x.Result.Tools {
			names = append(names, tool.Name)
			if len(tool.Name) > c.most {
				t.Errorf("%s has %d characters", tool.Name, len(tool.Name))
			}
			if strings.Contains(tool.Name, "say_say_") {
				shortened = tool.Name
			}
		}
		for _, want := range c.tools {
			if !slices.Contains(names, want) {
				t.Errorf("%s is missing of %q", want, names)
			}
		}
		for _, name := range names {
			if strings.HasSuffix(name, "deep") || name == "odd" || name == "bad__odd" {
				t.Errorf("%s is listed", name)
			}
		}
		if shortened == "" {
			t.Errorf("%s is missing of %q", long, names)
		}
	}
	notes := strings.Join(p.server("bad").Notes, "\n")
	for _, want := range []string{
		`"deep" is left out: it nests deeper than 64 levels`, `"odd" is left out: its description`,
		`"say" has a description of more than 64 KiB`,
	} {
		if out := p.must("servers"); !strings.Contains(notes, want) || !strings.Contains(out, want) {
			t.Errorf("%q is not said: %.2000s\n%.2000s", want, notes, out)
		}
	}
	a.rest()
	alone.rest()
}
