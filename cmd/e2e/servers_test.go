package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/worker/workertest"
	"holdline/protocol/control"
)

// serve writes a configuration with the tool server, in this scope, under the name tools.
func (p *place) serve(scope string, args ...string) *place {
	p.t.Helper()
	dir := filepath.Join(p.dir, "home/.config/holdline")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	cfg, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"tools": map[string]any{
		"command": filepath.Join(programs, "toolserver"), "args": append([]string{"-ledger", p.effects()}, args...),
		"holdline": map[string]any{"scope": scope, "keep_alive": "0s"},
	}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), cfg, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return p
}

// effects returns the path of the tool server's ledger.
func (p *place) effects() string { return filepath.Join(p.dir, "effects") }

// effectsOf counts the lines of the ledger with this beginning.
func (p *place) effectsOf(prefix string) int {
	b, err := os.ReadFile(p.effects())
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return strings.Count("\n"+string(b), "\n"+prefix+" ")
}

// untilEffect waits for a line of the ledger with this beginning.
func (p *place) untilEffect(prefix string) {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); p.effectsOf(prefix) == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(p.effects())
			p.t.Fatalf("no effect %q:\n%s", prefix, b)
		}
	}
}

// effect begins a call that takes ms milliseconds and has its effect once.
func (a *agent) effect(token string, ms int) int {
	return a.call("tools__effect", map[string]any{"token": token, "ms": ms})
}

// waitAll reads until each of ids is answered, and returns the answers.
func (a *agent) waitAll(ids ...int) map[int]answer {
	a.t.Helper()
	got := map[int]answer{}
	for len(got) < len(ids) {
		x := a.until(func(x *answer) bool { return x.Method == "" })
		n, ok := x.ID.(float64)
		if _, twice := got[int(n)]; !ok || twice || !slices.Contains(ids, int(n)) {
			a.t.Fatalf("unexpected: %s", x.raw)
		}
		got[int(n)] = x
	}
	return got
}

// until reads messages until wanted returns true, and returns that message.
func (a *agent) until(wanted func(*answer) bool) answer {
	a.t.Helper()
	for {
		var x answer
		line := a.read()
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			a.t.Fatalf("the proxy printed %q: %v", line, err)
		}
		if x.raw = line; wanted(&x) {
			return x
		}
	}
}

// TestServerShared checks that two agents of one project use one process of a server.
func TestServerShared(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project")
	p.daemon()
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	p.untilReady("tools")
	if x := a.ask("tools/list", map[string]any{}); !strings.Contains(x.raw, `"tools__effect"`) ||
		!strings.Contains(x.raw, `"consult"`) {
		t.Fatalf("tools/list: %s", x.raw)
	}
	one, other := a.effect("a1", 20), b.effect("b1", 10)
	if x := a.wait(one); x.Result.IsError || !strings.Contains(x.text(), "a1") {
		t.Errorf("effect: %s", x.raw)
	}
	if x := b.wait(other); x.Result.IsError || !strings.Contains(x.text(), "b1") {
		t.Errorf("effect: %s", x.raw)
	}
	s := p.status()
	if len(s.Workers) != 1 || s.Workers[0].Name != "tools" || s.Workers[0].Kind != "server" {
		t.Errorf("workers: %+v", s.Workers)
	}
	for _, token := range []string{"a1", "b1"} {
		if begun, ended := p.effectsOf("begin "+token), p.effectsOf("end "+token); begun != 1 || ended != 1 {
			t.Errorf("%s: begun %d times, ended %d times", token, begun, ended)
		}
	}
	a.rest(one)
	b.rest(other)
}

// TestServerCallOutlivesDaemon kills the daemon while calls run. Each has one effect and
// one answer.
func TestServerCallOutlivesDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project").login()
	a := p.agent().shake()
	pid := p.pid(0)
	a.wait(a.effect("warm", 0))
	worker := p.status().Workers[0]
	var ids []int
	for i := range 10 {
		ids = append(ids, a.effect(fmt.Sprintf("e%d", i), 300+20*i))
	}
	p.untilEffect("begin e9")
	for range 3 {
		kill9(t, pid)
		pid = p.pid(pid)
	}
	answers := a.waitAll(ids...)
	for i, id := range ids {
		token := fmt.Sprintf("e%d", i)
		if x := answers[id]; x.Result.IsError || x.Error != nil || !strings.Contains(x.text(), token) {
			t.Errorf("%s: %s", token, x.raw)
		}
		if begun, ended := p.effectsOf("begin "+token), p.effectsOf("end "+token); begun != 1 || ended != 1 {
			t.Errorf("%s: begun %d times, ended %d times", token, begun, ended)
		}
	}
	if s := p.status(); len(s.Workers) != 1 || s.Workers[0].ChildPID != worker.ChildPID {
		t.Errorf("workers %+v, before %+v", s.Workers, worker)
	}
	a.rest(ids...)
}

