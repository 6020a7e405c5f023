package policy

import (
	"errors"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/protocol/fault"
)

// isFault checks err's code and hands the record back.
func isFault(t *testing.T, err error, code fault.Code) *fault.Record {
	t.Helper()
	r, ok := errors.AsType[*fault.Record](err)
	if !ok || r.Fault.Code != code {
		t.Fatalf("error %v, want a fault of code %s", err, code)
	}
	return r
}

func TestRules(t *testing.T) {
	cfg := config.Config{
		Identities: map[string]config.Identity{
			"any":     {},
			"some":    {Allow: []string{"consult*", "files__read*"}},
			"but":     {Allow: []string{"*"}, Deny: []string{"consult_control", "git__push*"}},
			"nothing": {Allow: []string{}},
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
		// Both pairs of lists must let it pass, and the server's speaks first.
		{"some", "files", "read_secret", false, `mcpServers.files.holdline.deny[0] "read_secret" names it`},
		{"but", "", "consult", true, `identities.but.allow[0] "*" names it`},
		{"but", "", "consult_control", false, `identities.but.deny[0] "consult_control" names it`},
		{"but", "git", "push", false, `identities.but.deny[1] "git__push*" names it`},
		{"any", "git", "push", true, `mcpServers.git.holdline.allow[1] "push*" names it`},
		{"any", "git", "push_force", false, `mcpServers.git.holdline.deny[0] "push_force" names it`},
		{"any", "git", "gc", false, "mcpServers.git.holdline.allow does not name it"},
		// A server's rules are about its own names, and only its own.
		{"any", "open", "push_force", true, "no rule names it"},
		{"any", "", "rm", true, "no rule names it"},
		{"nothing", "", "consult", false, "identities.nothing.allow does not name it"},
		{"anonymous", "", "consult", true, "no rule names it"},
		{"anonymous", "open", "x", false, "anonymous, who sends no greeting"},
	} {
		got, reason := NewRules(&cfg).May(x.identity, x.server, x.tool)
		if got != x.want || !strings.HasPrefix(reason, x.reason) {
			t.Errorf("May(%q, %q, %q) = %v, %q\nwant %v, %q", x.identity, x.server, x.tool, got, reason, x.want, x.reason)
		}
	}

	cfg.Identities["anonymous"] = config.Identity{Allow: []string{"open__*"}}
	if ok, reason := NewRules(&cfg).May("anonymous", "open", "x"); !ok {
		t.Errorf("anonymous with a list: %s", reason)
	}
	if err := NewRules(&cfg).Check("any", "open", "x"); err != nil {
		t.Errorf("Check = %v", err)
	}
	r := isFault(t, NewRules(&cfg).Check("but", "git", "push"), fault.Denied)
	if want := `but may not use push of git: identities.but.deny[1] "git__push*" names it`; r.Error() != want || r.Operation != "tools/call:push" {
		t.Errorf("Check = %q, %q\nwant %q", r, r.Operation, want)
	}
}
