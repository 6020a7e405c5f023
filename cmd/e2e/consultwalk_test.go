package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// consultDeath is one process of a consult and the step at which SIGKILL ends it.
type consultDeath struct {
	victim string // daemon, worker, engine or program
	step   string // of the consult
	point  string // the fault point at which it dies; with "" the test kills it
}

// consultDeaths are the steps of a consult at which each of its processes lives. The engine
// process has ended when its answer is kept, and the consult program when it has answered.
// Before the program has its prompt, its death and that of its engine process are the same.
var consultDeaths = []consultDeath{
	{victim: "daemon", step: "queued"},
	{victim: "daemon", step: "starting", point: "private.starting"},
	{victim: "daemon", step: "prompted", point: "write.made"},
	{victim: "daemon", step: "answering"},
	{victim: "daemon", step: "answered", point: "private.followed"},
	{victim: "daemon", step: "kept", point: "consult.kept"},
	{victim: "worker", step: "starting", point: "worker.starting"},
	{victim: "worker", step: "prompted", point: "worker.written"},
	{victim: "worker", step: "answering"},
	{victim: "worker", step: "answered", point: "worker.exited"},
	{victim: "worker", step: "kept", point: "worker.leaving"},
	{victim: "engine", step: "starting", point: "adapter.begun"},
	{victim: "engine", step: "prompted", point: "adapter.told"},
	{victim: "engine", step: "answering"},
	{victim: "engine", step: "answered", point: "adapter.outcome"},
	{victim: "program", step: "prompted"},
	{victim: "program", step: "answering"},
}

// outcomeKept reports whether the death leaves the answer intact: the daemon may die at any
// step, and the others once outcome.json is written.
func (d consultDeath) outcomeKept() bool {
	return d.victim == "daemon" || d.step == "answered" || d.step == "kept"
}

// TestConsultWalk kills each process of a consult at each step, once while a client
// waits for the answer and once after the consult has been handed out by its id. Each
// consult gets one answer or one fault that says what happened, its program runs once,
// what the program had said is kept, and no process is left.
func TestConsultWalk(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, atOnce)
	for i, d := range consultDeaths {
		for _, attended := range []bool{true, false} {
			if raceEnabled && i%raceShare != 0 {
				continue
			}
			owner := map[bool]string{true: "attended", false: "detached"}[attended]
			t.Run(d.victim+" "+d.step+" "+owner, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				d.walk(t, attended)
			})
		}
	}
}

const (
	saidSoFar = "So far so good."
	saidLast  = "the one answer"
)

// walk lets one consult meet the death, and checks the result.
func (d consultDeath) walk(t *testing.T, attended bool) {
	t.Helper()
	p := newPlace(t).login().faults().countRuns()
	if d.step == "queued" {
		p.configure(map[string]any{}, "consult", map[string]any{"max_concurrent": 1})
	}
	if d.point != "" {
		p.dieAs(d.point, death{who: map[bool]string{true: d.victim}[d.victim != "daemon"]})
	}
	a := p.agent().shake()
	blocker := 0
	if d.step == "queued" {
		blocker = a.call("consult", map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "hang"})})
		p.until("the consult that takes the only place",
			func(s control.StatusAnswer) bool { return s.Consults.Running == 1 })
	}

	args := map[string]any{"prompt": claudetest.Prompt("x", d.script(p)...), "render": "json"}
	if !attended {
		args["wait_s"] = 0
	}
	id := a.call("consult", args)
	d.kill(t, p)
	if d.step == "queued" {
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, blocker))
	}

	x := a.wait(id)
	if !attended && !x.Result.IsError {
		x = a.result(t, x)
	}
	d.check(t, p, x)
	a.rest(id)
	p.settled(t)
	if d.point != "" && !p.died(d.point) {
		t.Errorf("no process came to %s", d.point)
	}
	p.run("", "stop")
	p.tidy(t)
}

// script returns the steps of the consult program: it says something, works for a second if
// a death must find it at work, and answers. It notes each part in the ledger.
func (d consultDeath) script(p *place) []claudetest.Step {
	note := claudetest.Step{Do: "ledger", Message: p.ledger()}
	last := note
	if d.step == "answering" || d.step == "prompted" && d.victim != "daemon" {
		last.Delay = 1
	}
	steps := []claudetest.Step{
		note,
		{Text: new(saidSoFar), Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}}},
		last, claudetest.Say(saidLast),
	}
	if d.victim == "program" && d.step == "prompted" {
		steps = []claudetest.Step{note, {Do: "die"}}
	}
	return steps
}