// TestServerWorkerKilled kills a worker during calls. Those that may run twice run again,
// the others get outcome_unknown, and the server is started again.
func TestServerWorkerKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project")
	p.daemon()
	a := p.agent().shake()
	a.wait(a.effect("warm", 0))
	effect := a.effect("e", 60_000)
	look := a.call("tools__look", map[string]any{"token": "l", "until": p.latch("l")})
	p.untilEffect("begin e")
	p.untilEffect("look l")
	w := p.status().Workers[0]
	kill9(t, w.PID)
	p.letThrough("l")
	answers := a.waitAll(effect, look)
	if x := answers[effect]; !x.Result.IsError || !strings.Contains(x.raw, `"outcome_unknown"`) ||
		!strings.Contains(x.raw, fmt.Sprintf(`"generation":%d`, w.Generation)) {
		t.Errorf("effect: %s", x.raw)
	}
	ledger, err := os.ReadFile(p.effects())
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Count(string(ledger), fmt.Sprintf("look l %d\n", w.ChildPID))
	after := p.effectsOf("look l") - before
	if x := answers[look]; x.Result.IsError || !strings.Contains(x.text(), "l") || before != 1 || after != 1 {
		t.Errorf("look, %d times in the process that died, and %d times in another: %s", before, after, x.raw)
	}
	if alive(w.ChildPID) {
		t.Error("the server lives on")
	}
	if p.effectsOf("begin e") != 1 {
		t.Errorf("the effect was begun %d times", p.effectsOf("begin e"))
	}
	again := a.effect("after", 0)
	if x := a.wait(again); x.Result.IsError {
		t.Errorf("after the loss: %s", x.raw)
	}
	p.until("the dead worker's directory is gone", func(s control.StatusAnswer) bool {
		_, err := os.Stat(filepath.Join(p.dir, "run/holdline/w", w.ID))
		return os.IsNotExist(err)
	})
	a.rest(effect, look, again)
}

// TestServerDies checks that the fault of a call whose server exits has the exit code and
// the server's last words, and that the next call succeeds.
func TestServerDies(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared")
	p.daemon()
	a := p.agent().shake()
	x := a.wait(a.call("tools__die", map[string]any{"code": 7}))
	if !x.Result.IsError || !strings.Contains(x.raw, `"exit_code":7`) || !strings.Contains(x.raw, `"stderr_tail":["`) {
		t.Errorf("die: %s", x.raw)
	}
	if x := a.wait(a.effect("next", 0)); x.Result.IsError {
		t.Errorf("the next call: %s", x.raw)
	}
	if out := p.must("telemetry"); !strings.Contains(out, "1 restart of workers") {
		t.Errorf("telemetry: %s", out)
	}
	// People and agents read the same, and nothing of a fault that is over.
	status := p.must("status")
	first, _, _ := strings.Cut(status, "\n")
	if x := a.wait(a.call("health_snapshot", map[string]any{})); first != "Ready. 1 server up, no recent faults." ||
		!strings.HasPrefix(x.text(), first) || strings.Contains(status+x.text(), "tools: ") {
		t.Errorf("health: %s\nstatus: %s", x.text(), status)
	}
}

// TestServerDiesWithCallsInFlight_NextCallIsServed checks that the crash of a server is one
// failure, however many calls of several agents it hits: each of them gets its fault, and the
// server is back before the next call, which another agent makes at once.
func TestServerDiesWithCallsInFlight_NextCallIsServed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5, 20, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "max_concurrent": 128})}).daemon()
			agents := []*agent{p.agent().shake(), p.agent().shake(), p.agent().shake()}
			other := p.agent().shake()
			ids := make([][]int, len(agents))
			for i := range n - 1 {
				k := i % len(agents)
				ids[k] = append(ids[k], agents[k].effect(fmt.Sprint("e", i, "."), 60_000))
			}
			for i := range n - 1 {
				p.untilEffect(fmt.Sprint("begin e", i, "."))
			}
			ids[0] = append(ids[0], agents[0].call("tools__die", map[string]any{"code": 7}))
			for k, a := range agents {
				for id, x := range a.waitAll(ids[k]...) {
					if x.code() != "outcome_unknown" {
						t.Errorf("call %d in flight: %s", id, x.raw)
					}
				}
			}
			if x := other.wait(other.effect("next", 0)); x.text() != "next" {
				t.Errorf("the next call: %s", x.raw)
			}
			if s := p.server("tools"); s.Circuit != "" && s.Circuit != "closed" || s.Restarts != 1 {
				t.Errorf("after one death: %+v", s)
			}
		})
	}
}

