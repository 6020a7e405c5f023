package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// hosting is the holdline object of a server in the configuration.
type hosting = map[string]any

// toolsEntry is the tool server as an entry of the configuration.
func (p *place) toolsEntry(h hosting, args ...string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "toolserver"), "args": append([]string{"-ledger", p.effects()}, args...), "holdline": h,
	}
}

// configure writes a configuration with these servers. Other keys of the file
// may follow, each with its value.
func (p *place) configure(servers map[string]any, more ...any) *place {
	p.t.Helper()
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

// must runs a command that has to succeed, and returns what it prints.
func (p *place) must(args ...string) string {
	p.t.Helper()
	out, errs, code := p.run("", args...)
	if code != 0 {
		p.t.Fatalf("holdline %v: exit %d\n%s%s", args, code, out, errs)
	}
	return out
}

// server is how the daemon has one server.
func (p *place) server(name string) control.Server {
	p.t.Helper()
	return find(p.t, p.status(), name)
}

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

// child is the pid of a server's only process, 0 if there is none that serves.
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

// untilReady waits until a server has one process that serves, and returns its
// pid.
func (p *place) untilReady(name string) int {
	p.t.Helper()
	return child(p.until(name+" serves", func(s control.StatusAnswer) bool {
		return child(s, name) != 0 && find(p.t, s, name).State == "ready"
	}), name)
}

// code is the fault's code of a call that failed; "" of one that did not.
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

// TestServersShown: status and servers list say how each server is, what went
// wrong, and what mends it; without a daemon there is what is configured.
func TestServersShown(t *testing.T) {
	p := newPlace(t)
	p.configure(map[string]any{
		"tools": p.toolsEntry(hosting{"scope": "shared"}), "off": map[string]any{"command": "true", "disabled": true},
		"lazy": p.toolsEntry(hosting{"lazy": true}),
	})
	if out := p.must("servers", "list"); !strings.Contains(out, "enabled") || strings.Contains(out, "SESSIONS") {
		t.Errorf("without a daemon:\n%s", out)
	}
	p.daemon()
	if s := p.server("tools"); s.State != "idle" || s.Active || s.RefCount != 0 || s.Tools != nil || s.LastFault != nil {
		t.Errorf("before anybody came: %+v", s)
	}
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	p.untilReady("tools")
	a.wait(a.call("tools__noise", map[string]any{"token": "n"}))
	if x := b.wait(b.call("tools__die", map[string]any{"code": 7})); x.code() != "outcome_unknown" {
		t.Errorf("die: %s", x.raw)
	}
	if out := p.must("servers"); !strings.Contains(out, "last words") {
		t.Errorf("servers:\n%s", out)
	}
	p.untilReady("tools")
	s := p.server("tools")
	if s.Scope != "shared" || !s.Active || s.Lazy || s.RefCount != 2 || s.Processes != 1 || s.Restarts != 1 || s.Circuit != "closed" ||
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
	out := p.must("status")
	for _, want := range []string{"SERVER", "tools", "shared", "exit code 7", "lines to stdout that are no messages"} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
	var list []server
	decode(t, p.must("servers", "list", "--json"), &list)
	if len(list) != 3 || list[1].Live != nil || list[2].Live == nil || list[2].Live.State != "ready" || list[2].Live.NoiseLines != 1 {
		t.Errorf("servers list --json: %+v", list)
	}
	if out := p.must("servers"); !strings.Contains(out, "disabled") || !strings.Contains(out, "ready") {
		t.Errorf("servers:\n%s", out)
	}
	a.rest()
	b.rest()
}

// TestServersReload: a reload replaces the servers that are configured
// otherwise, after their calls in flight, and no others; clients of both eras
// are told.
func TestServersReload(t *testing.T) {
	p := newPlace(t)
	same := p.toolsEntry(hosting{"scope": "shared"})
	p.configure(map[string]any{"same": same, "other": p.toolsEntry(hosting{"scope": "shared"}), "gone": same}).daemon()
	a, m := p.agent("--identity", "a").shake(), p.agent("--identity", "m")
	meta := map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	listen := m.begin("subscriptions/listen", map[string]any{"_meta": meta, "notifications": map[string]any{"toolsListChanged": true}})
	a.ask("tools/list", map[string]any{})
	before := map[string]int{}
	for _, name := range []string{"same", "other", "gone"} {
		before[name] = p.untilReady(name)
	}
	m.until(func(x *answer) bool { return x.Method == "notifications/subscriptions/acknowledged" })
	running := a.call("other__effect", map[string]any{"token": "r", "ms": 500})
	p.untilEffect("begin r")
	p.configure(map[string]any{"same": same, "other": p.toolsEntry(hosting{"scope": "shared"}, "-noise"), "fresh": same})
	if out := p.must("reload"); !strings.Contains(out, "reloaded") {
		t.Errorf("reload: %s", out)
	}
	told, answered := false, answer{}
	a.until(func(x *answer) bool {
		told = told || x.Method == "notifications/tools/list_changed"
		if n, ok := x.ID.(float64); ok && int(n) == running {
			answered = *x
		}
		return told && answered.raw != ""
	})
	if answered.Result.IsError || answered.text() != "r" || p.effectsOf("end r") != 1 {
		t.Errorf("the call in flight: %s", answered.raw)
	}
	m.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	after := p.until("the servers are replaced", func(s control.StatusAnswer) bool {
		return child(s, "other") != 0 && child(s, "fresh") != 0 && child(s, "gone") == 0 && !alive(before["other"]) && !alive(before["gone"])
	})
	if child(after, "same") != before["same"] || child(after, "other") == before["other"] {
		t.Errorf("processes %+v, before %v", after.Workers, before)
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

// TestServersReloadLists: other lists and limits of a server count at once, and
// its process goes on.
func TestServersReloadLists(t *testing.T) {
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent().shake()
	pid := p.untilReady("tools")
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "deny": []string{"big"}, "contract": "convergent"})})
	p.must("reload")
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	if x := a.ask("tools/list", map[string]any{}); strings.Contains(x.raw, `"tools__big"`) || !strings.Contains(x.raw, `"tools__effect"`) {
		t.Errorf("tools/list: %s", x.raw)
	}
	if x := a.wait(a.call("tools__big", map[string]any{})); x.Error == nil {
		t.Errorf("a tool that is denied now: %s", x.raw)
	}
	// Convergent now: it runs again when its process dies.
	id := a.call("tools__effect", map[string]any{"token": "c", "ms": 300})
	p.untilEffect("begin c")
	kill9(t, p.status().Workers[0].PID)
	if x := a.wait(id); x.text() != "c" || p.effectsOf("begin c") != 2 {
		t.Errorf("begun %d times: %s", p.effectsOf("begin c"), x.raw)
	}
	if after := p.untilReady("tools"); after == pid {
		t.Error("the dead process serves")
	}
	// An identity's list is another one, too.
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "deny": []string{"big"}, "contract": "convergent"})},
		"identities", map[string]any{"test": map[string]any{"deny": []string{"tools__look"}}})
	p.must("reload")
	a.until(func(x *answer) bool { return x.Method == "notifications/tools/list_changed" })
	a.rest()
}
