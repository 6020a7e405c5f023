package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/control"
)

// unread starts an agent that reads nothing until read is called. stuck waits until its
// proxy is blocked in a write.
func (p *place) unread(t *testing.T) (one *agent, stuck, read func()) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(programs, "holdline"), "mcp-stdio",
		"--no-autostart")
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.project, 5*time.Second
	a := &agent{t: t, cmd: cmd, lines: make(chan string, 4096), errs: new(words)}
	cmd.Stderr = a.errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		a.stdin, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	const much = 32 << 10 // more than all but the long answer
	in := bufio.NewReaderSize(out, much)
	stuck = func() {
		if _, err := in.Peek(much); err != nil {
			t.Fatal(err)
		}
	}
	return a, stuck, func() {
		go func() { // ends with the proxy's stdout
			defer close(a.lines)
			for line, err := in.ReadString('\n'); err == nil; line, err = in.ReadString('\n') {
				a.lines <- strings.TrimSuffix(line, "\n")
			}
		}()
	}
}

// TestLateProxy has a proxy notice the death of its daemon only after the window, because
// it was stopped or its client does not read. Its call has no record then. It is not made
// twice, even though this proxy is of an older version, which does not give up by itself.
func TestLateProxy(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "terminated", "upgraded", "unread"} {
		t.Run(how, func(t *testing.T) {
			p := newPlace(t).windows(60).serve("session")
			p.breaks(brokenLate)
			p.installTest(t, "first")
			d := p.daemonAt(p.bin())
			a, stuck, read := p.unread(t)
			a.begin("initialize",
				map[string]any{
					"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
					"clientInfo": map[string]string{"name": "test", "version": "1"},
				})
			a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			if how == "unread" {
				a.call("tools__big", map[string]any{"token": "big", "bytes": 2 << 20})
				stuck()
			} else {
				read()
			}
			id := a.effect("late", 60_000)
			p.untilEffect("begin late")
			child := child(p.status(), "tools")
			if how != "unread" {
				workertest.Freeze(t, a.cmd.Process.Pid)
			}
			switch how {
			case "upgraded":
				p.installTest(t, "second")
				p.must("upgrade")
			case "terminated":
				_ = d.Process.Signal(syscall.SIGTERM)
				waitFor(t, "the daemon's end", func() bool { return !alive(d.Process.Pid) })
				p.daemonAt(p.bin())
			default:
				kill9(t, d.Process.Pid)
				p.daemonAt(p.bin())
			}
			waitFor(t, "the session to be given up", func() bool { return !alive(child) })
			if how == "unread" {
				read()
			} else {
				_ = a.cmd.Process.Signal(syscall.SIGCONT)
			}
			if x := a.wait(id); !strings.Contains(x.raw, "outcome_unknown") {
				t.Errorf("the call's answer: %s", x.raw)
			}
			if x := a.wait(a.effect("next", 0)); x.Error != nil || x.Result.IsError {
				t.Errorf("the next call: %s", x.raw)
			}
			a.rest(id)
			if n := p.effectsOf("begin late"); n != 1 {
				t.Errorf("the call was made %d times", n)
			}
		})
	}
}

// installTest installs the test binary with tail appended, so that it is another program.
func (p *place) installTest(t *testing.T, tail string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(programs, "holdline"))
	if err != nil {
		t.Fatal(err)
	}
	p.install(fmt.Append(b, tail), 0o700)
}

// TestLateProxyOfConsult does the same with a consult whose answer is not kept any more,
// because another one has replaced it.
func TestLateProxyOfConsult(t *testing.T) {
	t.Parallel()
	p := newPlace(t).windows(60).configure(map[string]any{}, "consult",
		map[string]any{"keep": map[string]any{"count": 1}})
	p.breaks(brokenLate)
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	id := a.call("consult", p.hangs())
	p.untilSteps(1)
	workertest.Freeze(t, a.cmd.Process.Pid)
	kill9(t, d.Process.Pid)
	p.daemon()
	p.ended()
	b := p.agent("--no-autostart").shake()
	waitFor(t, "the answer to go", func() bool {
		if x := b.wait(b.call("consult", p.slow(0))); x.Result.IsError {
			t.Fatal(x.raw)
		}
		return strings.Count(p.must("consult", "list"), "cancelled") == 0
	})
	b.rest()
	steps := p.steps()
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	if x := a.wait(id); !strings.Contains(x.raw, "outcome_unknown") {
		t.Errorf("the consult's answer: %s", x.raw)
	}
	a.rest(id)
	if n := p.steps(); n != steps {
		t.Errorf("the program took %d steps when its client was back", n-steps)
	}
}

