package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// consultDeath says which processes of a consult SIGKILL ends, and at which step.
type consultDeath struct {
	victim string   // daemon, worker, engine or program
	others []string // further ones, which the test kills right after the victim
	step   string   // of the consult
	point  string   // the fault point at which the victim dies; with "" the test kills it
	held   bool     // the engine process is held at the point, and the test kills the victim

	grandchild bool // the program has a child in a session of its own
	agent      bool // the consult is of an agent that speaks the Agent Client Protocol
}

// String returns the name of the row.
func (d consultDeath) String() string {
	name := strings.Join(append([]string{d.victim}, d.others...), " ") + " " + d.step
	if d.held || strings.HasPrefix(d.point, "worker.") {
		name += " at " + d.point
	}
	return name
}

// kills reports whether a process of that kind dies.
func (d consultDeath) kills(kind string) bool {
	return d.victim == kind || slices.Contains(d.others, kind)
}

// consultDeaths are the steps of a consult at which each of its processes lives. The engine
// process has ended when its answer is kept. Before the program has its prompt, its death
// and that of its engine process are the same.
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

// heldDeaths are those that find the engine process at one of its points, and further
// ones behind the answer.
var heldDeaths = []consultDeath{
	{victim: "program", step: "answered"},
	{victim: "engine", step: "prompted", point: "adapter.started", held: true},
	{victim: "engine", step: "prompted", point: "adapter.told", held: true, grandchild: true},
	{victim: "engine", step: "said", point: "adapter.exited", held: true, grandchild: true},
	{victim: "engine", step: "answered", point: "adapter.answered", held: true},
	{victim: "worker", step: "starting", point: "worker.begun"},
	{victim: "worker", step: "starting", point: "worker.detached"},
	{victim: "worker", step: "starting", point: "worker.locked"},
	{victim: "worker", step: "starting", point: "worker.checked"},
	{victim: "worker", step: "starting", point: "worker.listening"},
	{victim: "worker", step: "starting", point: "worker.forked"},
	{victim: "worker", step: "starting", point: "worker.recorded"},
	{victim: "worker", step: "starting", point: "worker.attached"},
	{victim: "worker", step: "starting", point: "worker.taken"},
	{victim: "worker", step: "starting", point: "worker.phase"},
	{victim: "worker", step: "starting", point: "worker.read"},
	{victim: "worker", step: "prompted", point: "worker.output"},
	{victim: "worker", step: "prompted", point: "worker.acked"},
	{victim: "worker", step: "starting", point: "adapter.begun", held: true},
	{victim: "worker", step: "prompted", point: "adapter.started", held: true},
	{victim: "worker", step: "prompted", point: "adapter.told", held: true, grandchild: true},
	{victim: "worker", step: "said", point: "adapter.exited", held: true, grandchild: true},
	{victim: "worker", step: "answered", point: "adapter.outcome", held: true},
	{victim: "worker", step: "answered", point: "adapter.answered", held: true},
	{victim: "worker", step: "answered", point: "worker.closed"},
	{victim: "worker", step: "kept", point: "worker.left"},
}

// jointDeaths returns the deaths of several processes together, in each order.
func jointDeaths() (all []consultDeath) {
	for _, order := range [][]string{
		{"daemon", "engine"},
		{"engine", "daemon"},
		{"daemon", "worker"},
		{"worker", "daemon"},
		{"daemon", "worker", "engine"},
		{"daemon", "engine", "worker"},
		{"worker", "daemon", "engine"},
		{"worker", "engine", "daemon"},
		{"engine", "daemon", "worker"},
		{"engine", "worker", "daemon"},
	} {
		all = append(all,
			consultDeath{victim: order[0], others: order[1:], step: "answering"},
			consultDeath{victim: order[0], others: order[1:], step: "starting", point: "adapter.begun", held: true},
			consultDeath{victim: order[0], others: order[1:], step: "answered", point: "adapter.outcome", held: true})
	}
	return all
}

