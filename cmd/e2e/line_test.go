package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

const piped = `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
	`"params":{"protocolVersion":"2025-11-25","capabilities":{},` +
	`"clientInfo":{"name":"sh","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"health_snapshot"}}
`

// TestPipedClient pipes requests in and closes stdin, as a script does. No daemon runs
// before.
func TestPipedClient(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	out, errs, code := p.run(piped, "mcp-stdio")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 3 || !strings.Contains(lines[2], `"isError":false`) {
		t.Fatalf("exit %d, %d lines\n%s%s", code, len(lines), out, errs)
	}
	if s := p.status(); s.Daemon.StartedBy != "proxy" || s.Daemon.Epoch != 1 {
		t.Errorf("daemon = %+v", s.Daemon)
	}
}

// TestCodexEnvironment starts a proxy with an empty environment but HOME. It must find the
// daemon that runs under XDG_RUNTIME_DIR.
func TestCodexEnvironment(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	cmd := p.command("mcp-stdio")
	cmd.Env = []string{"HOME=" + filepath.Join(p.dir, "home")}
	cmd.Stdin = strings.NewReader(piped)
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), "\n") != 3 {
		t.Fatalf("proxy without environment: %v\n%s", err, out)
	}
	if calls := p.telemetry()["tools/call:health_snapshot"]; calls != 1 {
		t.Errorf("the daemon saw %d calls, want the one", calls)
	}
}

// telemetry counts requests by operation.
func (p *place) telemetry() map[string]int64 {
	p.t.Helper()
	var v struct {
		Telemetry struct {
			Methods []struct {
				Method string
				Count  int64 `json:"request_count"`
			}
		}
	}
	out, errs, code := p.run("", "telemetry", "--json")
	if code != 0 {
		p.t.Fatalf("telemetry: %s", errs)
	}
	decode(p.t, out, &v)
	counts := map[string]int64{}
	for _, m := range v.Telemetry.Methods {
		counts[m.Method] = m.Count
	}
	return counts
}

// TestStartRace starts many proxies at once while no daemon runs. They start exactly one
// daemon.
func TestStartRace(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if out, errs, code := p.run(piped, "mcp-stdio"); code != 0 || strings.Count(out, "\n") != 3 {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
		})
	}
	all.Wait()
	s := p.status()
	if s.Daemon.Epoch != 1 {
		t.Errorf("%d daemons have served", s.Daemon.Epoch)
	}
	if n := p.telemetry()["tools/call:health_snapshot"]; n != 12 {
		t.Errorf("the daemon saw %d calls, want 12", n)
	}
}

// TestSecondDaemonYields checks that a second daemon says that one runs already, and exits
// with success.
func TestSecondDaemonYields(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	before := p.status().Daemon.PID
	out, errs, code := p.run("", "daemon")
	if code != 0 || !strings.Contains(errs, fmt.Sprintf("runs already: pid %d", before)) {
		t.Errorf("second daemon: exit %d\n%s%s", code, out, errs)
	}
	if after := p.status().Daemon.PID; after != before {
		t.Errorf("the daemon changed from %d to %d", before, after)
	}
}

// TestStaleSocketAndStop starts a daemon over the socket of a killed one, stops it, and
// checks what commands say without a daemon.
func TestStaleSocketAndStop(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first := p.daemon()
	_ = first.Process.Kill() // leaves its socket behind
	for alive(first.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	p.daemon()
	if s := p.status(); s.Daemon.Epoch != 2 {
		t.Errorf("epoch %d, want 2", s.Daemon.Epoch)
	}
	out, errs, code := p.run("", "stop")
	if code != 0 || !strings.Contains(out, "stopped") {
		t.Errorf("stop: exit %d\n%s%s", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "run/holdline/daemon.sock")); err == nil {
		t.Error("the socket is still there")
	}
	if _, errs, code := p.run("", "status"); code != exitNoDaemon || strings.Count(errs, "is not running") != 1 {
		t.Errorf("status without a daemon: exit %d, want %d\n%s", code, exitNoDaemon, errs)
	}
	if out, _, code := p.run("", "stop"); code != 0 {
		t.Errorf("stop without a daemon: exit %d, %s", code, out)
	}
}

// TestStopTellsProxies stops the daemon during a call. The agent gets a fault, and the
// proxy exits with 4 and starts no daemon.
func TestStopTellsProxies(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	a := p.agent().shake()
	id := a.call("consult", map[string]any{"prompt": hang()})
	p.until("a running consult", func(s control.StatusAnswer) bool { return s.Consults.Running == 1 })
	if out, errs, code := p.run("", "stop"); code != 0 {
		t.Fatalf("stop: exit %d\n%s%s", code, out, errs)
	}
	x := a.wait(id)
	failed(t, "the call", x, "outcome_unknown")
	err := a.cmd.Wait()
	if code := a.cmd.ProcessState.ExitCode(); code != exitLost {
		t.Errorf("the proxy ended with %v, want exit %d", err, exitLost)
	}
}

// hang returns a prompt that is never answered.
func hang() string { return claudetest.Prompt("wait", claudetest.Step{Do: "hang"}) }

// TestTwoAgents runs a consult for each of two agents at the same time.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	a, b := p.agent("--identity", "alpha").shake(), p.agent("--identity", "beta").shake()
	var open []func()
	slow := func(answer string) map[string]any {
		wait, let := p.hold(t, answer)
		open = append(open, let)
		return map[string]any{"prompt": claudetest.Prompt("?", wait, claudetest.Say(answer))}
	}
	ida, idb := a.call("consult", slow("for alpha")), b.call("consult", slow("for beta"))
	s := p.until("two running consults", func(s control.StatusAnswer) bool {
		return s.Consults.Running == 2 && len(s.Workers) == 2 && s.Workers[0].ChildPID > 0 && s.Workers[1].ChildPID > 0
	})
	if s.Sessions[0].Identity != "alpha" || s.Sessions[1].Identity != "beta" || s.Sessions[0].InFlight != 1 {
		t.Errorf("sessions = %+v", s.Sessions)
	}
	begin := time.Now()
	if x := p.agent().shake().ask("tools/call", map[string]any{"name": "health_snapshot"}); x.Result.IsError ||
		x.text() == "" {
		t.Errorf("health = %s", x.raw)
	}
	t.Logf("a new agent had its health snapshot after %v", time.Since(begin))
	for _, let := range open {
		let()
	}
	if x := a.wait(ida); x.Result.IsError || !strings.HasPrefix(x.text(), "for alpha") {
		t.Errorf("alpha got %s", x.raw)
	}
	if x := b.wait(idb); x.Result.IsError || !strings.HasPrefix(x.text(), "for beta") {
		t.Errorf("beta got %s", x.raw)
	}
	a.leave()
	b.leave()
	p.until("no worker", func(s control.StatusAnswer) bool { return len(s.Workers) == 0 && s.Consults.Running == 0 })
}

// TestCancel cancels a consult whose program ignores all signals it can, or has ended, and
// has a child in a session of its own that holds its stdout. All are gone soon.
func TestCancel(t *testing.T) {
	t.Parallel()
	const exited = "adapter.exited"
	for _, how := range []string{"cancel", "disconnect", "kill the proxy", "cancel behind the program's end"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p, last := newPlace(t).faults(), claudetest.Step{Do: "deaf"}
			ended := strings.HasSuffix(how, "end")
			if ended {
				last = claudetest.Say("done")
				p.dieAs(exited, death{held: true})
			}
			p.daemon()
			a := p.agent().shake()
			id := a.call("consult",
				map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "grandchild"},
					claudetest.Step{Do: "ledger", Message: p.ledger()}, last)})
			p.untilSteps(1) // the program and its child are there
			if ended {
				waitFor(t, "the program's end", func() bool { return p.died(exited) })
			}
			s := p.status()
			tree := p.processes()
			for pid := range tree { // the consult's processes only
				if pid == s.Daemon.PID || pid == a.cmd.Process.Pid {
					delete(tree, pid)
				}
			}
			begin := time.Now()
			switch how {
			case "cancel", "cancel behind the program's end":
				a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`,
					id))
			case "disconnect":
				a.send(`{"jsonrpc":"2.0","id":99,"method":"ping"}`)
				_ = a.cmd.Process.Signal(os.Interrupt)
			case "kill the proxy":
				_ = a.cmd.Process.Kill()
			}
			if ended {
				a.ask("ping", map[string]any{}) // the daemon has the cancellation
				p.letGo(exited)
			}
			for pid, what := range tree {
				for alive(pid) {
					if time.Since(begin) > waitLimit {
						t.Fatalf("%s is still there", what)
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
			t.Logf("%d processes were gone after %v", len(tree), time.Since(begin))
		})
	}
}

