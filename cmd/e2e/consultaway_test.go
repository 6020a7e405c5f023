package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
)

// worksAlone returns a prompt whose program says something, notes a step, and never ends by
// itself.
func (p *place) worksAlone() map[string]any {
	return map[string]any{"render": "json", "prompt": claudetest.Prompt("x",
		claudetest.Step{
			Text: new(saidSoFar), Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}},
		},
		claudetest.Step{Do: "ledger", Message: p.ledger()}, claudetest.Step{Do: "hang"})}
}

// outcome has the members of outcome.json that tests read.
type outcome struct {
	State   string   `json:"state"`
	Answer  string   `json:"answer"`
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
// deadline of two seconds.
func (out outcome) wantOnTime(t *testing.T) {
	t.Helper()
	took := time.Duration(out.Ended-out.Began) * time.Millisecond
	if !out.Partial || took < 2*time.Second || took > 2*time.Second+slowness*5*time.Second {
		t.Errorf("the engine process needed %v of 2 s: %+v", took, out)
	}
}

// TestConsultDeadlineWithoutDaemon kills the daemon before the deadline of a consult and
// starts the next one after it. The engine process meets the deadline alone: it
// interrupts the program on time and asks it for its best answer.
func TestConsultDeadlineWithoutDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	args := p.worksAlone()
	args["timeout_s"] = 2
	id := a.call("consult", args)
	p.untilSteps(1)
	kill9(t, d.Process.Pid)

	out := p.untilOutcome(t)
	out.wantOnTime(t)
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
// and reads nothing. The deadline and the outcome are on time all the same, and the answer
// arrives when the daemon continues.
func TestConsultUnderStoppedDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	args := p.worksAlone()
	args["timeout_s"] = 2
	id := a.call("consult", args)
	p.untilSteps(1)
	if err := d.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out := p.untilOutcome(t)
	if err := d.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	out.wantOnTime(t)
	if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.raw, "fake answer: ") {
		t.Errorf("the answer after the deadline: %s", x.raw)
	}
	a.rest(id)
}

// TestConsultProcessesKilledTogether kills the daemon and processes below it, in both
// orders, while the program answers. The next daemon gives one honest fault with the text
// so far, runs nothing again and leaves no process.
func TestConsultProcessesKilledTogether(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{
		{"daemon", "engine"},
		{"engine", "daemon"},
		{"daemon", "worker"},
		{"worker", "daemon"},
		{"daemon", "worker", "engine"},
		{"engine", "worker", "daemon"},
	} {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			a := p.agent().shake()
			id := a.call("consult", p.worksAlone())
			p.untilConsultSays(t, saidSoFar)
			p.untilSteps(1)
			pids := make([]int, len(order))
			for i, kind := range order {
				pids[i] = p.consultProcess(t, kind)
			}
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL) // the engine process may die with its worker
			}
			x := a.wait(id)
			if code := x.code(); code != "outcome_unknown" && code != "process_failure" {
				t.Errorf("the answer is no fault of a killed process: %s", x.raw)
			}
			if !strings.Contains(x.raw, saidSoFar) {
				t.Errorf("what the program had said is lost: %s", x.raw)
			}
			a.rest(id)
			p.settled(t)
			if n := p.steps(); n != 1 {
				t.Errorf("the program took %d steps, want 1: it ran once", n)
			}
		})
	}
}
