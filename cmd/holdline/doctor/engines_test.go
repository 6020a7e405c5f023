package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/adapter/engines"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// TestConsults checks that findings about a consult program are the same for each engine: a
// problem only for the default engine, with its fix.
func TestConsults(t *testing.T) {
	for reason, fixes := range map[fault.Reason][]string{ // the beginning of those of engines.BuiltIn
		fault.NotInstalled: {
			"npm install -g @anthropic-ai/claude-code, or name the program: HOLDLINE_CLAUDE_BIN",
			"npm install -g @openai/codex, or name the program: HOLDLINE_CODEX_BIN",
		},
		fault.NotLoggedIn: {"/login; with an API key", "codex login; with an API key"},
		fault.Version:     {"npm install -g @anthropic-ai/claude-code@latest", "npm install -g @openai/codex@latest"},
		fault.Killed:      {"claude --version", "codex --version"},
	} {
		for i, e := range engines.BuiltIn {
			found := (&Options{}).checkEngines(func(name string) (control.CheckAnswer, error) {
				a := control.CheckAnswer{
					Engine: name, Default: name == e.Name, Path: "/bin/" + name, Version: "1", Account: "by somebody",
				}
				a.Fault = fault.New(fault.SpawnFailure, fault.Engine, "o", "what is wrong").WithReason(reason)
				return a, nil
			}, "the next daemon")
			for j, other := range engines.BuiltIn {
				at := slices.IndexFunc(found, func(f Finding) bool { return f.Check == other.Name })
				if at < 0 {
					t.Fatalf("nothing of %s: %+v", other.Name, found)
				}
				f := found[at]
				if (f.State == Problem) != (i == j) || f.State == OK || f.Fix == "" ||
					j < len(fixes) && !strings.Contains(f.Fix, fixes[j]) ||
					!strings.Contains(f.Why, "as seen by the next daemon") ||
					f.What != "what is wrong" {
					t.Errorf("%s, of %s if %s is to answer: %+v", reason, other.Name, e.Name, f)
				}
			}
		}
	}
	found := (&Options{}).checkEngines(func(string) (control.CheckAnswer, error) {
		return control.CheckAnswer{}, errors.New("it does not answer")
	}, "the daemon")
	if len(found) != len(engines.BuiltIn) || found[0].State != Problem || found[1].Check != "codex" ||
		found[1].What != "it does not answer" {
		t.Errorf("a daemon that does not answer: %+v", found)
	}
}

// TestServers checks that each finding about a server says what is wrong, why, and how to
// fix it.
func TestServers(t *testing.T) {
	all := []control.Server{
		{Name: "stopped", State: "stopped"},
		{Name: "ejected", State: "failed", Ejected: true},
		{Name: "failed", State: "failed"},
		{Name: "cut", State: "ready", Circuit: "open", Failures: 5},
		{
			Name: "odd", State: "ready", Circuit: "closed", Notes: []string{"its lists are cut off"}, Changed: 1,
			NoiseLines: 2,
		},
		{Name: "gone", State: "failed"},
		{Name: "well", State: "ready", Circuit: "closed"},
	}
	found := checkServers(all, []string{"gone"})
	if len(found) != 8 || found[0].What != "well" {
		t.Errorf("findings %+v", found)
	}
	for _, f := range found[1:] {
		if f.State == OK || f.What == "" || f.Why == "" || f.Fix == "" || f.Check == "server gone" {
			t.Errorf("%+v", f)
		}
	}
}

// TestNoPackage checks that the fix for an engine without an npm package names its title.
func TestNoPackage(t *testing.T) {
	e := &engines.Engine{Name: "x", Title: "The X", Variable: "HOLDLINE_X_BIN"}
	a := control.CheckAnswer{Engine: "x"}
	for reason, want := range map[fault.Reason]string{
		fault.NotInstalled: "install The X, or name the program: HOLDLINE_X_BIN",
		fault.Version:      "install The X",
	} {
		a.Fault = fault.New(fault.SpawnFailure, fault.Engine, "o", "what is wrong").WithReason(reason)
		if f := judgeEngine(e, a, "the daemon", nil); f.Fix != want {
			t.Errorf("%s: fix %q, want %q", reason, f.Fix, want)
		}
	}
}