// untold are the points at which a worker has not taken its call, so that its process was told nothing.
var untold = []string{
	"worker.begun", "worker.detached", "worker.locked", "worker.checked", "worker.listening", "worker.starting",
	"worker.forked", "worker.attached", "worker.read",
}

// outcomeKept reports whether the death leaves the answer intact: the daemon alone may die
// at any step, a worker before its process was told anything, and the others once outcome.json is written or the
// program has answered.
func (d consultDeath) outcomeKept() bool {
	if d.victim == "worker" && len(d.others) == 0 && slices.Contains(untold, d.point) {
		return true
	}
	return d.victim == "daemon" && len(d.others) == 0 || d.step == "answered" || d.step == "kept"
}

// TestConsultWalk kills each process of a consult at each step, once while a client
// waits for the answer and once after the consult has been handed out by its id. Each
// consult gets one answer or one fault that says what happened, its program runs once,
// what the program had said is kept, and no process is left.
func TestConsultWalk(t *testing.T) {
	t.Parallel()
	walkAll(t, consultDeaths, true)
}

// TestConsultWalkHeld does the same at the points of the engine process. With HOLDLINE_LONG
// it takes each death both ways.
func TestConsultWalkHeld(t *testing.T) {
	t.Parallel()
	walkAll(t, heldDeaths, os.Getenv("HOLDLINE_LONG") != "")
}

// TestConsultProcessesKilledTogether kills several processes of a consult, in each order.
// The next daemon gives the answer or one honest fault. With HOLDLINE_LONG it takes each
// order at each step and both ways.
func TestConsultProcessesKilledTogether(t *testing.T) {
	t.Parallel()
	all, both := jointDeaths(), os.Getenv("HOLDLINE_LONG") != ""
	if !both {
		var some []consultDeath
		for i := 0; i < len(all); i += 3 { // of each order another of its three steps
			some = append(some, all[i+i/3%3])
		}
		all = some
	}
	walkAll(t, all, both)
}

// TestWorkerKilledBeforeItsProgramWasTold_ConsultBeginsAgain kills the worker of a consult when it has not been told
// anything, also together with the daemon, in each order. The consult begins again: its program runs once, and there
// is one answer.
func TestWorkerKilledBeforeItsProgramWasTold_ConsultBeginsAgain(t *testing.T) {
	t.Parallel()
	const point = "private.started"
	for _, victims := range [][]string{{"worker"}, {"worker", "daemon"}, {"daemon", "worker"}} {
		t.Run(strings.Join(victims, " "), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login().faults().countRuns()
			p.dieAs(point, death{who: "daemon", held: true})
			a := p.agent().shake()
			id := a.call("consult", p.slow(0))
			waitFor(t, "the daemon at "+point, func() bool { return p.died(point) })
			pids := map[string]int{"daemon": p.pid(0), "worker": p.consultProcess(t, "worker")}
			kill := func(victim string, sig syscall.Signal) {
				t.Helper()
				if err := syscall.Kill(pids[victim], sig); err != nil {
					t.Fatal(err)
				}
			}
			kill("worker", syscall.SIGSTOP) // so that the next daemon cannot tell it anything either
			for _, victim := range victims {
				kill(victim, syscall.SIGKILL)
			}
			p.letGo(point)
			x := a.wait(id)
			p.wantAnswer(t, x)
			a.rest(id)
			p.look("stop")
			p.tidy(t)
		})
	}
}

