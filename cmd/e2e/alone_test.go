package e2e

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/process"
)

// wordy returns a prompt whose program says n numbered parts, each with far more output
// than text, notes that, and ends without a result. What is known of its answer is what was
// read of those parts.
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

// TestEndedAlone kills the daemon. The consult ends while no daemon runs and its worker
// counts as alone. What the model said is there, once.
func TestEndedAlone(t *testing.T) {
	t.Parallel()
	const parts = 16 // 4 MiB of output
	p := newPlace(t).windows(40).faults()
	p.dieAt("private.called", 1)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	if x := a.wait(a.call("consult", p.wordy(parts))); x.Result.IsError || x.Error != nil {
		t.Fatal(x.raw)
	}
	for alive(d.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	if !p.died("private.called") {
		t.Fatal("the daemon died elsewhere")
	}
	p.untilSteps(2)
	dirs, _ := filepath.Glob(filepath.Join(p.dir, "home/.local/state/holdline/consults/*"))
	if len(dirs) != 1 {
		t.Fatalf("consults: %v", dirs)
	}
	p.untilLeft(dirs[0])
	p.daemon()
	p.ended()
	b, err := os.ReadFile(filepath.Join(dirs[0], "answer.json"))
	var kept map[string]any
	if err := cmp.Or(err, json.Unmarshal(b, &kept)); err != nil {
		t.Fatal(err)
	}
	delete(kept, "question") // it has the beginning of the script for the model
	delete(kept, "prompt")   // it has the script
	said := fmt.Sprint(kept)
	for i := range parts {
		if n := strings.Count(said, fmt.Sprintf("part %d;", i)); n != 1 {
			t.Errorf("part %d is there %d times", i, n)
		}
	}
}

// untilLeft waits until the worker of dir has exited by itself, and returns its final
// state.
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

// TestProxyAndDaemonKilled kills both. The client of an attended consult cannot come back,
// so the consult ends as soon as a daemon runs again, and what the model said is kept. A
// consult in the background continues.
func TestProxyAndDaemonKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemon()
	b := p.agent("--no-autostart").shake()
	hidden := p.hangs()
	hidden["wait_s"] = 0
	if x := b.wait(b.call("consult", hidden)); x.Result.IsError || x.Error != nil {
		t.Fatal(x.raw)
	}
	p.untilSteps(1)
	a := p.agent("--no-autostart").shake()
	text := "what the model had said"
	a.call("consult", map[string]any{"prompt": claudetest.Prompt("x",
		claudetest.Step{Text: &text, Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "x"}}},
		claudetest.Step{Do: "ledger", Message: p.ledger()}, claudetest.Step{Do: "hang"})})
	p.untilSteps(2)
	s := p.status()
	kill9(t, d.Process.Pid)
	kill9(t, a.cmd.Process.Pid)
	kill9(t, b.cmd.Process.Pid)
	begin := time.Now()
	p.daemon()
	list := p.ended()
	t.Logf("ended after %v", time.Since(begin))
	if !strings.Contains(list, "cancelled") || !strings.Contains(list, "running") {
		t.Errorf("consults:\n%s", list)
	}
	files, _ := filepath.Glob(filepath.Join(p.dir, "home/.local/state/holdline/consults/*/answer.json"))
	if len(files) != 1 {
		t.Fatalf("answers: %v", files)
	}
	answer, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(answer), text) ||
		!strings.Contains(string(answer), "its client is gone") {
		t.Errorf("%v %s", err, answer)
	}
	for _, w := range s.Workers {
		if ended := filepath.Base(filepath.Dir(files[0])) == w.ID; alive(w.ChildPID) == ended {
			t.Errorf("worker %s: child lives: %v, its consult has ended: %v", w.ID, !ended, ended)
		}
	}
}

// TestTooLargeToKeep resumes with a request whose line is not kept any more. It gets the
// answer of the consult that it began.
func TestTooLargeToKeep(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"running", "answered", "never begun"} {
		t.Run(how, func(t *testing.T) {
			p := newPlace(t)
			d := p.daemon()
			const session = "9f8b7c6d-1111-4222-8333-444455556666"
			c := p.dial(t,
				`{"holdline":1,"role":"mcp","session":"`+session+`","identity":"test","cwd":"`+p.project+`"}`)
			fmt.Fprintln(c,
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
			fmt.Fprintln(c, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			pause := 1.0
			if how == "answered" {
				pause = 0.3
			}
			args := p.slow(pause)
			args["wait_s"] = 60
			b, err := json.Marshal(map[string]any{
				"jsonrpc": "2.0", "id": 2, "method": "tools/call",
				"params": map[string]any{"name": "consult", "arguments": args},
			})
			if err != nil {
				t.Fatal(err)
			}
			if how != "never begun" {
				fmt.Fprintf(c, "%s\n", b)
				p.untilSteps(1)
			}
			kill9(t, d.Process.Pid)
			c.Close()
			if how == "answered" {
				p.untilSteps(2)
			}
			p.daemon()
			if how == "answered" {
				p.ended()
			}
			c = p.dial(t, `{"holdline":1,"role":"mcp","session":"`+session+`","identity":"test","cwd":"`+p.project+
				`","resume":true,"next":4,"pending":[3]}`)
			fmt.Fprintln(c, `{"holdline":1,"replay":1,"answered":true}`)
			fmt.Fprintln(c,
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
			fmt.Fprintln(c, `{"holdline":1,"replay":2,"answered":true}`)
			fmt.Fprintln(c, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			fmt.Fprintln(c, `{"holdline":1,"replay":3,"answered":false,"bytes":false,"id":2}`)
			_ = c.SetReadDeadline(time.Now().Add(waitLimit))
			want := "the one answer"
			if how == "never begun" {
				want = "resource_exhausted"
			}
			lines := bufio.NewScanner(c)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				if strings.Contains(lines.Text(), `"id":2,`) {
					break
				}
			}
			if got := lines.Text(); !strings.Contains(got, want) {
				t.Errorf("the answer is %s, want %s", got, want)
			}
			if n := p.steps(); how != "never begun" && n != 2 {
				t.Errorf("the program took %d steps, want 2: it ran once", n)
			}
			c.Close()
		})
	}
}

// dial connects to the place's daemon and sends a greeting, as a proxy does.
func (p *place) dial(t *testing.T, greeting string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.status().Daemon.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(c, greeting)
	return c
}
