package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"holdline/daemon/consult/jobdir"
)

// panelView is what these tests read of a panel's answer.
type panelView struct {
	State    string `json:"state"`
	Answered int    `json:"answered"`
	Answers  []struct {
		ID string `json:"consult_id"`
	} `json:"answers"`
	Judge struct {
		State string `json:"state"`
	} `json:"judge"`
}

// panelCrashes are deaths of a daemon during a panel.
var panelCrashes = []crash{
	{point: "consult.panel"},
	{point: "consult.panelkept"},
	{point: "consult.dir"}, // of the panel
	{point: "consult.dir", times: 2},
	{point: "consult.dir", times: 3},
	{point: "consult.dir", times: 4}, // of the judge
	{point: "consult.queued", times: 1},
	{point: "consult.queued", times: 3},
	{point: "private.started", times: 2},
	{point: "consult.kept", times: 2},
	{point: "consult.kept", times: 3},
	{point: "consult.told", times: 2},
	{point: "consult.dir", twice: true},
	{point: "consult.queued", twice: true},
	{point: "consult.kept", twice: true},
}

// asksPanel asks two engines and a judge, and returns the id of the request.
func (a *agent) asksPanel(p *place) int {
	args := p.slow(0.1)
	args["render"], args["engines"], args["judge"] = "json", []string{"claude/opus", "claude"}, "claude"
	return a.call("consult", args)
}

// TestPanelCrashes kills the daemon at each step of a panel. The client gets one answer, with
// those of all members, and each of them has run once.
func TestPanelCrashes(t *testing.T) {
	t.Parallel()
	inTurn(t, panelCrashes, func(t *testing.T, c crash, _ int) {
		t.Helper()
		p := newPlace(t).login().faults()
		p.dieAs(c.point, death{times: c.times, deaths: c.deaths()})
		a := p.agent().shake()
		id := a.asksPanel(p)
		x := a.wait(id)
		if !p.died(c.point) {
			t.Errorf("no daemon came to %s", c.point)
		}
		var v panelView
		if err := json.Unmarshal([]byte(x.text()), &v); err != nil || v.State != "done" || v.Answered != 2 ||
			v.Judge.State != "done" {
			t.Errorf("%v: %s", err, x.raw)
		}
		if steps := p.steps(); steps != 6 {
			t.Errorf("%d steps in three runs of two", steps)
		}
		list := p.must("consult", "list")
		for _, label := range []string{"A: ", "B: ", "judge: "} {
			if strings.Count(list, label) != 1 {
				t.Errorf("the list does not have %q once:\n%s", label, list)
			}
		}
		a.rest(id)
		p.run("", "stop")
		p.settled(t)
		p.tidy(t)
	})
}

// TestPanelCommand asks a panel at the command line, and fetches an answer by its own id. One
// engine that cannot be asked refuses all, by its name.
func TestPanelCommand(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	args := p.slow(0.1)
	prompt, _ := args["prompt"].(string)
	text := p.must("consult", "--engines", "claude/opus,claude", "--judge", "claude/haiku", prompt)
	for _, want := range []string{": 2 of 2 answered, ", "=== A claude/opus, done, ", "=== B claude", "=== judge claude/haiku, done, "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var v panelView
	if err := json.Unmarshal([]byte(p.must("consult", "show", "--json", "last")), &v); err != nil || len(v.Answers) != 2 {
		t.Fatalf("%v %+v", err, v)
	}
	if got := p.must("consult", "show", v.Answers[1].ID); !strings.Contains(text, strings.TrimSpace(got)) {
		t.Errorf("by its own id: %q", got)
	}
	if _, errs, code := p.run("", "consult", "say", "last", "x"); code != exitFailure ||
		!strings.Contains(errs, v.Answers[1].ID+" (B claude)") {
		t.Errorf("said to a panel: exit %d, %q", code, errs)
	}
	_, errs, code := p.run("", "consult", "--engines", "claude,codex", "x")
	if code != exitFailure || !strings.Contains(errs, "engines: codex: ") {
		t.Errorf("exit %d, %q", code, errs)
	}
	if list := p.must("consult", "list"); strings.Count(list, "\n") != 5 || !jobdir.IsID(strings.Fields(list)[8]) {
		t.Errorf("the list is\n%s", list)
	}
	p.run("", "stop")
}