// walkAll lets consults meet the deaths: with both, each with a client that waits and with
// none, otherwise with one or the other in turn.
func walkAll(t *testing.T, all []consultDeath, both bool) {
	t.Helper()
	slots := make(chan struct{}, atOnce)
	for i, d := range all {
		for _, attended := range []bool{true, false} {
			if raceEnabled && i%raceShare != 0 || !both && attended != (i%2 == 0) {
				continue
			}
			owner := map[bool]string{true: "attended", false: "detached"}[attended]
			t.Run(d.String()+" "+owner, func(t *testing.T) {
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
	consult := map[string]any{}
	if d.step == "queued" {
		consult["max_concurrent"] = 1
	}
	if d.agent {
		consult["agents"] = d.fakeAgent(p)
	}
	p.configure(map[string]any{}, "consult", consult)
	if d.point != "" {
		who := d.victim
		if d.held {
			who = "engine"
		}
		p.dieAs(d.point, death{who: who, held: d.held})
	}
	a := p.agent().shake()
	blocker := 0
	if d.step == "queued" {
		blocks := p.ledger() + ".blocks"
		blocker = a.call("consult", map[string]any{"prompt": claudetest.Prompt("x",
			claudetest.Step{Do: "ledger", Message: blocks}, claudetest.Step{Do: "hang"})})
		waitFor(t, "the consult that takes the only place", func() bool { return exists(blocks) })
		p.countRuns() // of the other consult alone
	}

	args := map[string]any{"prompt": claudetest.Prompt("x", d.script(p)...), "render": "json"}
	if d.agent {
		args["engine"], args["prompt"] = fakeAgentEngine, acptest.Prompt("x", d.agentScript(p)...)
	}
	if !attended {
		args["wait_s"] = 0
	}
	daemon := p.pid(0)
	id := a.call("consult", args)
	d.kill(t, p)
	if d.step == "queued" {
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, blocker))
	}

	d.checkProcesses(t, p)
	x := a.wait(id)
	if !attended && !x.Result.IsError {
		x = a.result(t, x)
	}
	d.check(t, p, x)
	if d.kills("daemon") { // which may have answered before; the next one clears up
		p.pid(daemon)
	}
	a.rest(id)
	p.settled(t)
	if d.point != "" && !p.died(d.point) {
		t.Errorf("no process came to %s", d.point)
	}
	p.look("stop")
	p.tidy(t)
}

// script returns the steps of the consult program: it says something and answers, and notes
// each part in the ledger. If a death must find it at work, it works until then.
func (d consultDeath) script(p *place) []claudetest.Step {
	note := claudetest.Step{Do: "ledger", Message: p.ledger()}
	last := note
	switch {
	case d.step == "answering" && d.outcomeKept():
		last.Delay = 6 // it must be at work when the test has seen what it said
	case d.step == "answering" || d.step == "prompted" && !d.outcomeKept():
		last.Delay = waitLimit.Seconds()
	}
	steps := []claudetest.Step{
		note,
		{Text: new(saidSoFar), Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}}},
		last, claudetest.Say(saidLast),
	}
	switch {
	case d.grandchild:
		steps = slices.Insert(steps, 0, claudetest.Step{Do: "grandchild", N: 1})
	case d.victim == "program" && d.step == "prompted":
		steps = []claudetest.Step{note, {Do: "die"}}
	case d.victim == "program" && d.step == "answered":
		steps = slices.Insert(steps, 0, claudetest.Step{Do: "hear", Message: p.heard()}, claudetest.Step{Do: "linger"})
	}
	return steps
}

// kill ends the victims, unless the only one dies at a fault point or by its script.
func (d consultDeath) kill(t *testing.T, p *place) {
	t.Helper()
	switch {
	case d.held:
		waitFor(t, "the engine process at "+d.point, func() bool { return p.died(d.point) })
	case d.step == "queued":
		p.until("the queued consult", func(s control.StatusAnswer) bool { return s.Consults.Queued == 1 })
	case d.step == "answering":
		p.untilConsultSays(t, saidSoFar)
	case d.victim == "program" && d.step == "answered":
		waitFor(t, "the end of the program's input", func() bool { return exists(p.heard()) })
	default:
		return
	}
	if d.grandchild {
		p.untilSteps(1)
		// Within its exec a process has no environment to be seen.
		waitFor(t, "the program's child", func() bool {
			return slices.ContainsFunc(p.carriers(), func(cmd string) bool { return strings.Contains(cmd, "sleep") })
		})
	}
	var pids []int
	for _, kind := range append([]string{d.victim}, d.others...) {
		pids = append(pids, p.consultProcess(t, kind))
	}
	for i, pid := range pids {
		// The engine process may have died with its worker.
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && i == 0 {
			t.Fatal(err)
		}
	}
}