// TestHundredProxies connects 100 agents at once, each with 22 requests, all with the same
// ids.
func TestHundredProxies(t *testing.T) {
	n := 100
	if testing.Short() || raceEnabled {
		n = 20
	}
	// All are children of one process, so they share one limit of calls in flight.
	p := newPlace(t).configure(map[string]any{}, "limits", map[string]any{"in_flight": 4096})
	p.daemon()
	p.status()
	base := p.status().Runtime
	agents := make([]*agent, n)
	for i := range agents {
		agents[i] = p.agent()
	}
	var all sync.WaitGroup
	for i, a := range agents {
		all.Go(func() {
			a.shake()
			ids := []int{a.begin("tools/list", map[string]any{})}
			for range 20 {
				ids = append(ids, a.begin("tools/call", map[string]any{"name": "health_snapshot"}))
			}
			left := map[int]bool{}
			for _, id := range ids {
				left[id] = true
			}
			for range ids {
				var x answer
				decode(t, a.read(), &x)
				id := int(x.ID.(float64))
				if !left[id] || x.Error != nil || x.Result.IsError {
					t.Errorf("agent %d: answer %+v", i, x)
				}
				delete(left, id)
			}
		})
	}
	all.Wait()
	if got := len(p.status().Sessions); got != n {
		t.Errorf("%d sessions, want %d", got, n)
	}
	for _, a := range agents {
		_ = a.cmd.Process.Kill()
	}
	p.until("descriptors and goroutines as before", func(s control.StatusAnswer) bool {
		return len(s.Sessions) == 0 && s.Runtime.FDs <= base.FDs+1 && s.Runtime.Goroutines <= base.Goroutines+3
	})
}

