package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// hosting is the holdline object of a server in the configuration.
type hosting = map[string]any

// toolsEntry returns the tool server as an entry of the configuration.
func (p *place) toolsEntry(h hosting, args ...string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "toolserver"), "args": append([]string{"-ledger", p.effects()}, args...),
		"holdline": h,
	}
}

// configure writes a configuration with these servers. more are further keys of the file,
// each followed by its value. The process of an entry that [place.toolsEntry] and the like have made ends with its
// last session, unless it says otherwise: tests wait for that.
func (p *place) configure(servers map[string]any, more ...any) *place {
	p.t.Helper()
	servers = maps.Clone(servers)
	for name, server := range servers {
		entry, _ := server.(map[string]any)
		if own, ok := entry["holdline"].(hosting); ok && own["keep_alive"] == nil {
			entry, own = maps.Clone(entry), maps.Clone(own)
			if own == nil {
				own = hosting{}
			}
			own["keep_alive"], entry["holdline"] = "0s", own
			servers[name] = entry
		}
	}
	dir := filepath.Join(p.dir, "home/.config/holdline")
	cfg := map[string]any{"mcpServers": servers}
	for i := 0; i+1 < len(more); i += 2 {
		cfg[more[i].(string)] = more[i+1]
	}
	b, err := json.Marshal(cfg)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return p
}

// must runs a command, which must succeed, and returns its output.
func (p *place) must(args ...string) string {
	p.t.Helper()
	out, errs, code := p.run("", args...)
	if code != 0 {
		p.t.Fatalf("holdline %v: exit %d\n%s%s", args, code, out, errs)
	}
	return out
}

// server returns the daemon's status of one server.
func (p *place) server(name string) control.Server {
	p.t.Helper()
	return find(p.t, p.status(), name)
}

// find returns the named server of a status, and fails the test if it is not there.
func find(tb testing.TB, s control.StatusAnswer, name string) control.Server {
	tb.Helper()
	for _, one := range s.Servers {
		if one.Name == name {
			return one
		}
	}
	tb.Fatalf("no server %s: %+v", name, s.Servers)
	return control.Server{}
}

// child returns the pid of a server's only process, or 0 if none serves.
func child(s control.StatusAnswer, name string) int {
	pid := 0
	for _, w := range s.Workers {
		if w.Name == name && w.State == "ready" {
			if pid != 0 {
				return 0
			}
			pid = w.ChildPID
		}
	}
	return pid
}

// untilReady waits until a server has one process that serves, and returns its pid.
func (p *place) untilReady(name string) int {
	p.t.Helper()
	return child(p.until(name+" serves", func(s control.StatusAnswer) bool {
		return child(s, name) != 0 && find(p.t, s, name).State == "ready"
	}), name)
}

// code returns the fault code of a failed call, or "".
func (x answer) code() string {
	var r struct {
		Fault struct {
			Code string `json:"code"`
		} `json:"fault"`
	}
	if x.Result.IsError {
		_ = json.Unmarshal(x.Result.StructuredContent, &r)
	}
	return r.Fault.Code
}

