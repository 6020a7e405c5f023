package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/claude/claudetest"
	"holdline/protocol/process"
)

// wordy is a prompt whose program says n numbered parts, each with far more
// output than text, notes that, and ends without a result: what is known of
// its answer is what was read of those.
func (p *place) wordy(n int) map[string]any {
	steps := make([]claudetest.Step, 0, n+3)
	for i := range n {
		text := fmt.Sprintf("part %d;", i)
		steps = append(steps, claudetest.Step{Text: &text, Tool: claudetest.Tool{
			Name: "Read", Input: map[string]any{"file_path": strings.Repeat("x", 250_000)},
		}})
	}
	note := claudetest.Step{Do: "ledger", Message: p.ledger()}
	last := note
	last.Delay = 0.3
	steps = append(steps, note, last, claudetest.Step{Do: "exit", N: 3})
	return map[string]any{"prompt": claudetest.Prompt("x", steps...), "wait_s": 0}
}

// TestCheckpointNotAcked kills the daemon between a checkpoint and its ack.
// The worker ends alone, so that its spool begins before the checkpoint: what
// the model had said is there once.
func TestCheckpointNotAcked(t *testing.T) {
	const parts = 16                      // 4 MiB, three checkpoints
	for times := 1; times <= 3; times++ { // at the first, nothing was ever acked
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			p := newPlace(t).windows(100).faults()
			p.dieAt("consult.checkpoint", times)
			d := p.daemon()
			a := p.agent("--no-autostart").shake()
			if x := a.wait(a.call("consult", p.wordy(parts))); x.Result.IsError || x.Error != nil {
				t.Fatal(x.raw)
			}
			for alive(d.Process.Pid) {
				time.Sleep(time.Millisecond)
			}
			if !p.died("consult.checkpoint") {
				t.Fatal("the daemon died elsewhere")
			}
			p.untilSteps(2)
			dirs, _ := filepath.Glob(filepath.Join(p.dir, "home/.local/state/holdline/consults/*"))
			if len(dirs) != 1 {
				t.Fatalf("consults: %v", dirs)
			}
			st := p.untilLeft(dirs[0])
			if st.Spool == nil || st.Spool.Begin == nil || (st.Spool.AfterSeq > 0) != (times > 1) || (*st.Spool.Begin > 0) != (times > 1) {
				t.Fatalf("the spool is %+v, want it to begin with what was acked", st.Spool)
			}
			var c struct{ Seq, Total int64 }
			b, err := os.ReadFile(filepath.Join(dirs[0], "run.json"))
			if err == nil {
				err = json.Unmarshal(b, &c)
			}
			if err != nil || c.Seq <= st.Spool.AfterSeq || c.Total <= *st.Spool.Begin {
				t.Fatalf("checkpoint %+v, %v; the spool begins after %d", c, err, st.Spool.AfterSeq)
			}
			p.daemon()
			p.ended()
			b, err = os.ReadFile(filepath.Join(dirs[0], "answer.json"))
			if err != nil {
				t.Fatal(err)
			}
			for i := range parts {
				if n := strings.Count(string(b), fmt.Sprintf("part %d;", i)); n != 1 {
					t.Errorf("part %d is there %d times", i, n)
				}
			}
		})
	}
}

// untilLeft waits until the worker of dir has ended by itself, and returns its
// last words.
func (p *place) untilLeft(dir string) process.State {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		st, err := process.ReadState(dir)
		if err == nil && st.Phase == process.PhaseExited && !alive(st.PID) {
			return st
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the worker is %+v, %v", st, err)
		}
	}
}