// checkProcesses checks that all processes below the worker are gone soon after the death of
// the engine process, and of the worker.
func (d consultDeath) checkProcesses(t *testing.T, p *place) {
	t.Helper()
	if !d.kills("worker") && !d.kills("engine") {
		return
	}
	if d.point != "" && !d.held {
		waitFor(t, "the death at "+d.point, func() bool { return p.died(d.point) })
	}
	deadline := time.Now().Add(waitLimit)
	for {
		left := p.carriers()
		switch {
		case len(left) == 0:
			return
		case time.Now().After(deadline):
			t.Errorf("%v after the death there are %q", waitLimit, left)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// carriers returns the command lines of the processes that carry the mark of a worker of
// the place's consults: all that it has started, and what that has started.
func (p *place) carriers() (found []string) {
	mark := []byte(process.EnvWorker + "=" + p.dir + "/")
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(env, mark) {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, string(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '})))
	}
	return found
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
		return strings.Contains(cmd, " engine ")
	}
	return strings.Contains(cmd, "--input-format") || strings.Contains(cmd, fakeAgentProgram+" ")
}

// untilConsultSays waits until the only consult has said text.
func (p *place) untilConsultSays(tb testing.TB, text string) {
	tb.Helper()
	waitFor(tb, "the consult to say "+text, func() bool {
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
func consultID(tb testing.TB, x answer) string {
	tb.Helper()
	var handed struct {
		ID string `json:"consult_id"`
	}
	if err := json.Unmarshal(x.Result.StructuredContent, &handed); err != nil || handed.ID == "" {
		tb.Fatalf("no consult_id in %s: %v", x.raw, err)
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
	// At these points the worker may have taken its call, and may not.
	either := (d.point == "worker.phase" || d.point == "worker.recorded") && x.Error == nil && !x.Result.IsError
	if d.outcomeKept() || either {
		p.wantAnswer(t, x)
		return
	}
	if d.held && p.began() != (d.step != "starting") {
		t.Errorf("the engine process was at %s, and that the run has begun is %v", d.point, p.began())
	}
	if codes := d.faults(p); x.Error != nil || !x.Result.IsError || !slices.Contains(codes, fault.Code(x.code())) {
		t.Errorf("the answer is not the fault %v: %s", codes, x.raw)
	}
	if (d.step == "answering" || d.step == "said") && !strings.Contains(x.raw, saidSoFar) ||
		d.step == "said" && !strings.Contains(x.raw, saidLast) {
		t.Errorf("what the program had said is lost: %s", x.raw)
	}
}

// faults returns the codes that the consult's fault may have. What became of a run is
// unknown only if its worker is lost, and only if the transcript says that the program may
// have run. A worker that dies behind its engine process may have told of that before.
func (d consultDeath) faults(p *place) []fault.Code {
	switch {
	case !d.kills("worker") || !p.began():
		return []fault.Code{fault.ProcessFailure}
	case d.victim == "engine" || slices.Equal(d.others, []string{"engine", "worker"}):
		return []fault.Code{fault.OutcomeUnknown, fault.ProcessFailure}
	}
	return []fault.Code{fault.OutcomeUnknown}
}

// began reports whether the transcript of a consult of the place has its first line: the
// program may have run.
func (p *place) began() bool {
	found, _ := filepath.Glob(filepath.Join(p.dir, "home/.local/state/holdline/consults/*/transcript.jsonl"))
	return slices.ContainsFunc(found, func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Contains(b, []byte{'\n'})
	})
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

// countRuns makes the consult programs of the place note that they were started.
func (p *place) countRuns() *place {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.programs(), claudetest.FakeRuns), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// runs returns how often a consult program was started in the place.
func (p *place) runs(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.programs(), claudetest.FakeRuns))
	if err != nil {
		t.Error(err)
	}
	return bytes.Count(b, []byte{'\n'})
}