// TestServersShown checks that status and servers list show the state of each server, what
// went wrong, and how to fix it, and without a daemon what is configured.
func TestServersShown(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	hold := filepath.Join(p.dir, "hold") // while it is there, the server does not start
	tools := p.toolsEntry(hosting{"scope": "shared", "keep_alive": "10ms"})
	tools["args"] = append([]string{
		"-c", "while [ -e " + hold + ` ]; do sleep 0.05; done; exec "$0" "$@"`,
		tools["command"].(string),
	}, tools["args"].([]string)...)
	tools["command"] = "sh"
	p.configure(map[string]any{
		"tools": tools, "off": map[string]any{"command": "true", "disabled": true},
		"lazy": p.toolsEntry(hosting{"lazy": true}),
	})
	if out := p.must("servers", "list"); !strings.Contains(out, "enabled") || strings.Contains(out, "SESSIONS") {
		t.Errorf("without a daemon:\n%s", out)
	}
	p.daemon()
	if s := p.server("tools"); s.State != "idle" || s.Active || s.RefCount != 0 || s.Tools != nil ||
		s.LastFault != nil {
		t.Errorf("before anybody came: %+v", s)
	}
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	p.untilReady("tools")
	a.wait(a.call("tools__noise", map[string]any{"token": "n"}))
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := b.wait(b.call("tools__die", map[string]any{"code": 7})); x.code() != "outcome_unknown" {
		t.Errorf("die: %s", x.raw)
	}
	if out := p.must("servers"); !strings.Contains(out, "last words") {
		t.Errorf("servers:\n%s", out)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	p.untilReady("tools")
	s := p.server("tools")
	if s.Scope != "shared" || !s.Active || s.Lazy || s.RefCount != 2 || s.Processes != 1 || s.Restarts != 1 ||
		s.Circuit != "closed" ||
		s.Ejected || s.Tools == nil || *s.Tools != len(toolServerTools()) {
		t.Errorf("after a death: %+v", s)
	}
	if f := s.LastFault; f == nil || f.Cause == nil || f.Cause.ExitCode == nil || *f.Cause.ExitCode != 7 {
		t.Errorf("last fault: %+v", f)
	}
	if l := p.server("lazy"); l.State != "idle" || l.Active || !l.Lazy || l.RefCount != 0 {
		t.Errorf("lazy: %+v", l)
	}
	a.wait(a.call("tools__noise", map[string]any{"token": "n"}))
	if x := a.wait(a.call("health_snapshot", map[string]any{
		"detail": "full",
	})); !strings.Contains(x.text(), "servers=2") {
		t.Errorf("health: %s", x.raw)
	}
	out := p.must("status")
	for want, isThere := range map[string]bool{
		"SERVER": true, "tools": true, "shared": true, "wrote 1 line to stdout": true, "exit code 7": false, // it is over
	} {
		if strings.Contains(out, want) != isThere {
			t.Errorf("status and %q: there is %v:\n%s", want, isThere, out)
		}
	}
	var list []listedServer
	decode(t, p.must("servers", "list", "--json"), &list)
	if len(list) != 3 || list[1].Live != nil || list[2].Live == nil || list[2].Live.State != "ready" ||
		list[2].Live.NoiseLines != 1 {
		t.Errorf("servers list --json: %+v", list)
	}
	if out := p.must("servers"); !strings.Contains(out, "disabled") || !strings.Contains(out, "ready") {
		t.Errorf("servers:\n%s", out)
	}
	a.rest()
	b.rest()
	p.until("the server to be idle", func(s control.StatusAnswer) bool { return find(t, s, "tools").State == "idle" })
	if out := p.must("status"); !strings.Contains(out, "no recent faults") || strings.Contains(out, "had a fault") {
		t.Errorf("once nobody uses it, a fault that is over is said again:\n%s", out)
	}
}

// TestServersReload checks that a reload replaces the servers whose configuration has
// changed, after their calls in flight, and no others, and that clients of both eras are
// notified.
func TestServersReload(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	same := p.toolsEntry(hosting{"scope": "shared"})
	p.configure(map[string]any{"same": same, "other": p.toolsEntry(hosting{"scope": "shared"}), "gone": same}).daemon()
	a, m := p.agent("--identity", "a").shake(), p.agent("--identity", "m")
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
	listen := m.begin("subscriptions/listen",
		map[string]any{"_meta": meta, "notifications": map[string]any{"toolsListChanged": true}})
	a.ask("tools/list", map[string]any{})
	before := map[string]int{}
	for _, name := range []string{"same", "other", "gone"} {
		before[name] = p.untilReady(name)
	}
	m.until(func(x *answer) bool { return x.Method == "notifications/subscriptions/acknowledged" })
	running := a.call("other__effect", map[string]any{"token": "r", "ms": 500})
	p.untilEffect("begin r")
	p.configure(map[string]any{
		"same": same, "other": p.toolsEntry(hosting{"scope": "shared"}, "-noise"), "fresh": same,
	})
	if out := p.must("reload"); !strings.Contains(out, "reloaded") {
		t.Errorf("reload: %s", out)
	}
	told, answered := false, answer{}
	a.until(func(x *answer) bool {
		told = told || x.Method == "notifications/tools/list_changed"
		if x.answers(running) {
			answered = *x
		}
		return told && answered.raw != ""
	})
	if answered.Result.IsError || answered.text() != "r" || p.effectsOf("end r") != 1 {
		t.Errorf("the call in flight: %s", answered.raw)
	}
	m.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	after := p.until("the servers are replaced", func(s control.StatusAnswer) bool {
		return child(s, "other") != 0 && child(s, "fresh") != 0 && child(s, "gone") == 0 && !alive(before["other"]) &&
			!alive(before["gone"])
	})
	if child(after, "same") != before["same"] || child(after, "other") == before["other"] {
		t.Errorf("processes %+v, before %v", after.Workers, before)
	}
	for _, one := range after.Sessions {
		if one.InFlight != 0 { // an open subscription does not count as a call
			t.Errorf("calls in flight of %s: %d", one.Identity, one.InFlight)
		}
	}
	x := a.ask("tools/list", map[string]any{})
	if !strings.Contains(x.raw, `"fresh__effect"`) || strings.Contains(x.raw, `"gone__effect"`) {
		t.Errorf("tools/list: %s", x.raw)
	}
	if x := a.wait(a.call("other__look", map[string]any{"token": "l"})); x.text() != "l" {
		t.Errorf("the new server: %s", x.raw)
	}
	if out := p.must("reload"); !strings.Contains(out, "no change") {
		t.Errorf("reload: %s", out)
	}
	a.rest(running)
	m.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, listen))
	m.rest()
}

