package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/claude/claudetest"
)

// worksAlone returns a prompt whose program says something, notes a step, and never ends by
// itself.
func (p *place) worksAlone() map[string]any {
	return map[string]any{"render": "json", "prompt": claudetest.Prompt("x",
		claudetest.Step{Do: "hear", Message: p.heard()},
		claudetest.Step{
			Text: new(saidSoFar), Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}},
		},
		claudetest.Step{Do: "ledger", Message: p.ledger()}, claudetest.Step{Do: "hang"})}
}

// heard returns the file in which the program of a consult notes its interrupts, where that
// program may write.
func (p *place) heard() string { return p.ledger() + ".heard" }

// wantInterrupt checks that the program heard its only interrupt between the deadline of a
// run and its end.
func (p *place) wantInterrupt(t *testing.T, out outcome, timeout time.Duration) {
	t.Helper()
	var at int64
	b, err := os.ReadFile(p.heard())
	if _, scanned := fmt.Sscanf(string(b), "interrupt %d", &at); err != nil || scanned != nil ||
		strings.Count(string(b), "interrupt") != 1 {
		t.Fatalf("the program heard %q, want one interrupt: %v", b, err)
	}
	late := time.UnixMilli(at).Sub(time.UnixMilli(out.Began)) - timeout
	if late < -time.Millisecond || at > out.Ended {
		t.Errorf("the interrupt came %v after the deadline, want it before the end of %+v", late, out)
	}
}

// content returns the content of a file.
func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// long returns one of two times: the first if the tests may take long.
func long(whole, short time.Duration) time.Duration {
	if os.Getenv("HOLDLINE_LONG") != "" {
		return whole
	}
	return short
}

// outcome has the members of outcome.json that tests read.
type outcome struct {
	State   string   `json:"state"`
	Answer  string   `json:"answer"`
	Turns   int      `json:"turns"`
	Partial bool     `json:"partial"`
	Session string   `json:"session"`
	CostUSD *float64 `json:"cost_usd"`
	Began   int64    `json:"began_unix_ms"`
	Ended   int64    `json:"ended_unix_ms"`
}

// untilOutcome waits until the engine process of the only consult has written its outcome,
// and returns that.
func (p *place) untilOutcome(t *testing.T) outcome {
	t.Helper()
	var out outcome
	waitFor(t, "outcome.json", func() bool {
		files, _ := filepath.Glob(filepath.Join(p.dir, "home/.local/state/holdline/consults/*/outcome.json"))
		if len(files) != 1 {
			return false
		}
		b, err := os.ReadFile(files[0])
		return err == nil && json.Unmarshal(b, &out) == nil
	})
	return out
}

// wantOnTime checks that the outcome is a partial answer, and that the run ended at its
// deadline.
func (out outcome) wantOnTime(t *testing.T, timeout time.Duration) {
	t.Helper()
	took := time.Duration(out.Ended-out.Began) * time.Millisecond
	if !out.Partial || took < timeout || took > timeout+waitLimit {
		out.Answer = out.Answer[:min(len(out.Answer), 100)]
		t.Errorf("the engine process needed %v of %v: %+v", took, timeout, out)
	}
}

// TestConsultDeadlineWithoutDaemon kills the daemon before the deadline of a consult and
// starts the next one after it. The engine process meets the deadline alone: it
// interrupts the program on time and asks it for its best answer.
func TestConsultDeadlineWithoutDaemon(t *testing.T) {
	t.Parallel()
	away := long(30*time.Second, 3*time.Second)
	const timeout = slowness * 20 * time.Second // it must have begun by then
	p := newPlace(t)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	args := p.worksAlone()
	args["timeout_s"] = int(timeout / time.Second)
	id := a.call("consult", args)
	p.untilSteps(1)
	kill9(t, d.Process.Pid)
	back := time.After(away)

	out := p.untilOutcome(t)
	out.wantOnTime(t, timeout)
	p.wantInterrupt(t, out, timeout)
	<-back
	p.daemon()
	x := a.wait(id)
	if x.Error != nil || x.Result.IsError || !strings.Contains(x.raw, "fake answer: ") ||
		!strings.Contains(x.raw, `"partial":true`) {
		t.Errorf("the answer after the deadline: %s", x.raw)
	}
	a.rest(id)
	if n := p.steps(); n != 1 {
		t.Errorf("the program took %d steps, want 1: it ran once", n)
	}
}

// TestConsultOutlivesAbsence keeps the daemon away for longer than the time after which a
// worker counts as alone. The consult continues, and the next daemon can cancel it: the
// program's text, its session and its cost are kept.
func TestConsultOutlivesAbsence(t *testing.T) {
	t.Parallel()
	p := newPlace(t).windows(200).faults()
	p.dieAs("worker.alone", death{held: true})
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	args := p.worksAlone()
	args["wait_s"] = 0
	x := a.wait(a.call("consult", args))
	p.untilSteps(1)
	kill9(t, d.Process.Pid)
	waitFor(t, "the worker to be alone", func() bool { return p.died("worker.alone") })
	p.letGo("worker.alone")

	p.daemon()
	b := p.agent("--no-autostart").shake()
	handed := consultID(t, x)
	y := b.wait(b.call("consult_control", map[string]any{"consult_id": handed, "action": "cancel", "render": "json"}))
	if y.Error != nil || !strings.Contains(y.raw, saidSoFar) || !strings.Contains(y.raw, `"cancelled"`) {
		t.Errorf("the cancelled consult: %s", y.raw)
	}
	if out := p.untilOutcome(t); out.Session == "" || out.CostUSD == nil || out.State != "cancelled" {
		t.Errorf("the outcome has no session or no cost: %+v", out)
	}
	b.rest()
	if n := p.steps(); n != 1 {
		t.Errorf("the program took %d steps, want 1: it ran once", n)
	}
}