// TestRefusals checks that an identity with a token needs it, that its rules apply, and
// that a configuration with a mistake does not come into force.
func TestRefusals(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := os.MkdirAll(filepath.Join(p.dir, "home/.config/holdline"), 0o700); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(p.dir, "home/.config/holdline/config.json")
	if err := os.WriteFile(conf,
		[]byte("{\n \"identities\": {\n  \"codex\": {\"token\": \"tk-secret-1\", \"deny\": [\"consult*\"]}, "+
			"// ours\n },\n}"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.daemon()
	out, errs, code := p.run(piped, "mcp-stdio", "--identity", "codex")
	if code != exitFailure || strings.Contains(out, `"isError":false`) ||
		strings.Count(out, `"identity_refused"`) != 3 || !strings.Contains(errs, "codex") ||
		!strings.Contains(errs, "token") || strings.Contains(errs, "tk-secret-1") {
		t.Errorf("without token: exit %d\n%s%s", code, out, errs)
	}
	good := p.env
	p.env = append(slices.Clip(good), "HOLDLINE_TOKEN=tk-secret-1")
	out, errs, code = p.run(piped, "mcp-stdio", "--identity", "codex")
	if code != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("with token: exit %d\n%s%s", code, out, errs)
	}
	if strings.Contains(out, `"consult"`) || !strings.Contains(out, `"telemetry_snapshot"`) {
		t.Errorf("a denied tool is listed: %s", out)
	}
	p.env = good

	// A configuration with a mistake is refused with its position, and the old one stays in
	// force.
	if err := os.WriteFile(conf, []byte("{\n  \"identites\": {},\n}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"reload"}, {"config", "check"}} {
		if _, errs, code := p.run("", args...); code != exitFailure || !strings.Contains(errs, ":2:3") ||
			!strings.Contains(errs, "identites") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	if _, _, code := p.run(piped, "mcp-stdio", "--identity", "codex"); code != exitFailure {
		t.Error("the old configuration is not in force any more")
	}
	if err := os.WriteFile(conf, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := p.run("", "reload"); code != 0 || !strings.Contains(out, "reloaded") {
		t.Errorf("reload: exit %d\n%s%s", code, out, errs)
	}
	if out, errs, code := p.run(piped, "mcp-stdio", "--identity", "codex"); code != 0 {
		t.Errorf("after reload: exit %d\n%s%s", code, out, errs)
	}
}

// TestNoDaemonNoAutostart checks that a proxy that may not start a daemon answers with a
// fault and exits with its own code.
func TestNoDaemonNoAutostart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	out, errs, code := p.run(piped, "mcp-stdio", "--no-autostart", "--reconnect-timeout", "200ms")
	if code != exitNoDaemon || !strings.Contains(out, `"id":1,"error"`) || !strings.Contains(errs, "holdline: ") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

// TestConsultCommand runs consults from the command line: with a prompt as argument and on
// stdin, listed afterwards, and interrupted.
func TestConsultCommand(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	// A daemon that a proxy starts would have the login shell's PATH, without our programs.
	p.daemon()
	out, errs, code := p.run("", "consult", claudetest.Prompt("say", claudetest.Say("two words")))
	if code != 0 || out != "two words\n" || !strings.HasPrefix(errs, "[consult ") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, errs)
	}
	out, errs, code = p.run(claudetest.Prompt("- say", claudetest.Say("from stdin")), "consult", "-")
	if code != 0 || out != "from stdin\n" {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, errs)
	}
	out, _, code = p.run("", "consult", "list")
	if code != 0 || strings.Count(out, "done") != 2 {
		t.Errorf("consults: exit %d\n%s", code, out)
	}
	out, errs, code = p.run("", "consult", "cancel", "last")
	if code != 0 || out != "from stdin\n" || !strings.Contains(errs, " had already ended (done)") {
		t.Errorf("cancel of one that has ended: exit %d, stdout %q, stderr %q", code, out, errs)
	}
	cmd := p.command("consult", hang())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.until("a running consult", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 })
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted consult succeeded")
	}
	p.until("no worker", func(s control.StatusAnswer) bool { return len(s.Workers) == 0 })
}