// TestServersReloadLists checks that changed lists and limits of a server are in force at
// once, and that its process stays.
func TestServersReloadLists(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	pid := p.untilReady("tools")
	a.ask("tools/list", map[string]any{})
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{
		"scope": "shared", "deny": []string{"big"}, "contract": "convergent",
	})})
	p.must("reload")
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	if x := a.ask("tools/list", map[string]any{}); strings.Contains(x.raw, `"tools__big"`) ||
		!strings.Contains(x.raw, `"tools__effect"`) {
		t.Errorf("tools/list: %s", x.raw)
	}
	if x := a.wait(a.call("tools__big", map[string]any{})); x.code() != "denied" ||
		!strings.Contains(x.text(), "mcpServers.tools.holdline.deny[0]") {
		t.Errorf("a tool that is denied now: %s", x.raw)
	}
	// It is convergent now, so it runs again when its process dies.
	id := a.call("tools__effect", map[string]any{"token": "c", "until": p.latch("c")})
	p.untilEffect("begin c")
	kill9(t, p.status().Workers[0].PID)
	p.letThrough("c")
	if x := a.wait(id); x.text() != "c" || p.effectsOf("begin c") != 2 {
		t.Errorf("begun %d times: %s", p.effectsOf("begin c"), x.raw)
	}
	if after := p.untilReady("tools"); after == pid {
		t.Error("the dead process serves")
	}
	// The list of this identity has changed, too.
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{
		"scope": "shared", "deny": []string{"big"}, "contract": "convergent",
	})},
		"identities", map[string]any{"test": map[string]any{"deny": []string{"tools__look"}}})
	p.must("reload")
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	a.rest()
}

// TestServerEjected checks that a server that ends too often is not started again, also by
// the next daemon, until it is fixed and reloaded.
func TestServerEjected(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	sick := filepath.Join(p.dir, "sick")
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "max_restarts": 2}, "-sick", sick)})
	d := p.daemon()
	a := p.agent().shake()
	before := p.untilReady("tools")
	if err := os.WriteFile(sick, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := a.wait(a.call("tools__die", map[string]any{"code": 7})); x.code() != "outcome_unknown" ||
		!strings.Contains(x.raw, `"exit_code":7`) {
		t.Errorf("die: %s", x.raw)
	}
	ejected := func(s control.StatusAnswer) bool { return find(t, s, "tools").State == "ejected" }
	s := find(t, p.until("the server is ejected", ejected), "tools")
	if f := s.LastFault; !s.Ejected || s.Active || s.Restarts != 2 || f == nil || f.Cause == nil ||
		f.Cause.ExitCode == nil || *f.Cause.ExitCode != 3 {
		t.Errorf("ejected: %+v, %+v", s, s.LastFault)
	}
	refused := func() {
		t.Helper()
		x := a.wait(a.effect("e", 0))
		if x.code() != "ejected" || !strings.Contains(x.text(), "holdline servers reload tools; the last time: ") ||
			p.effectsOf("begin e") != 0 {
			t.Errorf("a call of an ejected server: %s", x.raw)
		}
	}
	refused()
	kill9(t, d.Process.Pid)
	p.daemon()
	refused()
	if s := p.server("tools"); !s.Ejected || s.State != "ejected" || s.Tools == nil {
		t.Errorf("in the next daemon: %+v", s)
	}
	if out := p.must("servers"); !strings.Contains(out, "ejected") ||
		!strings.Contains(out, "holdline servers reload tools") {
		t.Errorf("servers:\n%s", out)
	}
	if _, errs, code := p.run("", "servers", "reload", "tools"); code != 1 || !strings.Contains(errs, "exit code 3") ||
		!strings.Contains(errs, "I am sick") {
		t.Errorf("reload of a server that is still sick: exit %d, %s", code, errs)
	}
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	if out := p.must("servers", "reload", "tools"); !strings.Contains(out, "ready") {
		t.Errorf("reload: %s", out)
	}
	if pid := p.untilReady("tools"); pid == before {
		t.Error("the process of before is back")
	}
	if s := p.server("tools"); s.Restarts != 0 || s.LastFault != nil {
		t.Errorf("after the reload: %+v", s)
	}
	if x := a.wait(a.effect("back", 0)); x.text() != "back" {
		t.Errorf("after the reload: %s", x.raw)
	}
	a.rest()
}

// TestServerRecovers checks that a server that has ended by itself and does not start is
// tried again without a call, and that calls do not wait until it works.
func TestServerRecovers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	sick := filepath.Join(p.dir, "sick")
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{
		"scope": "shared", "max_restarts": 100, "circuit_threshold": 100,
	}, "-sick", sick)}).daemon()
	a := p.agent().shake()
	before := p.untilReady("tools")
	if err := os.WriteFile(sick, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.wait(a.call("tools__die", map[string]any{}))
	if x := a.wait(a.effect("e", 0)); x.code() != "spawn_failure" || !strings.Contains(x.raw, "I am sick") {
		t.Errorf("a call meanwhile: %s", x.raw)
	}
	p.until("it is tried again", func(s control.StatusAnswer) bool {
		one := find(t, s, "tools")
		return one.Restarts > 3 && one.State == "recovering" && !one.Ejected
	})
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	if after := p.untilReady("tools"); after == before {
		t.Error("the process of before is back")
	}
	if x := a.wait(a.effect("f", 0)); x.text() != "f" || p.effectsOf("begin e") != 0 {
		t.Errorf("once it is well: %s", x.raw)
	}
	a.rest()
}

