package hosted

import (
	"encoding/json"
	"log/slog"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/daemon/tool"
	"holdline/protocol/mcp"
)

// TestRulesOfPrompts checks that prompts, their completions and resources from templates
// obey the rules of the server and of the identity, by the server's own names and by those
// that sessions see.
func TestRulesOfPrompts(t *testing.T) {
	cfg := &config.Config{
		Identities: map[string]config.Identity{
			"own":   {Deny: []string{"s__ask/me"}},
			"shown": {Deny: []string{tool.Shown("s", "ask/me")}},
			"allow": {Allow: []string{"s__ask/me"}},
		},
		Servers: map[string]config.Server{"s": {Holdline: config.Hosting{Deny: []string{
			"hidden", "mem://secret/{n}",
		}}}},
	}
	rules := policy.NewRules(cfg)
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), CatalogDir: t.TempDir(), Rules: rules,
		Servers: []entry.Server{{Name: "s", Scope: entry.Shared, Key: "k", MaxConcurrent: 1, Offers: func(names ...string) bool {
			ok, _ := rules.Offers("s", names...)
			return ok
		}}},
	})
	s := m.servers["s"]
	s.offers.Load(&listing.Memory{Lists: listing.Lists{
		listing.Prompts: {
			json.RawMessage(`{"name":"ask/me"}`),
			json.RawMessage(`{"name":"hidden"}`),
			json.RawMessage(`{"name":"plain"}`),
		},
		listing.Templates: {
			json.RawMessage(`{"uriTemplate":"mem://{all}"}`), json.RawMessage(`{"uriTemplate":"mem://secret/{n}"}`),
		},
	}, About: json.RawMessage(`{"capabilities":{"resources":{}}}`)}, s.source(), true)

	for _, x := range []struct {
		identity, name string
		may            bool
	}{
		{"any", "ask/me", true},
		{"any", "plain", true},
		{"any", "hidden", false},
		{"own", "ask/me", false},
		{"own", "plain", true},
		{"shown", "ask/me", false},
		{"allow", "ask/me", true},
		{"allow", "plain", false},
		{"any", "mem://open", true},
		{"any", "mem://secret/1", false},
		{"allow", "mem://open", false},
	} {
		for _, only := range []string{"", "s"} {
			c := tool.Caller{Session: "x", Identity: x.identity, Only: only}
			name, routes := x.name, map[string]string{}
			if s.offers.Latest().Find(listing.Prompts, x.name, true) != nil || x.name == "hidden" {
				if only == "" {
					name = tool.Shown("s", x.name)
				}
				routes[mcp.PromptsGet] = `{"name":"` + name + `"}`
				routes[mcp.Complete] = `{"ref":{"type":"ref/prompt","name":"` + name + `"}}`
			} else {
				routes[mcp.ResourcesRead] = `{"uri":"` + name + `"}`
				routes[mcp.Complete] = `{"ref":{"type":"ref/resource","uri":"` + name + `"}}`
			}
			for method, params := range routes {
				to, _ := m.Route(t.Context(), c, method, json.RawMessage(params))
				if may := to != nil && rules.May(tool.Who{Identity: x.identity}, to.Server, to.Names...); may != x.may {
					t.Errorf("%s of %s for %s, only %q: may %v, want %v: %+v", method, name, x.identity, only,
						may, x.may, to)
				}
			}
			all, _ := m.List(t.Context(), c, mcp.PromptsList)
			listed := false
			for _, l := range all.Entries {
				listed = listed || l.Name == tool.Shown("s", x.name)
			}
			if listed != (x.may && routes[mcp.PromptsGet] != "") {
				t.Errorf("%s for %s, only %q: listed %v", x.name, x.identity, only, listed)
			}
		}
	}
}