// TestServerDiesAtEachCall_CircuitOpens checks that each death counts: also if several calls
// are in flight at each of them, the circuit opens after as many deaths as its threshold says.
func TestServerDiesAtEachCall_CircuitOpens(t *testing.T) {
	t.Parallel()
	const deaths, each = 3, 4
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{
		"scope": "shared", "circuit_threshold": deaths, "circuit_reset": "10m", "max_restarts": 50,
	})}).daemon()
	a := p.agent().shake()
	for d := range deaths {
		var ids []int
		for i := range each {
			token := fmt.Sprint("e", d, ".", i, ".")
			ids = append(ids, a.effect(token, 60_000))
			p.untilEffect("begin " + token)
		}
		ids = append(ids, a.call("tools__die", map[string]any{}))
		for id, x := range a.waitAll(ids...) {
			if x.code() != "outcome_unknown" {
				t.Errorf("call %d, death %d: %s", id, d+1, x.raw)
			}
		}
	}
	if x := a.wait(a.effect("refused", 0)); x.code() != "circuit_open" {
		t.Errorf("after %d deaths: %s", deaths, x.raw)
	}
	if s := p.server("tools"); s.Failures != deaths {
		t.Errorf("after %d deaths: %+v", deaths, s)
	}
}

// TestServerCancel checks that a cancellation reaches the server, even if the daemon dies.
func TestServerCancel(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project").login()
	a := p.agent().shake()
	pid := p.pid(0)
	cancel := func(id int) {
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	}
	one := a.effect("c1", 60_000)
	p.untilEffect("begin c1")
	cancel(one)
	p.untilEffect("cancelled c1")
	two := a.effect("c2", 60_000)
	p.untilEffect("begin c2")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cancel(two)
	kill9(t, pid)
	p.untilEffect("cancelled c2")
	if x := a.wait(a.effect("c3", 0)); x.Result.IsError {
		t.Errorf("after the cancellations: %s", x.raw)
	}
	a.rest()
}

// TestServerCancelRecorded checks that a cancellation reaches the server even if the daemon
// dies after it was recorded and before it was sent.
func TestServerCancelRecorded(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project").login().faults()
	p.dieAt("write.recorded", 6) // after the handshake, the list and the call
	a := p.agent().shake()
	pid := p.pid(0)
	id := a.effect("c", 60_000)
	p.untilEffect("begin c")
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	p.untilEffect("cancelled c")
	if p.pid(0) == pid {
		t.Error("the daemon did not die")
	}
	a.rest(id)
}

// TestServerOfShortSession checks that if a session ends while its server starts, the
// server ends, too.
func TestServerOfShortSession(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session")
	p.daemon()
	for range 5 {
		p.agent().shake().rest()
	}
	p.until("no server is left", func(s control.StatusAnswer) bool {
		dirs, err := os.ReadDir(filepath.Join(p.dir, "run/holdline/w"))
		return len(s.Workers) == 0 && (len(dirs) == 0 || os.IsNotExist(err))
	})
}

// TestTornAnswer kills the daemon in the middle of a long answer. The client never gets the
// half that was written.
func TestTornAnswer(t *testing.T) {
	t.Parallel()
	const point, size = "hosted.answered", 4_000_000 // more than a socket holds
	p := newPlace(t).serve("project").login().faults()
	a := p.agent().shake()
	a.wait(a.effect("warm", 0))
	pid := p.pid(0)
	p.dieAs(point, death{held: true})
	id := a.call("tools__big", map[string]any{"token": "b", "bytes": size})
	waitFor(t, "the answer", func() bool { return p.died(point) })
	workertest.Freeze(t, a.cmd.Process.Pid)
	p.letGo(point)
	// The proxy does not read: it will find only what fitted into the socket.
	waitFor(t, "half of the answer", func() bool { return p.blockedInWrite(pid) })
	kill9(t, pid)
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if x := a.wait(id); x.Error != nil || x.Result.IsError || len(x.text()) != size+2 {
		t.Errorf("an answer of %d bytes, error %v", len(x.text()), x.Error)
	}
	a.rest(id)
}

// blockedInWrite reports whether a daemon waits for room in a socket: what it has written
// is neither read nor grows.
func (p *place) blockedInWrite(pid int) bool {
	written := func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			p.t.Fatal(err)
		}
		return string(b)
	}
	before := written()
	time.Sleep(50 * time.Millisecond)
	return written() == before
}