// TestServersStop checks that a stopped server stays stopped over the death of the daemon,
// until it is started.
func TestServersStop(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "project"})})
	d := p.daemon()
	a := p.agent().shake()
	pid := p.untilReady("tools")
	id := a.effect("e", 60_000)
	p.untilEffect("begin e")
	if out := p.must("servers", "stop", "tools"); !strings.Contains(out, "stopped") ||
		!strings.Contains(out, "holdline servers start tools") {
		t.Errorf("stop: %s", out)
	}
	if x := a.wait(id); x.code() != "outcome_unknown" || alive(pid) {
		t.Errorf("the server lives: %v; the call in flight: %s", alive(pid), x.raw)
	}
	refused := func() {
		t.Helper()
		if x := a.wait(a.effect("f", 0)); x.code() != "ejected" ||
			!strings.Contains(x.text(), "holdline servers start tools") {
			t.Errorf("a call of a stopped server: %s", x.raw)
		}
	}
	refused()
	if x := a.ask("tools/list", map[string]any{}); !strings.Contains(x.raw, `"tools__effect"`) {
		t.Errorf("tools/list: %s", x.raw)
	}
	kill9(t, d.Process.Pid)
	p.daemon()
	refused()
	b := p.agent("--identity", "b").shake()
	// Another server of that name.
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "project"}, "-noise")})
	p.must("reload")
	refused()
	if s := p.server("tools"); s.State != "stopped" || s.Active || len(p.status().Workers) != 0 {
		t.Errorf("in the next daemon: %+v", s)
	}
	if out := p.must("servers", "start", "tools"); !strings.Contains(out, "ready (1 process)") {
		t.Errorf("start: %s", out)
	}
	if x := b.wait(b.effect("g", 0)); x.text() != "g" {
		t.Errorf("after the start: %s", x.raw)
	}
	before := p.untilReady("tools")
	p.must("servers", "restart", "tools")
	if after := p.untilReady("tools"); after == before || alive(before) {
		t.Error("restart has started nothing, or ended nothing")
	}
	for _, args := range [][]string{
		{"stop", "none"},
		{"restart", "none"},
		{"get", "none"},
		{"test", "none"},
		{"remove", "none"},
		{"start", "none"},
		{"reload", "none"},
		{"tools", "none"},
		{"call", "none", "x"},
		{"logs", "none"},
	} {
		if _, errs, code := p.run("", append([]string{"servers"}, args...)...); code != 1 ||
			errs != "holdline: server none is not configured; those that are: holdline servers list\n" {
			t.Errorf("servers %v: exit %d, %s", args, code, errs)
		}
	}
	for _, verb := range []string{"stop", "start", "restart", "get", "remove"} {
		if _, errs, code := p.run("", "servers", verb, "tool"); code != 1 ||
			errs != "holdline: server tool is not configured; did you mean tools?\n" {
			t.Errorf("servers %s tool: exit %d, %s", verb, code, errs)
		}
	}
	a.rest(id)
	b.rest()
}