// asksUnread starts an agent that makes this many calls of the tool big, each with an
// answer of size bytes, and reads none of the answers. Its proxy is blocked in writing the
// first one when the others are asked for. The daemon changes the answers to a modern agent, so
// that they come as bytes; the proxy of a legacy one gets the names of their files.
func asksUnread(t *testing.T, p *place, modern bool, calls, size int) (a *agent, ids []int, read func()) {
	t.Helper()
	a, stuck, read := p.unread(t)
	if !modern {
		a.begin("initialize",
			map[string]any{
				"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
				"clientInfo": map[string]string{"name": "test", "version": "1"},
			})
		a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	for range calls {
		params := map[string]any{"name": "tools__big", "arguments": map[string]any{"token": "big", "bytes": size}}
		if modern {
			modernly(params)
		}
		if ids = append(ids, a.begin("tools/call", params)); len(ids) == 1 {
			stuck()
		}
	}
	return a, ids, read
}

// answersOf reads the proxy's output until the proxy has ended, checks that each request
// has an answer, and returns the answers by id.
func answersOf(t *testing.T, a *agent) map[int][]string {
	t.Helper()
	all := map[int][]string{}
	for line := range a.lines {
		var x answer
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%v: %.100s", err, line)
		}
		if x.ID == nil || x.Method != "" {
			continue
		}
		id, err := strconv.Atoi(fmt.Sprint(x.ID))
		if err != nil {
			t.Fatalf("%v: %.100s", err, line)
		}
		if all[id] = append(all[id], line); len(all) == a.next {
			_ = a.stdin.Close()
		}
	}
	_ = a.cmd.Wait()
	return all
}