// TestIdleExit checks that an idle daemon exits after its time.
func TestIdleExit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.command("daemon", "--idle-exit", "300ms")
	p.background(d) // it may have ended before anybody has looked
	waitFor(t, "the idle daemon to end", func() bool { return !alive(d.Process.Pid) })
	if log := content(t, filepath.Join(p.dir, "daemon.log")); !strings.Contains(log, "idle for long enough") {
		t.Errorf("its log:\n%s", log)
	}
}

// TestEndSignals ends proxies and the daemon by signals.
func TestEndSignals(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemon()
	for _, sig := range []os.Signal{os.Interrupt, sigTerm} {
		a := p.agent().shake()
		begin := time.Now()
		_ = a.cmd.Process.Signal(sig)
		for range a.lines {
		}
		if err := a.cmd.Wait(); err != nil {
			t.Errorf("%v: the proxy ended with %v: %s", sig, err, a.errs)
		}
		t.Logf("%v ended the proxy after %v", sig, time.Since(begin))
	}
	a := p.agent().shake()
	_ = d.Process.Signal(sigTerm)
	for alive(d.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	// No service manager manages that daemon, so the proxy starts the next one itself.
	if x := a.ask("tools/call", map[string]any{"name": "health_snapshot"}); x.Error != nil || x.Result.IsError {
		t.Errorf("after the daemon's end: %s", x.raw)
	}
	a.leave()
}

// TestHelp checks that every command has a help text.
func TestHelp(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, args := range [][]string{
		{"--help"},
		{"daemon", "--help"},
		{"mcp-stdio", "--help"},
		{"status", "--help"},
		{"sessions", "--help"},
		{"consult", "--help"},
		{"consult", "--help"},
		{"telemetry", "--help"},
		{"logs", "--help"},
		{"reload", "--help"},
		{"stop", "--help"},
		{"config", "--help"},
		{"servers", "--help"},
		{"servers", "add", "--help"},
		{"doctor", "--help"},
		{"version", "--help"},
		{"completion", "bash"},
	} {
		if out, errs, code := p.run("", args...); code != 0 || len(out)+len(errs) < 100 {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errs)
		}
	}
	for _, args := range [][]string{
		{"nonsense"}, {"status", "extra"}, {"status", "--nope"}, {"consult", "show"}, {"mcp-stdio", "--nope"},
	} {
		if out, errs, code := p.run("", args...); code != exitUsage ||
			!strings.HasPrefix(errs, "holdline: ") || out != "" {
			t.Errorf("%v: exit %d, want %d\n%s%s", args, code, exitUsage, out, errs)
		}
	}
}