// TestStopAllDuringStart checks that stop --all also ends servers that start while it waits
// for others.
func TestStopAllDuringStart(t *testing.T) {
	t.Parallel()
	const point = "launch.started"
	p := newPlace(t).serve("session", "-deaf").faults()
	p.daemon()
	a := p.agent().shake()
	a.wait(a.effect("e", 0))
	p.dieAs(point, death{held: true})
	p.agent().shake() // has the server started
	waitFor(t, "the start", func() bool { return p.died(point) })
	stop := p.command("stop", "--all")
	if err := stop.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the daemon to stop", func() bool {
		b, _ := os.ReadFile(filepath.Join(p.dir, "daemon.log"))
		return strings.Contains(string(b), "part=listener")
	})
	p.letGo(point)
	if err := stop.Wait(); err != nil {
		t.Errorf("stop --all: %v", err)
	}
	p.untilEmpty(t)
}

// TestStopDuringStartOfDaemon checks that stop waits for a daemon that is starting, and then
// stops it.
func TestStopDuringStartOfDaemon(t *testing.T) {
	t.Parallel()
	const point = "start.locked"
	for _, args := range [][]string{{"stop"}, {"stop", "--all"}} {
		p := newPlace(t).faults()
		p.dieAs(point, death{held: true})
		d := p.command("daemon")
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the start", func() bool { return p.died(point) })
		time.AfterFunc(300*time.Millisecond, func() { p.letGo(point) }) // an end of stop before that is wrong
		out, errs, code := p.run("", args...)
		if code != 0 || !strings.Contains(out, fmt.Sprintf("daemon %d stopped", d.Process.Pid)) {
			t.Errorf("%v: exit %d, %s%s", args, code, out, errs)
		}
		_ = d.Wait()
	}
}

// TestServerListedAnew checks that an adopted server that never listed anything is asked
// for its lists before a client gets one.
func TestServerListedAnew(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project").login().faults()
	p.dieAt("write.recorded", 3) // after the server's handshake
	p.dieAs("write.sent", death{after: "write.recorded", held: true})
	p.daemon() // it knows its environment, so the list waits for the server until this daemon's death
	a := p.agent().shake()
	list := a.begin("tools/list", map[string]any{})
	waitFor(t, "the question", func() bool { return p.died("write.sent") })
	time.AfterFunc(300*time.Millisecond, func() { p.letGo("write.sent") }) // any answer before that is wrong
	if x := a.wait(list); !strings.Contains(x.raw, `"tools__effect"`) {
		t.Errorf("tools/list: %s", x.raw)
	}
	if x := a.wait(a.effect("e", 0)); x.Error != nil || x.Result.IsError {
		t.Errorf("effect: %s", x.raw)
	}
	a.rest()
}

// TestServerSessionScope checks that each session has a process of its own, and that a
// question of the server reaches that session's client, also after the daemon's death.
func TestServerSessionScope(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session").login()
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	pid := p.pid(0)
	b.wait(b.effect("b", 0))
	id := a.call("tools__ask", map[string]any{"token": "q", "method": "elicitation/create"})
	p.untilEffect("asked q")
	if s := p.status(); len(s.Workers) != 2 {
		t.Errorf("workers: %+v", s.Workers)
	}
	asked := a.until(func(x *answer) bool { return x.Method == "elicitation/create" })
	kill9(t, pid)
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{"x":1.0}}}`, asked.ID))
	if x := a.wait(id); x.Result.IsError || !strings.Contains(x.raw, `accept`) || p.effectsOf("asked q") != 1 {
		t.Errorf("asked %d times: %s", p.effectsOf("asked q"), x.raw)
	}
	before := p.status().Workers
	a.leave()
	p.until("the session's server ends with it, and its directory goes", func(s control.StatusAnswer) bool {
		dirs, err := os.ReadDir(filepath.Join(p.dir, "run/holdline/w"))
		return err == nil && len(s.Workers) == 1 && len(dirs) == 1
	})
	if len(before) != 2 {
		t.Errorf("workers before: %+v", before)
	}
	b.rest()
}

// TestServersAdd_ProgramThatHasMoved_SaysWhereItIsNow checks that the trial of a server whose program is gone from its
// path, as after another version of node, says where a program of that name is now.
func TestServersAdd_ProgramThatHasMoved_SaysWhereItIsNow(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	_, errs, code := p.run("", "servers", "add", "gone", "--", "/nowhere/v20/bin/sh", "-c", "true")
	if code != exitFailure || !strings.Contains(errs, "/nowhere/v20/bin/sh is not there any more; sh is now at /") {
		t.Errorf("exit %d\n%s", code, errs)
	}
	_, errs, _ = p.run("", "servers", "add", "gone", "--", "/nowhere/bin/surely-not-there")
	if strings.Contains(errs, "is now at") {
		t.Errorf("a program that is nowhere:\n%s", errs)
	}
}
