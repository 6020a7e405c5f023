package e2e

import (
	"slices"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestAgentHasAnotherVariable_StatusNamesIt starts a server for an agent whose environment does not have the variables
// that the server's entry keeps, and then has agents use it that have others: status and doctor name variable,
// server and project, and no value. A variable that the entry sets, one that is no choice of what to work on, and
// an agent with the same values are not named.
func TestAgentHasAnotherVariable_StatusNamesIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	entry := p.toolsEntry(hosting{"scope": "shared"})
	entry["env"] = map[string]any{
		"KUBECONFIG": "${KUBECONFIG:-/first/cluster}", "SHOP_TOKEN": "${SHOP_TOKEN:-}", "AWS_PROFILE": "mine",
		"FAVOURITE_COLOUR": "${FAVOURITE_COLOUR:-red}",
	}
	p.configure(map[string]any{"tools": entry}).up()
	bare := p.env
	with := func(env ...string) {
		t.Helper()
		p.env = append(slices.Clip(bare), env...)
		a := p.agent().shake()
		a.wait(a.call("tools__look", map[string]any{"token": "x"}))
		p.env = bare
	}
	with("KUBECONFIG=/first/cluster", "AWS_PROFILE=yours", "FAVOURITE_COLOUR=blue")
	p.untilReady("tools")
	if s := p.status(); len(s.Differs) != 0 {
		t.Errorf("differences are %+v", s.Differs)
	}
	if out := p.must("status"); strings.Contains(out, "works with another") {
		t.Errorf("status says\n%s", out)
	}
	with("KUBECONFIG=/second/cluster", "SHOP_TOKEN=hunter22hunter22")
	s := p.until("the differences", func(s control.StatusAnswer) bool { return len(s.Differs) == 2 })
	for i, name := range []string{"KUBECONFIG", "SHOP_TOKEN"} {
		if d := s.Differs[i]; d.Server != "tools" || d.Variable != name || d.Project == "" || d.Session == "" {
			t.Errorf("difference %+v, want %s", d, name)
		}
	}
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"doctor"}} {
		out, errs, code := p.run("", args...)
		said := strings.Join(strings.Fields(out+errs), " ")
		for _, part := range []string{"KUBECONFIG", "SHOP_TOKEN", "tools", s.Differs[0].Project} {
			if !strings.Contains(said, part) {
				t.Errorf("%v does not say %q: %s", args, part, said)
			}
		}
		if strings.Contains(said, "/second/cluster") || strings.Contains(said, "hunter22") {
			t.Errorf("%v shows a value: %s", args, said)
		}
		if args[0] == "doctor" && code == exitOK {
			t.Error("doctor finds nothing")
		}
	}
}
