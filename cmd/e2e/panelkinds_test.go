package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/claude/claudetest"
)

// threeKinds returns a place whose configuration has three engines of different kinds, and the
// arguments of a call that asks them all. Claude Code and the agent follow scripts of their own, and
// Codex counts the words of the prompt after a pause, in seconds.
func threeKinds(
	t *testing.T, claude []claudetest.Step, agent []acptest.Step, pause string,
) (*place, map[string]any) {
	t.Helper()
	needAgents(t)
	p := newPlace(t).login().faults()
	bin := filepath.Join(p.dir, "codex-elsewhere")
	p.fakeCodex(bin)
	p.configure(map[string]any{}, "consult", map[string]any{
		"max_concurrent": 3, "codex_bin": bin, "env": map[string]any{"CODEX_API_KEY": "x", "PAUSE": pause},
		"agents": consultDeath{}.fakeAgent(p.countRuns()),
	})
	return p, map[string]any{
		"render": "json", "engines": []string{"claude", "codex", fakeAgentEngine},
		"prompt": claudetest.Prompt(acptest.Prompt("look", agent...), claude...),
	}
}

// kindsView is what these tests read of a panel's answer.
type kindsView struct {
	State    string
	Answered int
	Answers  []struct {
		ID      string `json:"consult_id"`
		Engine  string
		State   string
		Answer  string
		Partial bool
	}
}

// kinds decodes a panel's answer, and returns which engines have answered. Each answer must be
// fetched by its own id, too.
func (a *agent) kinds(x answer) (v kindsView, answered []string) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(x.text()), &v); err != nil || len(v.Answers) != 3 {
		a.t.Fatalf("%v: %s", err, x.raw)
	}
	for _, one := range v.Answers {
		if one.State == "done" {
			answered = append(answered, one.Engine)
		}
		var own struct{ Answer string }
		y := a.wait(a.call("consult_result", map[string]any{"consult_id": one.ID, "render": "json"}))
		_ = json.Unmarshal(y.Result.StructuredContent, &own)
		if one.State == "done" && (one.Answer == "" || own.Answer != one.Answer) ||
			y.Result.IsError != (one.State != "done") {
			a.t.Errorf("%s is %q, and by its own id %s", one.Engine, one.Answer, y.raw)
		}
	}
	if v.Answered != len(answered) {
		a.t.Errorf("%d answered, and %q are done", v.Answered, answered)
	}
	return v, answered
}

// TestPanelOfThreeKinds_OneKilled kills an engine process of a panel at each of its steps. The other
// engines' answers are complete; from its outcome on the answer of the killed one is, too.
func TestPanelOfThreeKinds_OneKilled(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		"adapter.begun", "adapter.started", "adapter.told", "adapter.exited", "adapter.outcome", "adapter.answered",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			p, args := threeKinds(t, []claudetest.Step{claudetest.Say("of claude")}, []acptest.Step{{Say: "of the agent"}}, "0")
			p.dieAs(point, death{who: "engine"})
			a := p.agent().shake()
			id := a.call("consult", args)
			want := 2
			if point == "adapter.outcome" || point == "adapter.answered" {
				want = 3
			}
			if _, answered := a.kinds(a.wait(id)); len(answered) != want || !p.died(point) {
				t.Errorf("%q have answered, want %d", answered, want)
			}
			a.rest(id)
			p.settled(t)
		})
	}
}

// TestPanelOfThreeKinds_LateAndFailed has one engine that is late and one that fails. The late one
// gives its best answer, and the third one's is complete.
func TestPanelOfThreeKinds_LateAndFailed(t *testing.T) {
	t.Parallel()
	p, args := threeKinds(t, []claudetest.Step{{Do: "hang"}}, []acptest.Step{{Say: "so far"}, {Error: -32603}}, "0")
	args["timeout_s"] = 15
	a := p.agent().shake()
	id := a.call("consult", args)
	v, answered := a.kinds(a.wait(id))
	if !slices.Equal(answered, []string{"claude", "codex"}) || v.State != "done" {
		t.Fatalf("%q have answered: %+v", answered, v)
	}
	if late := v.Answers[0]; !late.Partial {
		t.Errorf("the late one: %+v", late)
	}
	if got := v.Answers[1].Answer; !strings.HasSuffix(got, " words") || v.Answers[1].Partial {
		t.Errorf("of codex: %q", got)
	}
	a.rest(id)
	p.settled(t)
}

// TestPanelOfThreeKinds_Cancelled cancels a panel whose engines work. All of them end.
func TestPanelOfThreeKinds_Cancelled(t *testing.T) {
	t.Parallel()
	p, args := threeKinds(t, []claudetest.Step{{Do: "hang"}}, []acptest.Step{{Say: "so far"}, {Hang: true}}, "1000")
	args["wait_s"] = 0
	a := p.agent().shake()
	id := consultID(t, a.wait(a.call("consult", args)))
	waitFor(t, "three programs", func() bool {
		all := strings.Join(p.carriers(), "\n")
		return strings.Contains(all, "--input-format") && strings.Contains(all, "sleep 1000") &&
			strings.Contains(all, fakeAgentProgram+" "+p.project)
	})
	x := a.wait(a.call("consult_control", map[string]any{"consult_id": id, "action": "cancel", "render": "json"}))
	if x.Error != nil {
		t.Errorf("cancel: %s", x.raw)
	}
	waitFor(t, "the end of all processes", func() bool { return len(p.carriers()) == 0 })
	if list := p.must("consult", "list"); strings.Count(list, " cancelled ") != 4 {
		t.Errorf("the list is\n%s", list)
	}
	a.rest()
	p.settled(t)
}
