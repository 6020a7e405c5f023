package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asPage has the members of a page of any list.
type asPage struct {
	Result struct {
		Tools, Prompts, Resources, ResourceTemplates []struct{ Name, URI, URITemplate string }
		NextCursor                                   *string
		TTL                                          *int `json:"ttlMs"`
	}
}

// pageOf returns the names in a page of a list, and the cursor of the next page.
func pageOf(t *testing.T, x answer) (names []string, next *string) {
	t.Helper()
	var p asPage
	if err := json.Unmarshal([]byte(x.raw), &p); err != nil || x.Error != nil {
		t.Fatalf("a page is %.300s: %v", x.raw, err)
	}
	for _, one := range append(append(append(p.Result.Tools, p.Result.Prompts...), p.Result.Resources...),
		p.Result.ResourceTemplates...) {
		names = append(names, one.Name)
	}
	return names, p.Result.NextCursor
}

// TestListsInPages checks that each list of a server with thousands of entries comes in
// pages of limited size, each entry once, for clients of both eras. A cursor is valid for
// the next daemon. An invented cursor is refused.
func TestListsInPages(t *testing.T) {
	t.Parallel()
	const n = 2500
	p := newPlace(t)
	dir := t.TempDir()
	kinds := map[string]string{
		"tools/list":               `{"name":"t%d","description":%q,"inputSchema":{"type":"object"}}`,
		"prompts/list":             `{"name":"t%d","description":%q}`,
		"resources/list":           `{"name":"t%[1]d","description":%[2]q,"uri":"mem://%[1]d"}`,
		"resources/templates/list": `{"name":"t%[1]d","description":%[2]q,"uriTemplate":"mem://{x}%[1]d"}`,
	}
	for method, format := range kinds {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i, strings.Repeat("words ", 200)))
		}
		member := strings.TrimSuffix(method, "/list")
		if member == "resources/templates" {
			member = "resourceTemplates"
		}
		err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(method, "/", "-")),
			fmt.Appendf(nil, `{%q:[%s]}`, member, strings.Join(all, ",")), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, "-lists", dir)}).daemon()
	a, alone := p.agent().shake(), p.agent("--server", "odd").shake()
	p.untilReady("odd") // a list waits for a first start, but not for longer than clients do
	killed := false
	for method := range kinds {
		for of, era := range map[string]func(params map[string]any) map[string]any{
			"legacy": func(params map[string]any) map[string]any { return params },
			"modern": func(params map[string]any) map[string]any { return modernly(params) },
		} {
			for _, one := range []*agent{a, alone} {
				seen, pages := map[string]bool{}, 0
				for params := map[string]any{}; ; {
					x := one.ask(method, era(params))
					names, next := pageOf(t, x)
					if len(x.raw) > 1<<20+4<<10 {
						t.Errorf("%s: a page has %d bytes", method, len(x.raw))
					}
					for _, name := range names {
						if seen[name] {
							t.Errorf("%s: %s is listed twice", method, name)
						}
						seen[name] = true
					}
					pages++
					if next == nil {
						break
					}
					if params = map[string]any{"cursor": *next}; !killed {
						killed = true
						kill9(t, p.status().Daemon.PID)
					}
				}
				if want := map[bool]int{true: n + 6, false: n}[one == a && method == "tools/list"]; len(seen) != want ||
					pages < 3 || pages > 8 {
					t.Fatalf("%s of the %s era: %d entries on %d pages, want %d", method, of, len(seen), pages, want)
				}
			}
		}
	}
	_, next := pageOf(t, a.ask("prompts/list", map[string]any{}))
	for _, cursor := range []any{"zz", "!", 7, *next + "A", *next} {
		x := a.ask("tools/list", map[string]any{"cursor": cursor})
		if x.Error == nil || x.Error.Code != -32602 {
			t.Errorf("the cursor %v: %.300s", cursor, x.raw)
		}
	}
	if x := a.ask("tools/list", map[string]any{"cursor": ""}); x.Error != nil ||
		!bytes.Contains([]byte(x.raw), []byte(`"nextCursor"`)) {
		t.Errorf("an empty cursor: %.300s", x.raw)
	}
	a.rest()
	alone.rest()
}
