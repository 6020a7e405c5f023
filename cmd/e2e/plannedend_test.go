package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestPlannedEndOfServer_NoFaultAnywhere checks that status, servers, doctor, statusline and top call nothing a fault that
// was meant: the end of a server that nobody uses any more, a restart, a stop, a changed entry, the end of the daemon and an
// upgrade. The server ends with exit code 7 each time, as many do that are told to end.
func TestPlannedEndOfServer_NoFaultAnywhere(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	entry := p.toolsEntry(hosting{"scope": "shared", "keep_alive": "10ms"})
	entry["args"] = append([]string{"-c", `"$0" "$@"; exit 7`, entry["command"].(string)}, entry["args"].([]string)...)
	entry["command"] = "sh"
	p.configure(map[string]any{"tools": entry})
	p.installVersion(t, older)
	p.daemonAt(p.bin())
	var top *pane
	if _, err := exec.LookPath("tmux"); err == nil {
		top = p.open(t, nil, "top")
		top.until("1/1 servers ok")
	}
	quiet := func(when string) {
		t.Helper()
		if s := p.server("tools"); s.LastFault != nil || s.Failures != 0 || s.Ejected || s.Suspect || s.Restarts != 0 {
			t.Errorf("%s: status --json: %+v", when, s)
		}
		if out := p.must("status"); !strings.HasPrefix(out, "Ready. ") || !strings.Contains(out, ", no recent faults.") ||
			strings.Contains(out, "why:") {
			t.Errorf("%s: status:\n%s", when, out)
		}
		if out := p.must("servers"); strings.Contains(out, "why:") || strings.Contains(out, "fix:") {
			t.Errorf("%s: servers:\n%s", when, out)
		}
		var line string
		waitFor(t, "a statusline", func() bool { // the daemon may be busy
			line = p.must("statusline")
			return strings.TrimSpace(line) != "holdline busy"
		})
		if !strings.Contains(line, " 1/1 ok") {
			t.Errorf("%s: statusline: %s", when, line)
		}
		out, _, _ := p.run("", "doctor", "--json")
		var found []struct{ Check, State, What string }
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.State != "ok" && (strings.HasPrefix(f.Check, "server") || f.Check == "orphans" || f.Check == "daemon") {
				t.Errorf("%s: doctor: %+v", when, f)
			}
		}
	}
	nobody := func(s control.StatusAnswer) bool {
		return len(s.Workers) == 0 && find(t, s, "tools").State == "idle"
	}
	a := p.agent().shake()
	p.untilReady("tools")
	quiet("it runs")
	a.rest()
	p.until("its end, since nobody uses it", nobody)
	quiet("nobody uses it")

	a = p.agent().shake()
	before := p.untilReady("tools")
	other := func(when string) {
		t.Helper()
		p.until(when, func(s control.StatusAnswer) bool {
			pid := child(s, "tools")
			return pid != 0 && pid != before && find(t, s, "tools").State == "ready"
		})
		before = p.untilReady("tools")
		quiet(when)
	}
	p.must("servers", "restart", "tools")
	other("restarted")
	p.must("servers", "stop", "tools")
	p.must("servers", "start", "tools")
	other("stopped and started")
	p.must("servers", "reload", "tools")
	other("reloaded")
	entry["env"] = map[string]string{"CHANGED": "yes"}
	p.configure(map[string]any{"tools": entry})
	p.must("reload")
	other("its entry has changed")
	p.installVersion(t, newer)
	p.upgrade(newer + " has taken over")
	quiet("the daemon was upgraded")
	a.wait(a.call("tools__effect", map[string]any{"token": "after the upgrade"}))
	a.rest()
	p.must("stop")
	p.daemonAt(p.bin())
	quiet("the daemon was stopped and started")
	if top == nil {
		return
	}
	screen := top.until("1/1 servers ok")
	for _, word := range []string{"✗", "crash", "fault", "failed", "exit code", "ejected"} {
		if strings.Contains(screen, word) {
			t.Errorf("top says %q:\n%s", word, screen)
		}
	}
}
