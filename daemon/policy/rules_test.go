package policy

import (
	"errors"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// isFault checks the code of err, and returns its record.
func isFault(t *testing.T, err error, code fault.Code) *fault.Record {
	t.Helper()
	r, ok := errors.AsType[*fault.Record](err)
	if !ok || r.Fault.Code != code {
		t.Fatalf("error %v, want a fault of code %s", err, code)
	}
	return r
}

// TestRules checks for identities and tools what is allowed, and which rule the answer
// names.
func TestRules(t *testing.T) {
	cfg := config.Config{
		Identities: map[string]config.Identity{
			"any":     {},
			"some":    {Allow: []string{"consult*", "files__read*"}},
			"but":     {Allow: []string{"*"}, Deny: []string{"consult_control", "git__push*"}},
			"nothing": {Allow: []string{}},
			"finder":  {Allow: []string{"git__log"}, Expose: config.ExposeSearch},
			"looker":  {Deny: []string{"call_tool"}, Expose: config.ExposeSearch},
		},
		Servers: map[string]config.Server{
			"files": {Holdline: config.Hosting{Deny: []string{"read_secret", "rm*"}}},
			"git":   {Holdline: config.Hosting{Allow: []string{"log", "push*"}, Deny: []string{"push_force"}}},
			"open":  {},
		},
	}
	for _, x := range []struct {
		identity, server, tool string
		want                   bool
		reason                 string
	}{
		{"any", "", "consult", true, "no rule names it"},
		{"unheard", "open", "x", true, "no rule names it"},
		{"", "open", "x", true, "no rule names it"},
		{"some", "", "consult_result", true, `identities.some.allow[0] "consult*" names it`},
		{"some", "", "health_snapshot", false, "identities.some.allow does not name it"},
		{"some", "files", "read", true, `identities.some.allow[1] "files__read*" names it`},
		{"some", "files", "write", false, "identities.some.allow does not name it"},
		// The lists of server and identity must both allow it; the server's are checked
		// first.
		{"some", "files", "read_secret", false, `mcpServers.files.holdline.deny[0] "read_secret" names it`},
		{"but", "", "consult", true, `identities.but.allow[0] "*" names it`},
		{"but", "", "consult_control", false, `identities.but.deny[0] "consult_control" names it`},
		{"but", "git", "push", false, `identities.but.deny[1] "git__push*" names it`},
		{"any", "git", "push", true, `mcpServers.git.holdline.allow[1] "push*" names it`},
		{"any", "git", "push_force", false, `mcpServers.git.holdline.deny[0] "push_force" names it`},
		{"any", "git", "gc", false, "mcpServers.git.holdline.allow does not name it"},
		// A server's rules apply to its own names, and to that server only.
		{"any", "open", "push_force", true, "no rule names it"},
		{"any", "", "rm", true, "no rule names it"},
		{"nothing", "", "consult", false, "identities.nothing.allow does not name it"},
		// The tools that find and call others are for identities whose list lacks them.
		{"any", "", "find_tools", false, `identities.any.expose is not "search"`},
		{"but", "", "call_tool", false, `identities.but.expose is not "search"`},
		{"finder", "", "find_tools", true, `identities.finder.expose is "search"`},
		{"finder", "", "call_tool", true, `identities.finder.expose is "search"`},
		{"finder", "git", "push", false, "identities.finder.allow does not name it"},
		{"looker", "", "call_tool", false, `identities.looker.deny[0] "call_tool" names it`},
		{"looker", "", "find_tools", true, `identities.looker.expose is "search"`},
		{"anonymous", "", "call_tool", false, `identities.anonymous.expose is not "search"`},
		{"anonymous", "", "consult", false, "anonymous, who sends no greeting, uses no tool that starts a program"},
		{"anonymous", "", "consult_result", true, "no rule names it"},
		{"anonymous", "open", "x", false, "anonymous, who sends no greeting"},
	} {
		got, reason := NewRules(&cfg).Explain(tool.Who{Identity: x.identity}, x.server, x.tool)
		if got != x.want || !strings.HasPrefix(reason, x.reason) {
			t.Errorf("May(%q, %q, %q) = %v, %q\nwant %v, %q", x.identity, x.server, x.tool, got, reason,
				x.want, x.reason)
		}
	}

	cfg.Identities["anonymous"] = config.Identity{Allow: []string{"open__*"}}
	if ok, reason := NewRules(&cfg).Explain(tool.Who{Identity: "anonymous"}, "open", "x"); ok {
		t.Errorf("anonymous with a list may use a hosted tool: %s", reason)
	}
	if err := NewRules(&cfg).Check(tool.Who{Identity: "any"}, "open", "x"); err != nil {
		t.Errorf("Check = %v", err)
	}
	r := isFault(t, NewRules(&cfg).Check(tool.Who{Identity: "but"}, "git", "push"), fault.Denied)
	if want := `but may not use push of git: identities.but.deny[1] "git__push*" names it`; r.Error() != want ||
		r.Operation != "tools/call:git__push" {
		t.Errorf("Check = %q, %q\nwant %q", r, r.Operation, want)
	}
}

// TestRulesReach checks that a server of which an identity can use nothing does not exist
// for it, and that one whose tools are unknown does.
func TestRulesReach(t *testing.T) {
	for _, x := range []struct {
		allow, deny []string
		want        bool
	}{
		{nil, nil, true},
		{nil, []string{"git__*"}, false},
		{nil, []string{"git*"}, false},
		{nil, []string{"*"}, false},
		{nil, []string{"*__*"}, false},
		{nil, []string{"git__push*"}, true},
		{nil, []string{"*push"}, true},
		{nil, []string{`git__\*`}, true},
		{nil, []string{"github__*"}, true},
		{[]string{"git__log"}, nil, true},
		{[]string{"git__l*"}, nil, true},
		{[]string{"*log"}, nil, true},
		{[]string{"g?t__log"}, nil, true},
		{[]string{"[fg]it__log"}, nil, true},
		{[]string{"git"}, nil, false},
		{[]string{"git_"}, nil, false},
		{[]string{"github__*", "consult"}, nil, false},
		{[]string{}, nil, false},
		{[]string{"git__*"}, []string{"git__*"}, false},
	} {
		cfg := config.Config{Identities: map[string]config.Identity{"i": {Allow: x.allow, Deny: x.deny}}}
		if got := NewRules(&cfg).Reaches(tool.Who{Identity: "i"}, "git"); got != x.want {
			t.Errorf("allow %q, deny %q: %v, want %v", x.allow, x.deny, got, x.want)
		}
	}
	if NewRules(&config.Config{}).Reaches(tool.Who{Identity: "anonymous"}, "git") {
		t.Error("anonymous reaches a server")
	}
}

// TestRulesOfViews checks that a view narrows what an identity may use, that deny also matches the names
// that a view gives, and that nothing passes a view that is gone.
func TestRulesOfViews(t *testing.T) {
	cfg := config.Config{
		Servers: map[string]config.Server{"git": {}, "fs": {}},
		Identities: map[string]config.Identity{
			"no save": {Deny: []string{"save"}}, "log": {Allow: []string{"git__log", "consult"}}, "all": {},
		},
		Views: map[string]config.View{"v": {
			Servers: []string{"git"}, Deny: []string{"git__push", "consult"},
			Rename: map[string]string{"git__commit": "save", "git__log": "history"},
		}},
	}
	rules := NewRules(&cfg)
	for _, x := range []struct {
		identity, view, server, name string
		want                         bool
	}{
		{"all", "v", "git", "commit", true},
		{"all", "v", "git", "push", false},
		{"all", "v", "fs", "read", false},
		{"all", "v", "", "consult", false},
		{"all", "", "", "consult", true},
		{"all", "", "git", "push", true},
		{"no save", "v", "git", "commit", false},
		{"no save", "", "git", "commit", true},
		{"log", "v", "git", "log", true},
		{"log", "v", "git", "commit", false},
		{"all", "gone", "git", "log", false},
		{"all", "gone", "", "consult", false},
	} {
		who := tool.Who{Identity: x.identity, View: x.view}
		if got, why := rules.Explain(who, x.server, x.name); got != x.want {
			t.Errorf("%s of %q for %v: %v, %s", x.name, x.server, who, got, why)
		}
		if x.want && x.server != "" && !rules.Reaches(who, x.server) {
			t.Errorf("%v may use %s of %s, and does not reach it", who, x.name, x.server)
		}
	}
	who := tool.Who{Identity: "all", View: "v"}
	if rules.Reaches(who, "fs") || rules.Original(who, "history") != "git__log" || rules.Original(who, "x") != "x" ||
		rules.Renamed(who, "git", "log") != "history" || rules.Renamed(tool.Who{}, "git", "log") != "" {
		t.Error("a view reaches another server, or does not rename")
	}
}
