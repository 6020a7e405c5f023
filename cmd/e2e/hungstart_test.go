package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDaemonProgramHangs_ProxyStartsTheRepairedOne replaces the program by one that hangs at its start, and kills the
// daemon while a call is in flight: the proxy's start hangs. Then the program is repaired. The proxy ends the start that
// hangs, and starts the program that is there now; the call is answered once, and nothing of the hung start is left.
func TestDaemonProgramHangs_ProxyStartsTheRepairedOne(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join(programs, "holdline"))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	p.install(program, 0o700)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	proxy := exec.CommandContext(context.WithoutCancel(t.Context()), p.bin(), "mcp-stdio")
	proxy.Env, proxy.Dir, proxy.WaitDelay = p.env, p.project, 5*time.Second
	a := p.agentOf(proxy).shake()
	id := a.call("tools__effect", map[string]any{"token": "flight", "until": p.latch("flight")})
	p.untilEffect("begin flight")
	daemon := p.pid(0)
	hung := filepath.Join(p.dir, "hung")
	halt(t, daemon) // else it looks at the new program itself
	p.install(fmt.Appendf(nil, "#!/bin/sh\necho $$ >> %s\nexec sleep 600\n", hung), 0o700)
	kill9(t, daemon)
	waitFor(t, "a start that hangs", func() bool {
		b, _ := os.ReadFile(hung)
		return strings.HasSuffix(string(b), "\n")
	})
	p.install(program, 0o700)
	begun := time.Now()
	p.letThrough("flight")
	if x := a.wait(id); x.text() != "flight" || p.effectsOf("begin flight") != 1 {
		t.Errorf("the call in flight, made %d times: %s", p.effectsOf("begin flight"), x.raw)
	}
	if took := time.Since(begun); took > endBound {
		t.Errorf("it took %v", took)
	}
	b, err := os.ReadFile(hung)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err != nil || alive(pid) {
			t.Errorf("the start that hung still runs: %q, %v", line, err)
		}
	}
	a.leave()
}