// TestDoctor runs doctor without a daemon, with one, with a state directory that other users can
// read, and after a clean stop.
func TestDoctor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	out, errs, code := p.run("", "doctor")
	if code != 0 || !strings.Contains(out, "no daemon runs") || !strings.Contains(out, "claude") {
		t.Errorf("without a daemon: exit %d\n%s%s", code, out, errs)
	}
	p.daemon()
	out, errs, code = p.run("", "doctor", "--json")
	if code != 0 || !strings.Contains(out, `"check": "versions"`) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if err := os.Chmod(filepath.Join(p.dir, "home/.local/state/holdline"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, _, code := p.run("", "doctor"); code != exitFailure || !strings.Contains(out, "chmod 700") {
		t.Errorf("open state directory: exit %d\n%s", code, out)
	}
	_ = os.Chmod(filepath.Join(p.dir, "home/.local/state/holdline"), 0o700)
	p.must("stop")
	if out, _, code := p.run("", "doctor"); code != 0 || strings.Contains(out, "was killed") ||
		strings.Contains(out, "problem") || !strings.HasSuffix(out, " checks ok (-v shows them)\n") {
		t.Errorf("after a clean stop: exit %d\n%s", code, out)
	}
}

// TestDoctorEngines checks that without a daemon doctor examines both consult programs as a
// daemon would: where the configuration says, with the environment that a daemon has for
// them.
func TestDoctorEngines(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.env = without(p.env, "ANTHROPIC_API_KEY")
	keys := filepath.Join(p.dir, "keys")
	if err := os.WriteFile(keys, []byte("ANTHROPIC_API_KEY=stand-in\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(p.dir, "home/my-codex")
	p.fakeCodex(bin)
	p.configure(map[string]any{}, "consult", map[string]any{"env_file": keys, "codex_bin": "~/my-codex"})
	engines := func() (found []string) {
		out, _, _ := p.run("", "doctor", "-v")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line[min(9, len(line)):], "claude: ") ||
				strings.HasPrefix(line[min(9, len(line)):], "codex: ") {
				found = append(found, line)
			}
		}
		return found
	}
	before := engines()
	p.daemon()
	if after := engines(); len(after) != 2 || !slices.Equal(before, after) {
		t.Errorf("without a daemon:\n%q\nwith one:\n%q", before, after)
	}
	if len(before) != 2 || !strings.HasPrefix(before[0], "ok ") ||
		before[1] != "ok       codex: "+bin+", version 0.169.0, by codex login\n" {
		t.Errorf("without a daemon:\n%q", before)
	}
}

// TestNotInstalled checks that a missing consult program is named to the agent and by
// doctor, with how to install it, and to a shell that has it, with how the daemon finds it there.
func TestNotInstalled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	only := filepath.Join(p.dir, "only")
	if err := os.Mkdir(only, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, v := range p.env {
		if strings.HasPrefix(v, "PATH=") {
			p.env[i] = "PATH=" + only
		}
	}
	p.daemon()
	a := p.agent().shake()
	x := a.wait(a.call("consult", map[string]any{"prompt": "hi"}))
	if !x.Result.IsError || !strings.Contains(x.raw, `"not_installed"`) || !strings.Contains(x.text(), "npm install") {
		t.Errorf("answer = %s", x.raw)
	}
	if !strings.Contains(x.text(), "cannot find `claude`. Looked in: "+only) ||
		!strings.Contains(x.text(), "If your shell finds it, run: `holdline install --path`") {
		t.Errorf("answer = %s", x.text())
	}
	if out, _, code := p.run("", "doctor"); code != exitFailure || !strings.Contains(out, "npm install") {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}
	dir := p.linked("codex")
	p.env = append(without(p.env, "PATH"), "PATH="+dir)
	want := "Holdline's daemon cannot find `codex`. Your shell has it at " + filepath.Join(dir, "codex") +
		". Run: `holdline install --path`\n"
	if _, errs, code := p.run("", "consult", "--engine", "codex", "hi"); code != exitFailure || errs != want {
		t.Errorf("consult: exit %d\n%s", code, errs)
	}
	if _, errs, _ := p.run("", "consult", "--engine", "claude", "hi"); !strings.Contains(errs, "cannot find `claude`") ||
		strings.Contains(errs, "Your shell has it") {
		t.Errorf("consult with a program that this shell has not, either:\n%s", errs)
	}
}

func TestVersionJSON(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "holdline"), "version", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Version                  string
		MCP                      []string
		Greeting, Worker, Record []int
	}
	decode(t, string(out), &v)
	if v.Version == "" || len(v.MCP) != 5 || len(v.Greeting) == 0 || len(v.Worker) == 0 || len(v.Record) == 0 {
		t.Errorf("versions = %+v", v)
	}
}
