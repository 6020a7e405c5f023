package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestServerSlow checks that a server that does not start in its time is ended, with a
// fault that says so, and is started again without a call.
func TestServerSlow(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	once := filepath.Join(p.dir, "once")
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared", "start_timeout": "20s"}, "-slow", "1h",
		"-once", once)}).daemon()
	a := p.agent().shake()
	s := p.until("the second process serves",
		func(s control.StatusAnswer) bool { return find(t, s, "stray").State == "ready" })
	one := find(t, s, "stray")
	if f := one.LastFault; f == nil || f.Fault.Code != "timeout" ||
		!strings.Contains(f.Fault.Detail, "had not started after 20s, so Holdline has ended it") ||
		!strings.Contains(f.Fault.Detail, "start_timeout") {
		t.Errorf("the fault of the first: %+v", one.LastFault)
	}
	if x := a.wait(a.call("stray__say", map[string]any{"token": "a"})); x.text() != "a" || one.Restarts != 1 {
		t.Errorf("the server %+v answers %s", one, x.raw)
	}
	a.rest()
}

// TestServerDownloads checks that each line that a starting server writes to stderr
// restarts its time to start: it may be downloading itself.
func TestServerDownloads(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared", "start_timeout": "15s"}, "-slow", "40s",
		"-talk")}).daemon()
	a := p.agent().shake()
	p.untilReady("stray")
	if s := p.server("stray"); s.Restarts != 0 || s.LastFault != nil {
		t.Errorf("the server: %+v", s)
	}
	a.rest()
}

// TestHandshakeDoesNotWait checks that a handshake with a server that starts slowly is
// answered at once, that a list of its tools waits for a while, and that its tools appear
// when it has started.
func TestHandshakeDoesNotWait(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared"}, "-await", p.latch("start"))}).daemon()
	a := p.agent("--server", "stray")
	x := a.ask("initialize",
		map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
			"clientInfo": map[string]string{"name": "test", "version": "1"},
		})
	if s := p.server("stray"); s.State != "starting" {
		t.Errorf("after the handshake the server is %s", s.State)
	}
	for _, want := range []string{
		`"serverInfo":{"name":"stray","version":"unknown"}`, `"tools":{"listChanged":true}`, "still starting",
	} {
		if !strings.Contains(x.raw, want) {
			t.Errorf("initialize = %s, without %s", x.raw, want)
		}
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if x := a.ask("tools/list", map[string]any{}); len(x.Result.Tools) != 0 || x.Error != nil {
		t.Errorf("the list before the server is up: %s", x.raw)
	}
	p.letThrough("start")
	a.awaitMethod("notifications/tools/list_changed")
	if x := a.ask("tools/list", map[string]any{}); !strings.Contains(x.raw, `"name":"say"`) {
		t.Errorf("the list afterwards: %s", x.raw)
	}
	a.rest()
}

// TestHandshakeWithBrokenServer checks that the proxy writes to stderr that a server cannot
// be started, at the latest with the list of its tools.
func TestHandshakeWithBrokenServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"gone": map[string]any{
		"command": filepath.Join(p.dir, "nowhere"), "holdline": hosting{"scope": "shared"},
	}}).daemon()
	a := p.agent("--server", "gone").shake()
	if x := a.ask("tools/list", map[string]any{}); len(x.Result.Tools) != 0 || x.Error != nil {
		t.Errorf("the list: %s", x.raw)
	}
	a.leave()
	if !strings.Contains(a.errs.String(), "The MCP server gone cannot be used now") ||
		!strings.Contains(a.errs.String(), "was not found") {
		t.Errorf("the proxy wrote %q", a.errs)
	}
}

// awaitMethod reads until a notification with this method arrives.
func (a *agent) awaitMethod(method string) {
	a.t.Helper()
	for {
		if line := a.read(); strings.Contains(line, `"method":"`+method+`"`) {
			return
		}
	}
}
