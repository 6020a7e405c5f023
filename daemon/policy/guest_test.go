package policy

import (
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// TestGuestRules checks what a guest may use: nothing that its socket does not name, and of the servers
// that run in its project only those that are confined.
func TestGuestRules(t *testing.T) {
	scoped := func(scope, confine string) config.Server {
		return config.Server{Command: "x", Holdline: config.Hosting{Scope: scope, Confine: confine}}
	}
	cfg := config.Config{
		Identities: map[string]config.Identity{"box": {Deny: []string{"docs__drop"}}},
		Servers: map[string]config.Server{
			"docs": scoped("shared", ""), "work": scoped("project", "project"), "mine": scoped("session", "read"),
			"loose": scoped("project", ""), "other": scoped("shared", ""),
			"far": {URL: "https://far.example", Holdline: config.Hosting{Scope: "project"}},
		},
		Sockets: map[string]config.Socket{
			"box": {
				Servers: []string{"docs", "work", "mine", "loose", "far"}, Deny: []string{"*secret*"},
				Allow: []string{"docs__*", "work__*", "mine__*", "loose__*", "far__*", "other__*", "health_snapshot", "consult"},
			},
			"empty": {}, "off": {Allow: []string{"*"}, Servers: []string{"docs"}, Disabled: true},
		},
	}
	r := NewRules(&cfg)
	for _, x := range []struct {
		socket   string
		homeless bool
		server   string
		tool     string
		want     bool
	}{
		{"box", false, "docs", "look", true},
		{"box", true, "docs", "look", true},
		{"box", false, "docs", "secret_key", false},
		{"box", false, "docs", "drop", false},
		{"box", false, "other", "look", false},
		{"box", false, "work", "run", true},
		{"box", true, "work", "run", false},
		{"box", false, "mine", "run", true},
		{"box", true, "mine", "run", false},
		{"box", false, "loose", "run", false},
		{"box", true, "far", "run", true},
		{"box", false, "", "health_snapshot", true},
		{"box", false, "", "consult", false},
		{"empty", false, "docs", "look", false},
		{"empty", false, "", "consult", false},
		{"off", false, "docs", "look", false},
		{"gone", false, "docs", "look", false},
		{"gone", false, "", "health_snapshot", false},
	} {
		who := tool.Who{Identity: "box", Guest: x.socket, Homeless: x.homeless}
		ok, why := r.Explain(who, x.server, x.tool)
		if ok != x.want || !ok && why == "" {
			t.Errorf("%+v: %v, %s", x, ok, why)
		}
		if x.server == "" || ok {
			continue
		}
		// Neither says whether there is such a server or tool.
		err := r.CheckShown(who, "", tool.Shown(x.server, x.tool))
		if f := isFault(t, err, fault.Denied); !strings.Contains(f.Fault.Detail, "the socket does not allow it") {
			t.Errorf("%+v: %v", x, err)
		}
	}
	for server, want := range map[string]bool{"docs": true, "other": false, "loose": false, "none": false, "work": false} {
		if got := r.Reaches(tool.Who{Identity: "box", Guest: "box", Homeless: true}, server); got != want {
			t.Errorf("Reaches(%s) = %v", server, got)
		}
	}
}
