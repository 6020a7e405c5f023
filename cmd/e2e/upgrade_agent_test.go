package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// TestUpgradeUnderAgent replaces the daemon under a connected agent, which does not notice.
func TestUpgradeUnderAgent(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.installVersion(t, older)
	p.daemonAt(p.bin())
	a := p.agent().shake()
	for _, v := range []string{newer, older, newer} {
		p.installVersion(t, v)
		if out, errs, code := p.run("", "upgrade"); code != 0 {
			t.Fatalf("upgrade: exit %d, %s%s", code, out, errs)
		}
		if x := a.ask("ping", map[string]any{}); x.Error != nil {
			t.Errorf("ping under version %s = %s", v, x.raw)
		}
		if x := a.wait(a.call("health_snapshot", nil)); x.Error != nil || x.Result.IsError {
			t.Errorf("health_snapshot under version %s = %s", v, x.raw)
		}
	}
	a.leave()
}

// TestUpgradeDuringConsult replaces the daemon three times while a consult runs. Its answer
// arrives, and its program runs once.
func TestUpgradeDuringConsult(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.installVersion(t, older)
	pid := p.daemonAt(p.bin()).Process.Pid
	a := p.agent().shake()
	ledger := p.ledger()
	opinion := claudetest.Say("an opinion")
	opinion.Delay = 1.5
	id := a.call("consult", map[string]any{
		"prompt": claudetest.Prompt("what do you think?", claudetest.Step{Do: "ledger", Message: ledger}, opinion),
	})
	waitFor(t, "the program", func() bool { b, err := os.ReadFile(ledger); return err == nil && len(b) > 0 })
	for _, v := range []string{newer, older, newer} {
		p.installVersion(t, v)
		if out, errs, code := p.run("", "upgrade"); code != 0 {
			t.Fatalf("upgrade: exit %d, %s%s", code, out, errs)
		}
	}
	if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.text(), "an opinion") {
		t.Errorf("consult = %s", x.raw)
	}
	if b, err := os.ReadFile(ledger); err != nil || strings.Count(string(b), "\n") != 1 {
		t.Errorf("the program ran as %q, %v, want one line", b, err)
	}
	if d := p.status().Daemon; d.PID != pid || d.Epoch != 4 {
		t.Errorf("daemon = %+v", d)
	}
	a.leave()
}

// TestUpgradeUnderLoad upgrades twenty times while eight agents call holdline's own tools
// and those of a hosted server. No call fails, each has its effect once, and the server
// keeps its process. The test logs how long the slowest call took.
func TestUpgradeUnderLoad(t *testing.T) {
	p := newPlace(t).serve("shared")
	p.installVersion(t, older)
	pid := p.daemonAt(p.bin()).Process.Pid
	const agents = 8
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	calls, slowest := make([]int, agents), make([]time.Duration, agents)
	for i := range agents {
		a := p.agent("--identity", fmt.Sprintf("agent%d", i)).shake()
		load.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				tool, args := "health_snapshot", "{}"
				if calls[i]%2 == 1 {
					tool, args = "tools__effect", fmt.Sprintf(`{"token":"%d-%d","ms":2}`, i, calls[i])
				}
				id, err := a.tryCall(tool, args)
				if err == nil {
					err = a.tryWait(id)
				}
				if err != nil {
					t.Errorf("agent %d, call %d: %v", i, calls[i], err)
					return
				}
				calls[i]++
				slowest[i] = max(slowest[i], time.Since(begin))
			}
		})
	}
	load.Go(func() { // commands do not notice either
		for ctx.Err() == nil {
			if out, err := p.command("status", "--json").CombinedOutput(); err != nil {
				t.Errorf("status: %v: %s", err, out)
				return
			}
		}
	})
	fds := 0
	versions := []string{older, newer}
	for i := range 20 {
		p.installVersion(t, versions[(i+1)%2])
		p.upgrade(versions[(i+1)%2] + " has taken over")
		if i == 0 {
			fds = p.until("all agents", func(s control.StatusAnswer) bool { return attached(s) == agents }).Runtime.FDs
		}
	}
	stop()
	load.Wait()
	// A daemon that has just started reads files.
	s := p.until("all agents, and no more descriptors than after the first upgrade", func(s control.StatusAnswer) bool {
		return attached(s) == agents && s.Runtime.FDs <= fds+2
	})
	if s.Daemon.PID != pid || s.Daemon.Epoch != 21 {
		t.Errorf("daemon = %+v, want pid %d, epoch 21", s.Daemon, pid)
	}
	total, effects := 0, 0
	for _, n := range calls {
		total, effects = total+n, effects+n/2
	}
	b, err := os.ReadFile(p.effects())
	if err != nil {
		t.Fatal(err)
	}
	begun, servers := map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "begin" {
			begun[f[1]]++
			servers[f[2]] = true
		}
	}
	if len(begun) != effects || len(servers) != 1 {
		t.Errorf("%d calls had an effect, of %d, in the processes %v", len(begun), effects, servers)
	}
	p.logged("health_snapshot", total-effects)
	for token, n := range begun {
		if n != 1 {
			t.Errorf("%s had its effect %d times", token, n)
		}
	}
	t.Logf("%d calls of %d agents over 20 upgrades; the slowest took %v", total, agents, slices.Max(slowest))
}

// logged checks that the call log has at least this many calls of a tool, after all that
// was counted is written.
func (p *place) logged(tool string, calls int) {
	p.t.Helper()
	p.must("stop")
	files, err := filepath.Glob(filepath.Join(p.stateRoot(), "telemetry.jsonl*"))
	if err != nil {
		p.t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			p.t.Fatal(err)
		}
		n += bytes.Count(b, fmt.Appendf(nil, `"tool_name":%q`, tool))
	}
	if n < calls {
		p.t.Errorf("the call log has %d calls of %s, of %d", n, tool, calls)
	}
}

// attached returns how many sessions have a connection.
func attached(s control.StatusAnswer) int {
	n := 0
	for _, one := range s.Sessions {
		if one.State == "attached" {
			n++
		}
	}
	return n
}

// tryCall begins a tool call. It may be called from any goroutine.
func (a *agent) tryCall(tool, args string) (int, error) {
	a.next++
	_, err := fmt.Fprintf(a.stdin,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", a.next, tool, args)
	return a.next, err
}

// tryWait reads the answer to the only request in flight. It may be called from any
// goroutine.
func (a *agent) tryWait(id int) error {
	limit := time.After(waitLimit)
	for {
		select {
		case line, ok := <-a.lines:
			var x answer
			if !ok {
				return fmt.Errorf("the proxy ended; it said %s", a.errs)
			} else if err := json.Unmarshal([]byte(line), &x); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
			n, isAnswer := x.ID.(float64)
			switch {
			case !isAnswer || x.Method != "":
			case int(n) != id || x.Error != nil || x.Result.IsError:
				return fmt.Errorf("answer to %d: %s", id, line)
			default:
				return nil
			}
		case <-limit:
			return errors.New("no answer came")
		}
	}
}