// TestConsultUnderStoppedDaemon stops the daemon with SIGSTOP, so that it stays attached
// and reads nothing, while the program writes long texts and uses hundreds of tools. The
// deadline and the outcome are on time all the same. When the daemon continues, the answer
// arrives, and nothing is missing.
func TestConsultUnderStoppedDaemon(t *testing.T) {
	t.Parallel()
	stopped := long(time.Minute, 4*time.Second)
	const timeout, talks, kib = slowness * 15 * time.Second, 3, 1024
	p := newPlace(t)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	talk := claudetest.Step{Do: "talk", N: kib}
	late := talk
	late.Delay = 0.2 // the daemon is stopped meanwhile
	prompt := claudetest.Prompt("x", claudetest.Step{Do: "hear", Message: p.heard()},
		claudetest.Step{Do: "ledger", Message: p.ledger()}, late, talk, talk, claudetest.Step{Do: "hang"})
	id := a.call("consult", map[string]any{
		"prompt": prompt, "render": "json", "timeout_s": int(timeout / time.Second),
	})
	p.untilSteps(1)
	if err := d.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	back := time.After(stopped)
	out := p.untilOutcome(t)
	<-back
	if err := d.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	out.wantOnTime(t, timeout)
	p.wantInterrupt(t, out, timeout)
	if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.raw, "fake answer: ") {
		t.Errorf("the answer after the deadline: %s", x.raw)
	}
	a.rest(id)

	var kept struct {
		Answer string
		Turns  int `json:"num_turns"`
	}
	dir := filepath.Join(p.dir, "home/.local/state/holdline/consults", p.id(t))
	decode(t, content(t, filepath.Join(dir, "answer.json")), &kept)
	text := claudetest.Talk(kib)
	if !strings.HasSuffix(out.Answer, text) || out.Turns != talks+1 {
		t.Errorf("the outcome has %d bytes of text and %d turns", len(out.Answer), out.Turns)
	}
	if kept.Answer != out.Answer || kept.Turns != out.Turns {
		t.Errorf("the kept answer has %d bytes of text and %d turns", len(kept.Answer), kept.Turns)
	}
	texts, tools := 0, 0
	for line := range strings.Lines(content(t, filepath.Join(dir, engine.FileTranscript))) {
		var e engine.Entry
		decode(t, line, &e)
		switch {
		case e.Kind == engine.KindText && e.Text == text:
			texts++
		case e.Kind == engine.KindTool:
			tools++
		}
	}
	if texts != talks || tools != talks*claudetest.TalkTools {
		t.Errorf("the transcript has %d whole texts and %d uses of tools", texts, tools)
	}
}

// TestConsultKilledWhileCancelled kills a process of a consult that is being cancelled,
// before its outcome is written. The consult counts as cancelled, and what its program had
// said is kept.
func TestConsultKilledWhileCancelled(t *testing.T) {
	t.Parallel()
	const point = "adapter.cancelled"
	for _, victim := range []string{"engine", "worker", "engine of an agent", "worker of an agent"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login().faults().countRuns()
			p.dieAs(point, death{who: "engine", held: true})
			args := p.worksAlone()
			victim, ofAgent := strings.CutSuffix(victim, " of an agent")
			if ofAgent {
				needAgents(t)
				p.configure(map[string]any{}, "consult", map[string]any{"agents": consultDeath{}.fakeAgent(p)})
				args["engine"] = fakeAgentEngine
				args["prompt"] = acptest.Prompt("x", acptest.Step{Say: saidSoFar}, acptest.Step{Shell: "true"},
					acptest.Step{Hang: true})
			}
			args["wait_s"] = 0
			a := p.agent().shake()
			x := a.wait(a.call("consult", args))
			p.untilConsultSays(t, saidSoFar)
			id := a.call("consult_control",
				map[string]any{"consult_id": consultID(t, x), "action": "cancel", "render": "json"})
			waitFor(t, "the engine process at "+point, func() bool { return p.died(point) })
			kill9(t, p.consultProcess(t, victim))
			consultDeath{victim: victim}.checkProcesses(t, p)
			if y := a.wait(id); y.Error != nil || !strings.Contains(y.raw, saidSoFar) ||
				!strings.Contains(y.raw, `"cancelled"`) {
				t.Errorf("the cancelled consult: %s", y.raw)
			}
			a.rest(id)
			p.settled(t)
			if runs := p.runs(t); runs != 1 {
				t.Errorf("the program was started %d times", runs)
			}
		})
	}
}