// spooledAnswers returns the files of answers that no client has confirmed.
func (p *place) spooledAnswers() []string {
	names, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*/a/*"))
	return names
}

// openAnswers returns how many files of answers the agent's proxy has open.
func (a *agent) openAnswers() (n int) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", a.cmd.Process.Pid))
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && strings.Contains(file, "/run/holdline/w/") {
			n++
		}
	}
	return n
}

// TestSlowReader_LargeAnswersWait checks that a client that reads late can have more
// answers in flight than are kept in memory: they wait in files, the session continues,
// other sessions get their answers meanwhile, and each request gets its answer once. The daemon
// is done with a call whose answer the proxy reads in its file, and the proxy opens one file at a
// time. An answer that goes as bytes stays in its file until the ones before it are gone.
func TestSlowReader_LargeAnswersWait(t *testing.T) {
	t.Parallel()
	for how, modern := range map[string]bool{"by names of files": false, "as bytes": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).serve("shared")
			p.env = append(p.env, "HOLDLINE_TEST_STALL=10m") // a slow machine may need long for the others
			p.daemon()
			const size, calls = 8 << 20, 12
			a, ids, read := asksUnread(t, p, modern, calls, size)
			waitFor(t, "the answers to lie in files", func() bool { return len(p.spooledAnswers()) == calls })
			// Of bytes one answer waits for the client; the rest of the heap is garbage of those
			// that were read.
			heap, least, most := int64(size), 0, 0
			if modern {
				heap, least, most = calls*size*2/3, calls-2, calls
			}
			s := p.until("the daemon to hold few of them", func(s control.StatusAnswer) bool {
				return s.Runtime.HeapBytes < heap && len(s.Sessions) == 1 &&
					least <= s.Sessions[0].InFlight && s.Sessions[0].InFlight <= most
			})
			if n := a.openAnswers(); !modern && n != 1 {
				t.Errorf("the proxy has %d files open, want that of the answer which its client does not read", n)
			}
			b := p.agent("--no-autostart").shake()
			x := b.wait(b.call("tools__big", map[string]any{"token": "b", "bytes": size / 8}))
			if len(x.text()) < size/8 {
				t.Errorf("another session got %.300s", x.raw)
			}
			b.rest()
			read()
			answers := answersOf(t, a)
			for _, id := range ids {
				if all := answers[id]; len(all) != 1 || len(all[0]) < size {
					t.Errorf("request %d has %d answers; want one, whole", id, len(all))
				}
			}
			if n := p.status().Daemon.Epoch; n != s.Daemon.Epoch {
				t.Errorf("the daemon is another: %d, was %d", n, s.Daemon.Epoch)
			}
			waitFor(t, "the files to go", func() bool { return len(p.longFiles()) == 0 })
		})
	}
}

// TestSlowReader_ReadsNothing checks that a client that reads nothing is disconnected: after a
// time if answers wait for it as bytes, and once its answers fill as many files as one session
// may have. The files are removed then, and each request gets one answer in the end.
func TestSlowReader_ReadsNothing(t *testing.T) {
	t.Parallel()
	const size, calls = 8 << 20, 12
	for how, c := range map[string]struct {
		modern bool
		env    string
	}{
		"too many files": {false, fmt.Sprint("HOLDLINE_TEST_SPOOL=", calls*size/2)},
		"for too long":   {true, "HOLDLINE_TEST_STALL=2s"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).serve("shared")
			p.env = append(p.env, c.env)
			p.daemon()
			a, ids, read := asksUnread(t, p, c.modern, calls, size)
			p.until("the session's end", func(s control.StatusAnswer) bool { return len(s.Sessions) == 0 })
			waitFor(t, "the files to go", func() bool { return len(p.longFiles()) == 0 })
			read()
			answers := answersOf(t, a)
			for _, id := range ids {
				all := answers[id]
				if len(all) != 1 {
					t.Errorf("request %d has %d answers", id, len(all))
				} else if len(all[0]) < size && !strings.Contains(all[0], "outcome_unknown") {
					t.Errorf("request %d: %.300s", id, all[0])
				}
			}
		})
	}
}

// TestWipedBeforeCall checks that a call that reaches a daemon whose directory was removed
// is made neither by it nor by the next one, which cannot know whether it was.
func TestWipedBeforeCall(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"tool", "consult"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).windows(8).serve("shared") // what is left of the old daemon ends by itself
			d := p.daemon()
			a := p.agent("--no-autostart").shake()
			if x := a.wait(a.effect("before", 0)); x.Result.IsError {
				t.Fatal(x.raw)
			}
			if err := os.RemoveAll(filepath.Join(p.dir, "run/holdline")); err != nil {
				t.Fatal(err)
			}
			var id int
			if what == "tool" {
				id = a.effect("wiped", 0)
			} else {
				id = a.call("consult", p.slow(0))
			}
			waitFor(t, "the daemon's end", func() bool { return !alive(d.Process.Pid) })
			p.daemon()
			if x := a.wait(id); !strings.Contains(x.raw, "outcome_unknown") {
				t.Errorf("the answer: %s", x.raw)
			}
			a.rest(id)
			if n := p.effectsOf("begin wiped"); n != 0 || p.steps() != 0 {
				t.Errorf("the call was made %d times, the program took %d steps", n, p.steps())
			}
		})
	}
}

// generationOf returns the generation that the fault in an answer names.
func generationOf(t *testing.T, x answer) (n int64) {
	t.Helper()
	_, behind, found := strings.Cut(x.raw, `"generation":`)
	if _, err := fmt.Sscanf(behind, "%d,", &n); !found || err != nil {
		t.Errorf("no generation: %s", x.raw)
	}
	return n
}

// TestFaultsNameGeneration checks that a fault about a worker has the worker's generation,
// even if the worker lives on.
func TestFaultsNameGeneration(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "timeout": "1s"})}).daemon()
	a := p.agent("--no-autostart").shake()
	p.untilReady("tools")
	x := a.wait(a.call("tools__hang", map[string]any{"token": "hang"}))
	last := generationOf(t, x)
	if last < 1 || x.code() != "timeout" {
		t.Errorf("a call without an answer: %s", x.raw)
	}
	for _, w := range p.status().Workers { // on a busy machine the server may hang for long enough to be replaced
		last = max(last, w.Generation)
	}
	args := map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "exit", N: 3}), "render": "json"}
	x = a.wait(a.call("consult", args))
	if n := generationOf(t, x); n <= last {
		t.Errorf("a consult whose program has failed: %s", x.raw)
	}
	a.rest()
}
