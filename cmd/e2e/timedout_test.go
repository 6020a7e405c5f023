package e2e

import (
	"strings"
	"syscall"
	"testing"
)

// TestTimedOutCallMayHaveActed checks that a call that has timed out, was dispatched and
// may not run twice is reported as perhaps having had its effect, by whichever daemon
// dispatched it. A call that may run twice is not.
func TestTimedOutCallMayHaveActed(t *testing.T) {
	t.Parallel()
	const check = "check before calling again"
	doubtful := func(t *testing.T, what string, x answer, want bool) {
		t.Helper()
		says := strings.Contains(x.text(), check) &&
			strings.Contains(x.text(), "whether it had its effect is not known")
		if x.code() != "timeout" || says != want || strings.Contains(x.raw, `"may_have_acted":true`) != want {
			t.Errorf("%s: %s", what, x.raw)
		}
	}
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "timeout": "1s"})}).daemon()
		a := p.agent().shake()
		doubtful(t, "a call that may not repeat", a.wait(a.call("tools__hang", map[string]any{"token": "a"})), true)
		doubtful(t, "one that may", a.wait(a.call("tools__look", map[string]any{"token": "b", "ms": 3600_000})), false)
		a.rest()
	})
	t.Run("dispatched by an earlier daemon", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t).windows(3).login()
		p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "timeout": "5s"})})
		a := p.agent().shake()
		pid := p.pid(0)
		id := a.begin("tools/call", map[string]any{"name": "tools__hang", "arguments": map[string]any{"token": "a"}})
		p.untilEffect("begin a")
		kill9(t, pid)
		doubtful(t, "a call of an earlier daemon", a.wait(id), true)
		a.rest()
	})
	t.Run("not read", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "timeout": "1s"})}).daemon()
		a := p.agent().shake()
		pid := p.untilReady("tools")
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// More than a pipe holds, so that the server has part of it.
		doubtful(t, "a call that is not read",
			a.wait(a.call("tools__effect", map[string]any{"token": strings.Repeat("x", 1<<20)})), true)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		a.rest()
	})
}