// TestServerStopInterrupted kills the daemon after it has recorded that a server is
// stopped, and before it has ended the server. The next daemon ends it.
func TestServerStopInterrupted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	d := p.daemon()
	a := p.agent().shake()
	pid := p.untilReady("tools")
	id := a.effect("e", 60_000)
	p.untilEffect("begin e")
	// Written while the daemon runs, which does not read it again: as soon as it is dead, the
	// proxy may start the next one.
	standing := filepath.Join(p.dir, "home/.local/state/holdline/servers/tools.json")
	if err := os.WriteFile(standing, []byte(`{"version":1,"stopped":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	kill9(t, d.Process.Pid)
	p.daemon()
	if x := a.wait(id); x.code() != "outcome_unknown" || alive(pid) {
		t.Errorf("the server lives: %v; the call in flight: %s", alive(pid), x.raw)
	}
	p.must("servers", "start", "tools")
	if _, err := os.Stat(standing); !os.IsNotExist(err) {
		t.Errorf("after the start: %v", err)
	}
	if x := a.wait(a.effect("f", 0)); x.text() != "f" {
		t.Errorf("after the start: %s", x.raw)
	}
	a.rest(id)
}

// TestServersUpgrade checks that over an upgrade a stopped server stays stopped, and that
// another keeps its process with its call in flight.
func TestServersUpgrade(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.installVersion(t, older)
	p.configure(map[string]any{
		"on": p.toolsEntry(hosting{"scope": "shared"}), "off": p.toolsEntry(hosting{"scope": "shared"}),
	})
	p.daemonAt(p.bin())
	a := p.agent().shake()
	pid := p.untilReady("on")
	p.untilReady("off")
	p.must("servers", "stop", "off")
	id := a.call("on__effect", map[string]any{"token": "u", "ms": 1500})
	p.untilEffect("begin u")
	p.installVersion(t, newer)
	if out := p.must("upgrade"); !strings.Contains(out, newer) {
		t.Errorf("upgrade: %s", out)
	}
	if x := a.wait(id); x.text() != "u" || p.effectsOf("begin u") != 1 {
		t.Errorf("the call in flight: %s", x.raw)
	}
	if x := a.wait(a.call("off__effect", map[string]any{"token": "o"})); x.code() != "ejected" ||
		p.effectsOf("begin o") != 0 {
		t.Errorf("a call of a stopped server: %s", x.raw)
	}
	waitFor(t, "the process of on to be known", func() bool { return child(p.status(), "on") != 0 })
	s := p.status()
	if s.Daemon.Version != newer || find(t, s, "off").State != "stopped" || child(s, "on") != pid ||
		len(s.Workers) != 1 {
		t.Errorf("after the upgrade: %+v", s)
	}
	p.must("servers", "start", "off")
	p.untilReady("off")
	a.rest(id)
}

// TestServerToolErrors checks that errors that a tool reports do not open the circuit.
func TestServerToolErrors(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "circuit_threshold": 1})}).daemon()
	a := p.agent().shake()
	for i := range 50 {
		if x := a.wait(a.call("tools__fail", map[string]any{"token": fmt.Sprint(i)})); !x.Result.IsError ||
			x.code() != "" {
			t.Fatalf("fail: %s", x.raw)
		}
		if x := a.wait(a.call("tools__refuse", map[string]any{"token": fmt.Sprint(i)})); x.Error == nil ||
			x.Error.Code != -32602 {
			t.Fatalf("refuse: %s", x.raw)
		}
	}
	if s := p.server("tools"); s.Circuit != "closed" || s.Failures != 0 || s.Restarts != 0 {
		t.Errorf("after 100 errors of tools: %+v", s)
	}
	// A failure of the server itself opens it.
	if x := a.wait(a.call("tools__die", map[string]any{})); x.code() != "outcome_unknown" {
		t.Errorf("die: %s", x.raw)
	}
	if s := p.server("tools"); s.Circuit != "open" || s.Failures != 1 {
		t.Errorf("after one failure: %+v", s)
	}
	a.rest()
}

// TestServerCircuit checks that calls of a server that does not start fail at once after a
// while, except for one that tries, and that calls succeed again after that one.
func TestServerCircuit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	entry := p.toolsEntry(hosting{
		"scope": "shared", "lazy": true, "circuit_threshold": 2, "circuit_reset": "4s", "max_restarts": 50,
	})
	command := filepath.Join(p.dir, "bin", "toolserver")
	entry["command"] = command
	p.configure(map[string]any{"tools": entry}).daemon()
	a := p.agent().shake()
	for range 2 {
		if x := a.wait(a.effect("e", 0)); x.code() != "spawn_failure" || !strings.Contains(x.raw, "ENOENT") {
			t.Fatalf("no such command: %s", x.raw)
		}
	}
	x := a.wait(a.effect("e", 0))
	if x.code() != "circuit_open" || !strings.Contains(x.raw, `"retry_after_ms":`) {
		t.Errorf("after two failures: %s", x.raw)
	}
	if s := p.server("tools"); s.Circuit != "open" || s.Failures != 2 || s.Restarts != 2 {
		t.Errorf("after two failures: %+v", s)
	}
	halfOpen := func(s control.StatusAnswer) bool { return find(t, s, "tools").Circuit == "half_open" }
	p.until("the circuit is half open", halfOpen)
	var ids []int
	for range 5 {
		ids = append(ids, a.effect("e", 0))
	}
	codes := map[string]int{}
	for _, x := range a.waitAll(ids...) {
		codes[x.code()]++
	}
	if codes["spawn_failure"] != 1 || codes["circuit_open"] != 4 || p.server("tools").Restarts != 3 {
		t.Errorf("of five calls at once: %v", codes)
	}
	if err := os.Mkdir(filepath.Dir(command), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(programs, "toolserver"), command); err != nil {
		t.Fatal(err)
	}
	p.until("the circuit is half open", halfOpen)
	if x := a.wait(a.effect("back", 0)); x.text() != "back" {
		t.Errorf("once it is there: %s", x.raw)
	}
	if s := p.server("tools"); s.Circuit != "closed" || s.Failures != 0 {
		t.Errorf("once it is there: %+v", s)
	}
	a.rest()
}

// TestServerFair checks that of two sessions whose calls wait, each gets its turn.
func TestServerFair(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "max_concurrent": 1})}).daemon()
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	first := a.call("tools__effect", map[string]any{"token": "a0", "until": p.latch("a0")})
	p.untilEffect("begin a0")
	queued := func(n int) {
		p.until(fmt.Sprint(n, " calls wait"),
			func(s control.StatusAnswer) bool { return find(t, s, "tools").Queued == n })
	}
	var ids []int
	for i := range 5 {
		ids = append(ids, a.effect(fmt.Sprint("a", i+1), 0))
	}
	queued(5)
	other := b.effect("b", 0)
	queued(6)
	if s := p.server("tools"); s.InFlight != 1 {
		t.Errorf("%d calls in flight", s.InFlight)
	}
	p.letThrough("a0")
	a.waitAll(append(ids, first)...)
	b.wait(other)
	ledger, err := os.ReadFile(p.effects())
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(ledger), "begin b ")
	if n := strings.Count(before, "begin a"); !found || n > 2 {
		t.Errorf("the other session waited for %d calls:\n%s", n, ledger)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(ledger)), "\n") {
		if want := []string{"begin", "end"}[i%2]; !strings.HasPrefix(line, want) {
			t.Errorf("two calls at once:\n%s", ledger)
			break
		}
	}
	a.rest()
	b.rest()
}

// TestServerBudget checks that an identity may make only so many calls, in all its sessions
// together.
func TestServerBudget(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})},
		"identities", map[string]any{"few": map[string]any{"budget": map[string]any{"calls": 2}}}).daemon()
	a := p.agent("--identity", "few").shake()
	for _, token := range []string{"1", "2"} {
		if x := a.wait(a.effect(token, 0)); x.text() != token {
			t.Errorf("within the budget: %s", x.raw)
		}
	}
	if x := a.wait(a.effect("3", 0)); x.code() != "budget_exceeded" ||
		!strings.Contains(x.raw, `"limit":{"name":"calls","value":2,"spent":2}`) || p.effectsOf("begin 3") != 0 {
		t.Errorf("beyond the budget: %s", x.raw)
	}
	b := p.agent("--identity", "few").shake()
	if x := b.wait(b.effect("4", 0)); x.code() != "budget_exceeded" {
		t.Errorf("another session of the same client process: %s", x.raw)
	}
	c := p.agentElsewhere("--identity", "few").shake()
	if x := c.wait(c.effect("5", 0)); x.text() != "5" {
		t.Errorf("another client process: %s", x.raw)
	}
	for _, one := range []*agent{a, b, c} {
		one.rest()
	}
	d := p.agent("--identity", "few").shake()
	if x := d.wait(d.effect("6", 0)); x.text() != "6" {
		t.Errorf("the client's next session, after its last one has ended: %s", x.raw)
	}
	d.rest()
}

// loggedCall is a line of the call log.
type loggedCall struct {
	Event  string `json:"event"`
	Tool   string `json:"tool_name"`
	Server string `json:"server"`
	Cache  string `json:"cache"`
	Kind   string `json:"error_kind"`
}

// callLog returns the lines of the place's call log about calls. It waits until there are
// want of them, because an answer is sent before its line is written.
func (p *place) callLog(want int) []loggedCall {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(2 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(p.dir, "home/.local/state/holdline/telemetry.jsonl"))
		if err != nil && !os.IsNotExist(err) {
			p.t.Fatal(err)
		}
		var all []loggedCall
		for line := range strings.Lines(string(b[:bytes.LastIndexByte(b, '\n')+1])) {
			var c loggedCall
			if decode(p.t, line, &c); c.Tool != "" {
				all = append(all, c)
			}
		}
		if len(all) >= want {
			return all
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%d calls are in the log, want %d: %+v", len(all), want, all)
		}
	}
}

// TestServerCache checks that a cacheable answer is given again to the identity that asked,
// until the server is restarted.
func TestServerCache(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})}).daemon()
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	fresh := func(who *agent, ttl, want int) {
		t.Helper()
		x := who.wait(who.call("tools__fresh", map[string]any{"token": "f", "ttl": ttl}))
		if x.text() != "f" || p.effectsOf("fresh f") != want {
			t.Errorf("the server was asked %d times, want %d: %s", p.effectsOf("fresh f"), want, x.raw)
		}
	}
	fresh(a, 600_000, 1)
	fresh(a, 600_000, 1)
	fresh(b, 600_000, 2)
	fresh(a, 0, 3)
	fresh(a, 0, 4) // not cacheable
	if s := p.server("tools"); s.CacheCount != 2 {
		t.Errorf("%d answers are kept", s.CacheCount)
	}
	if c := p.status().Cache; c.Hits != 1 || c.Misses != 4 || c.Entries != 2 ||
		!strings.Contains(p.must("status", "-v"), "cache    1 hits, 4 misses, 2 answers") {
		t.Errorf("status has %+v", c)
	}
	if out := p.must("telemetry", "--json"); !strings.Contains(strings.Join(strings.Fields(out), ""),
		`"cache":{"hits":1,"misses":4}`) {
		t.Errorf("telemetry: %s", out)
	}
	p.must("servers", "restart", "tools")
	fresh(a, 600_000, 5)
	a.wait(a.call("tools__die", map[string]any{}))
	var lines []string
	for _, line := range p.callLog(7) {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", line.Server, line.Tool, line.Cache, line.Kind))
	}
	if got, want := lines[:2],
		[]string{"tools tools__fresh miss ", "tools tools__fresh hit "}; !slices.Equal(got, want) {
		t.Errorf("the call log begins with %q, want %q", got, want)
	}
	if got, want := lines[len(lines)-1], "tools tools__die  outcome_unknown"; got != want {
		t.Errorf("the call log ends with %q, want %q", got, want)
	}
	a.rest()
	b.rest()
}

// TestServerKeepAlive checks that a process ends some time after its last session, unless
// another session has begun.
func TestServerKeepAlive(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"kept": p.toolsEntry(hosting{"scope": "shared", "keep_alive": "1h"}),
		"soon": p.toolsEntry(hosting{"scope": "shared"}),
	}).daemon()
	a := p.agent().shake()
	kept, soon := p.untilReady("kept"), p.untilReady("soon")
	a.rest()
	s := p.until("the one is ended",
		func(s control.StatusAnswer) bool { return !alive(soon) && find(t, s, "soon").State == "idle" })
	if one := find(t, s, "kept"); !alive(kept) || one.State != "ready" || one.RefCount != 0 ||
		find(t, s, "soon").LastFault != nil {
		t.Errorf("the other: %+v", one)
	}
	b := p.agent().shake()
	if again := p.untilReady("kept"); again != kept {
		t.Errorf("process %d, before %d", again, kept)
	}
	p.untilReady("soon")
	p.configure(map[string]any{
		"kept": p.toolsEntry(hosting{"scope": "shared", "keep_alive": "1ms"}),
		"soon": p.toolsEntry(hosting{"scope": "shared"}),
	})
	p.must("reload")
	b.rest()
	p.until("the other is ended", func(s control.StatusAnswer) bool { return !alive(kept) && len(s.Workers) == 0 })
}

// TestServerLazy checks that a lazy server is started by its first call, and, once it has
// run, not to be listed.
func TestServerLazy(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "lazy": true})})
	d := p.daemon()
	a := p.agent().shake()
	a.ask("ping", map[string]any{})
	if s := p.server("tools"); s.State != "idle" || s.RefCount != 0 || len(p.status().Workers) != 0 {
		t.Errorf("a session has come: %+v", s)
	}
	waitFor(t, "the list of the lazy server, which the list starts", func() bool {
		return strings.Contains(a.ask("tools/list", map[string]any{}).raw, `"tools__effect"`)
	})
	a.rest()
	p.until("nothing runs", func(s control.StatusAnswer) bool { return len(s.Workers) == 0 })
	kill9(t, d.Process.Pid)
	p.daemon()
	b := p.agent().shake()
	if x := b.ask("tools/list", map[string]any{}); !strings.Contains(x.raw, `"tools__effect"`) {
		t.Errorf("tools/list: %s", x.raw)
	}
	if s := p.server("tools"); s.State != "idle" || s.Tools == nil || len(p.status().Workers) != 0 {
		t.Errorf("the list has started: %+v", s)
	}
	if x := b.wait(b.effect("e", 0)); x.text() != "e" || p.server("tools").State != "ready" {
		t.Errorf("the first call: %s", x.raw)
	}
	b.rest()
}

// TestServerScopes checks that sessions of two projects share the process of a shared
// server, and not that of a server of scope project, which is started in the project's
// root.
func TestServerScopes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"one": p.toolsEntry(hosting{"scope": "shared"}), "each": p.toolsEntry(hosting{"scope": "project"}),
	}).daemon()
	other := filepath.Join(p.dir, "q")
	if err := os.MkdirAll(filepath.Join(other, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := p.agent().shake()
	cmd := p.command("mcp-stdio")
	cmd.Dir = other
	b := p.agentOf(cmd).shake()
	for _, x := range []*agent{a, b} {
		x.wait(x.call("one__effect", map[string]any{"token": "one"}))
		x.wait(x.call("each__effect", map[string]any{"token": "each"}))
	}
	s := p.status()
	if one, each := find(t, s, "one"), find(t, s, "each"); one.Processes != 1 || one.RefCount != 2 ||
		each.Processes != 2 || each.RefCount != 2 {
		t.Errorf("one %+v, each %+v", one, each)
	}
	roots := map[string]bool{}
	for _, w := range s.Workers {
		if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", w.ChildPID)); err == nil && w.Name == "each" {
			roots[dir] = true
		}
	}
	if !roots[p.project] || !roots[other] {
		t.Errorf("started in %v", roots)
	}
	a.rest()
	b.rest()
}

// TestServerVariables checks that a missing variable is named, and that its value is used
// once it is set.
func TestServerVariables(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	entry := p.toolsEntry(hosting{"scope": "shared", "lazy": true})
	entry["env"] = map[string]string{"KEY": "${NO_SUCH_VARIABLE}"}
	p.configure(map[string]any{"tools": entry}).daemon()
	a := p.agent().shake()
	if x := a.wait(a.effect("e", 0)); x.code() != "spawn_failure" || !strings.Contains(x.text(), "NO_SUCH_VARIABLE") {
		t.Errorf("not set: %s", x.raw)
	}
	if out := p.must("servers"); !strings.Contains(out, "NO_SUCH_VARIABLE") {
		t.Errorf("servers:\n%s", out)
	}
	secret := "a-secret-value"
	if err := os.WriteFile(filepath.Join(p.dir, "home/.config/holdline/env"), []byte("NO_SUCH_VARIABLE="+secret+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	p.must("servers", "reload", "tools")
	if x := a.wait(a.call("tools__words", map[string]any{"token": "key " + secret})); x.Result.IsError {
		t.Errorf("set: %s", x.raw)
	}
	// The server's output about it is shown nowhere.
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(10 * time.Millisecond) {
		out := p.must("logs", "tools")
		if strings.Contains(out, secret) {
			t.Fatalf("logs: %s", out)
		}
		if strings.Contains(out, "toolserver: key ***") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("logs: %s", out)
		}
	}
	x := a.wait(a.call("tools__die", map[string]any{}))
	if x.code() != "outcome_unknown" || !strings.Contains(x.raw, "key ***") || strings.Contains(x.raw, secret) {
		t.Errorf("the last words: %s", x.raw)
	}
	if out := p.must("status", "--json"); !strings.Contains(out, "key ***") || strings.Contains(out, secret) {
		t.Errorf("status: %s", out)
	}
	a.rest()
}

// TestServersCall checks that the command line lists and calls tools.
func TestServersCall(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{
		"tools": p.toolsEntry(hosting{"deny": []string{"big"}, "contract": map[string]any{"fresh": "never_replay"}}),
		"gone":  map[string]any{"command": filepath.Join(p.dir, "gone")},
	})
	out := p.must("servers", "tools", "tools") // starts a daemon
	for _, want := range []string{
		"effect  not repeatable  does effect", "look  safe to repeat  does look", "fresh  not repeatable  does fresh",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("tools lack %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "big") {
		t.Errorf("a tool that is denied is listed:\n%s", out)
	}
	var all []control.ServerOffers
	decode(t, p.must("servers", "tools", "--json"), &all)
	if len(all) != 2 || all[0].Server != "gone" || all[0].Fault == nil || all[0].Fault.Fault.Code != "spawn_failure" ||
		len(all[1].Tools) != len(toolServerTools())-1 {
		t.Errorf("tools --json: %+v", all)
	}
	if _, errs, code := p.run("", "servers", "tools", "gone"); code != 1 ||
		!strings.Contains(errs, "was not found") {
		t.Errorf("tools of a server that is gone: exit %d, %s", code, errs)
	}
	if out := p.must("servers", "test", "tools"); !strings.Contains(out, "tools works: ") ||
		!strings.Contains(out, "effect") {
		t.Errorf("servers test: %s", out)
	}
	if _, errs, code := p.run("", "servers", "test", "gone"); code != 1 ||
		!strings.Contains(errs, "gone does not work: ") {
		t.Errorf("servers test of a server that is gone: exit %d, %s", code, errs)
	}
	if out := p.must("servers", "call", "tools", "effect", `{"token": "from-the-shell"}`); out != "from-the-shell\n" ||
		p.effectsOf("end from-the-shell") != 1 {
		t.Errorf("call: %q", out)
	}
	if out, _, code := p.run(`{"token": "piped"}`, "servers", "call", "tools", "tools__look", "-"); out != "piped\n" ||
		code != 0 {
		t.Errorf("call: exit %d, %q", code, out)
	}
	var result struct {
		Content []struct{ Text string }
		TTL     *int `json:"ttlMs"`
	}
	decode(t, p.must("servers", "call", "tools", "fresh", `{"token": "j", "ttl": 7}`, "--json"), &result)
	if len(result.Content) != 1 || result.Content[0].Text != "j" || result.TTL == nil || *result.TTL != 7 {
		t.Errorf("call --json: %+v", result)
	}
	for _, test := range []struct {
		args []string
		code int
		want string // part of stderr
	}{
		{[]string{"tools", "fail", `{"token": "sad"}`}, 1, ""},
		{[]string{"tools", "refuse"}, 1, "the arguments are bad (-32602)"},
		{[]string{"tools", "nonsense"}, 1, `offers no tool "nonsense"`},
		{[]string{"tools", "big"}, 1, "mcpServers.tools.holdline.deny[0]"},
		{[]string{"tools", "die"}, 1, "| toolserver: these are my last words"},
		{[]string{"tools", "look", "[1]"}, 2, "no JSON object"},
		{[]string{"tools", "look", ""}, 2, "no JSON object"},
	} {
		out, errs, code := p.run("", append([]string{"servers", "call"}, test.args...)...)
		if code != test.code || !strings.Contains(errs, test.want) ||
			test.want == "" && (out != "sad\n" || errs != "") {
			t.Errorf("call %v: exit %d, %q, %q", test.args, code, out, errs)
		}
	}
	// No session shares what the calls have started.
	p.until("nothing runs", func(s control.StatusAnswer) bool { return len(s.Workers) == 0 && len(s.Sessions) == 0 })
	if _, errs, code := p.run("", "logs", "tools"); code != 0 ||
		!strings.Contains(errs, "no process of server tools runs") {
		t.Errorf("logs: exit %d, %s", code, errs)
	}
}

// TestServersCallInterrupted checks that a call is cancelled when its command is ended.
func TestServersCallInterrupted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	p.untilReady("tools")
	cmd := p.command("servers", "call", "tools", "effect", `{"token": "i", "ms": 60000}`)
	errs := new(words)
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.untilEffect("begin i")
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err == nil || !strings.Contains(errs.String(), "the call is cancelled") {
		t.Errorf("interrupted: %v, %s", err, errs)
	}
	p.untilEffect("cancelled i")
	a.rest()
}

// TestServerLogsFollowed checks that a followed log continues over the deaths of the daemon
// and of the server.
func TestServerLogsFollowed(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().faults()
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	a := p.agent().shake()
	pid := p.pid(0)
	p.untilReady("tools")
	cmd := p.command("logs", "-f", "tools")
	out := new(words)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	say := func(token string) {
		t.Helper()
		a.wait(a.call("tools__words", map[string]any{"token": token}))
		waitFor(t, token+" in the log", func() bool { return strings.Count(out.String(), token) == 1 })
	}
	say("first")
	const starting = "start.locked"
	p.dieAs(starting, death{held: true})
	kill9(t, pid)
	waitFor(t, "the next daemon", func() bool { return p.died(starting) })
	time.Sleep(400 * time.Millisecond) // so that the command, which looks every 200 ms, sees that there is no server
	p.letGo(starting)
	p.pid(pid)
	say("second")
	a.wait(a.call("tools__die", map[string]any{}))
	p.untilReady("tools")
	say("third")
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("logs -f ended with %v", err)
	}
	if n := strings.Count(out.String(), "first"); n != 1 {
		t.Errorf("%d times the first line:\n%s", n, out)
	}
	a.rest()
}

// A listedServer is a server as `holdline servers list --json` prints it.
type listedServer struct{ Live *control.Server }
