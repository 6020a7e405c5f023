package e2e

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestResumeAtConnectionLimit checks that sessions that use up the daemon's limit survive a
// kill of the daemon, while commands run and new agents try to connect.
func TestResumeAtConnectionLimit(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{}, "limits", map[string]any{"connections": 2})
	agents := []*agent{p.agent().shake(), p.agent().shake()}
	var over atomic.Bool
	var others sync.WaitGroup
	for _, cmd := range []string{"status", "mcp-stdio"} {
		others.Go(func() {
			for !over.Load() {
				c := p.command(cmd)
				c.Stdin = strings.NewReader(piped)
				_ = c.Run() // refused, or between two daemons
			}
		})
	}
	defer func() {
		over.Store(true)
		others.Wait()
	}()
	pid := p.pid(0)
	for range 5 {
		kill9(t, pid)
		for i, a := range agents {
			if x := a.ask("tools/call", map[string]any{"name": "health_snapshot"}); x.Error != nil || x.Result.IsError {
				t.Errorf("agent %d: %s", i, x.raw)
			}
		}
		pid = p.pid(pid)
	}
	for _, a := range agents {
		a.rest()
	}
}