// kill ends the victim, unless it dies at a fault point or by its script.
func (d consultDeath) kill(t *testing.T, p *place) {
	t.Helper()
	switch d.step {
	case "queued":
		p.until("the queued consult", func(s control.StatusAnswer) bool { return s.Consults.Queued == 1 })
	case "answering":
		p.untilConsultSays(t, saidSoFar)
	default:
		return
	}
	if err := syscall.Kill(p.consultProcess(t, d.victim), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// consultProcess returns the pid of the daemon, or of the worker, engine process or program
// of the only consult.
func (p *place) consultProcess(t *testing.T, kind string) int {
	t.Helper()
	if kind == "daemon" {
		return p.pid(0)
	}
	for pid, cmd := range p.processes() {
		if commandIs(cmd, kind) {
			return pid
		}
	}
	t.Fatalf("no %s among %v", kind, p.processes())
	return 0
}

// commandIs reports whether a command line is that of a consult's worker, engine process or
// program.
func commandIs(cmd, victim string) bool {
	switch victim {
	case "worker":
		return strings.Contains(cmd, " worker ")
	case "engine":
		return strings.Contains(cmd, " engine claude")
	}
	return strings.Contains(cmd, "--input-format")
}

// untilConsultSays waits until the only consult has said text.
func (p *place) untilConsultSays(t *testing.T, text string) {
	t.Helper()
	waitFor(t, "the consult to say "+text, func() bool {
		out, _, _ := p.run("", "consult", "list", "--json")
		var list []control.Consult
		if json.Unmarshal([]byte(out), &list) != nil || len(list) == 0 {
			return false
		}
		out, _, _ = p.run("", "consult", "show", list[0].ID)
		return strings.Contains(out, text)
	})
}

// consultID returns the id of the consult that an answer has handed out.
func consultID(t *testing.T, x answer) string {
	t.Helper()
	var handed struct {
		ID string `json:"consult_id"`
	}
	if err := json.Unmarshal(x.Result.StructuredContent, &handed); err != nil || handed.ID == "" {
		t.Fatalf("no consult_id in %s: %v", x.raw, err)
	}
	return handed.ID
}

// result returns the answer to consult_result for the consult that x has handed out.
func (a *agent) result(t *testing.T, x answer) answer {
	t.Helper()
	return a.wait(a.call("consult_result", map[string]any{
		"consult_id": consultID(t, x), "wait_s": int(2 * waitLimit / time.Second), "render": "json",
	}))
}

// check checks the answer, or the fault, and how often the program ran.
func (d consultDeath) check(t *testing.T, p *place, x answer) {
	t.Helper()
	if runs := p.runs(t); runs > 1 {
		t.Errorf("the program was started %d times", runs)
	}
	if d.outcomeKept() {
		p.wantAnswer(t, x)
		return
	}
	p.wantFault(t, x, d.fault(p))
	if d.step == "answering" && !strings.Contains(x.raw, saidSoFar) {
		t.Errorf("what the program had said is lost: %s", x.raw)
	}
}

// fault returns the code of the consult's fault. What became of a run is unknown only if
// its worker is lost, and only if the transcript says that the program may have run.
func (d consultDeath) fault(p *place) fault.Code {
	if d.victim == "worker" && p.began() {
		return fault.OutcomeUnknown
	}
	return fault.ProcessFailure
}

// began reports whether a consult of the place has a transcript: its program may have run.
func (p *place) began() bool {
	found, _ := filepath.Glob(filepath.Join(p.dir, "home/.local/state/holdline/consults/*/transcript.jsonl"))
	return len(found) > 0
}

// wantAnswer checks that x is the whole answer of [consultDeath.script], whose program ran
// once.
func (p *place) wantAnswer(t *testing.T, x answer) {
	t.Helper()
	if runs, steps := p.runs(t), p.steps(); x.Error != nil || x.Result.IsError ||
		!strings.Contains(x.raw, saidLast) || strings.Contains(x.raw, `"partial":true`) || runs != 1 || steps != 2 {
		t.Errorf("the program was started %d times, took %d steps, and the answer is %s", runs, steps, x.raw)
	}
}

// wantFault checks that x is a fault with that code.
func (p *place) wantFault(t *testing.T, x answer, code fault.Code) {
	t.Helper()
	if x.Error != nil || !x.Result.IsError || x.code() != string(code) {
		t.Errorf("the answer is not the fault %s: %s", code, x.raw)
	}
}

// countRuns makes the consult programs of the place note that they were started.
func (p *place) countRuns() *place {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "home", claudetest.FakeRuns), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// runs returns how often a consult program was started in the place.
func (p *place) runs(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "home", claudetest.FakeRuns))
	if err != nil {
		t.Error(err)
	}
	return bytes.Count(b, []byte{'\n'})
}
