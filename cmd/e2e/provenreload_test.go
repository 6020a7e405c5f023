package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestReloadProvesServer edits the entry of a running server so that it cannot start. The
// reload says so, and the server continues with the same process, without a failing call.
// Once the entry is fixed the server is replaced, and a call in the old process is answered
// by that process.
func TestReloadProvesServer(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"shared", "project", "session"} {
		t.Run(scope, func(t *testing.T) {
			p := newPlace(t).serve(scope)
			p.daemon()
			a := p.agent("--no-autostart").shake()
			a.wait(a.effect("warm", 0))
			before := p.untilReady("tools")
			for _, entry := range []map[string]any{
				{"command": filepath.Join(p.dir, "absent"), "holdline": hosting{"scope": scope}},
				p.toolsEntry(hosting{"scope": scope}, "-sick", p.effects()), // the file exists
				{
					"command": "/bin/sh", "args": []string{"-c", "sleep 600"},
					"holdline": hosting{"scope": scope, "start_timeout": "1s"},
				},
			} {
				p.configure(map[string]any{"tools": entry})
				out, errs, code := p.run("", "reload")
				if code == 0 || !strings.Contains(errs, "tools") || !strings.Contains(errs, "goes on as it was") {
					t.Errorf("reload: exit %d, %s%s", code, out, errs)
				}
				if x := a.wait(a.effect("kept", 0)); x.Error != nil || x.Result.IsError {
					t.Errorf("a call after it: %s", x.raw)
				}
				s := p.status()
				if pid := child(s, "tools"); pid != before {
					t.Errorf("process %d serves, want %d", pid, before)
				}
				if f := find(t, s, "tools").LastFault; f == nil ||
					!strings.Contains(f.Fault.Detail, "goes on as it was") ||
					strings.Contains(f.Fault.Detail, "started again") {
					t.Errorf("status says %+v", f)
				}
			}
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": scope})})
			p.must("reload")
			if f := find(t, p.status(), "tools").LastFault; f != nil {
				t.Errorf("once the entry is again what it was status says %s", f.Fault.Detail)
			}
			id := a.effect("long", 1500)
			p.untilEffect("begin long")
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": scope}, "-logs")})
			p.must("reload")
			for i, x := range a.waitAll(a.effect("new", 0), id) {
				if x.Error != nil || x.Result.IsError {
					t.Errorf("call %d, that of the old one is %d: %s", i, id, x.raw)
				}
			}
			p.until("the old process to end", func(s control.StatusAnswer) bool {
				pid := child(s, "tools")
				return len(s.Workers) == 1 && pid != 0 && pid != before
			})
			a.rest(id)
		})
	}
}
