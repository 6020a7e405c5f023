package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigurationGone checks that a named configuration file that does not exist, or no
// longer does, counts as empty once the user has confirmed that, with a note.
func TestConfigurationGone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{}, "limits", map[string]any{"in_flight": 2}).daemon()
	file := filepath.Join(p.dir, "home/.config/holdline/config.json")
	if got := p.must("reload"); got != file+": no change\n" {
		t.Errorf("reload: %q", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := p.must("reload", "--yes"); got != file+": reloaded: it is not there, all defaults\n" {
		t.Errorf("reload without a file: %q", got)
	}
	p.must("stop")
	_, errs, code := p.run("", "daemon", "--idle-exit", "100ms", "--config", file)
	if code != 0 || !strings.Contains(errs, "WRN the configuration that was named is not there") {
		t.Errorf("exit %d, %s", code, errs)
	}
	_, errs, code = p.run("", "daemon", "--idle-exit", "100ms")
	if code != 0 || strings.Contains(errs, "WRN") {
		t.Errorf("without a name: exit %d, %s", code, errs)
	}
}

// TestReloadLimits checks that a reload puts new limits into force for later requests.
func TestReloadLimits(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	servers := map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})}
	p.configure(servers).daemon()
	a := p.agent().shake()
	p.untilReady("tools")
	running := []int{
		a.call("tools__effect", map[string]any{"token": "a", "until": p.latch("both")}),
		a.call("tools__effect", map[string]any{"token": "b", "until": p.latch("both")}),
	}
	p.untilEffect("begin a")
	p.untilEffect("begin b")
	p.configure(servers, "limits", map[string]any{"in_flight": 2, "connections": 2})
	p.must("reload")
	if x := a.wait(a.call("tools__look", map[string]any{
		"token": "l",
	})); !strings.Contains(x.raw, `"limit":{"name":"calls in flight","value":2,"spent":2}`) {
		t.Errorf("a third call: %s", x.raw)
	}
	p.letThrough("both")
	for _, x := range a.waitAll(running...) {
		if x.Result.IsError {
			t.Errorf("a call that was in flight: %s", x.raw)
		}
	}
	b := p.agent().shake()
	if _, errs, code := p.run(piped, "mcp-stdio"); code != 1 ||
		!strings.Contains(errs, "already serves 2 connections") {
		t.Errorf("a third session: exit %d, %s", code, errs)
	}
	p.must("status") // commands have a limit of their own
	b.rest()
	a.rest(running...)
}
