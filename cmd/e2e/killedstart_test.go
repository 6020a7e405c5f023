package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// told returns the processes of odd servers that got a method, in order.
func (p *place) told(method string) []int {
	p.t.Helper()
	b, err := os.ReadFile(p.effects())
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	var pids []int
	for line := range strings.Lines(string(b)) {
		var what string
		var pid int
		if _, err := fmt.Sscanf(line, "%s %d\n", &what, &pid); err == nil && what == method &&
			!slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// untilTold waits until n processes got a method, and returns the last.
func (p *place) untilTold(method string, n int) int {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(2 * time.Millisecond) {
		if pids := p.told(method); len(pids) >= n {
			return pids[n-1]
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("only the processes %v were told %s", p.told(method), method)
		}
	}
}

// workerOf returns the pid of the worker of a child.
func (p *place) workerOf(child int) int {
	p.t.Helper()
	s := p.until("the worker is there", func(s control.StatusAnswer) bool {
		return len(s.Workers) == 1 && s.Workers[0].ChildPID == child
	})
	return s.Workers[0].PID
}

// TestServerKilledInStart kills a server, or its worker, before it serves. That does not
// count against the server: it is started once more at once, and asked again for its era.
func TestServerKilledInStart(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"server/discover", "initialize", "tools/list"} {
		for _, victim := range []string{"server", "worker"} {
			t.Run(filepath.Base(method)+" "+victim, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				args := []string{"-mute", method, "-once", filepath.Join(p.dir, "once")}
				if method == "server/discover" { // this server has no initialize
					modern := filepath.Join(p.dir, "modern")
					if err := os.WriteFile(modern, nil, 0o600); err != nil {
						t.Fatal(err)
					}
					args = append(args, "-modern", modern)
				}
				p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, args...)}).daemon()
				a := p.agent().shake()
				id := a.call("odd__say", map[string]any{"text": `{"content":[{"type":"text","text":"here"}]}`})
				pid := p.untilTold(method, 1)
				if victim == "worker" {
					kill9(t, p.workerOf(pid))
				} else {
					kill9(t, pid)
				}
				if x := a.wait(id); x.text() != "here" {
					t.Errorf("the call: %s", x.raw)
				}
				if s := p.server("odd"); s.Restarts != 0 || s.Failures != 0 || s.LastFault != nil ||
					s.State != "ready" {
					t.Errorf("the server: %+v, fault %+v", s, s.LastFault)
				}
				if n := len(p.told("server/discover")); method == "server/discover" && n != 2 {
					t.Errorf("%d processes were asked for their era", n)
				}
				a.rest()
			})
		}
	}
	for _, point := range []string{"worker.begun", "worker.listening", "worker.forked", "exec.begun"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).faults()
			p.dieAs(point, death{})
			p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"})}).daemon()
			a := p.agent().shake()
			if x := a.wait(a.call("odd__say",
				map[string]any{"text": `{"content":[{"type":"text","text":"here"}]}`})); x.text() != "here" {
				t.Errorf("the call: %s", x.raw)
			}
			if s := p.server("odd"); s.Restarts != 0 || s.LastFault != nil {
				t.Errorf("the server: %+v, fault %+v", s, s.LastFault)
			}
			a.rest()
		})
	}
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared", "lazy": true}, "-mute", "tools/list")}).
			daemon()
		a := p.agent().shake()
		id := a.call("odd__say", map[string]any{})
		kill9(t, p.untilTold("tools/list", 1))
		kill9(t, p.untilTold("tools/list", 2))
		if x := a.wait(id); x.code() != "spawn_failure" {
			t.Errorf("the call: %s", x.raw)
		}
		if s := p.server("odd"); s.Restarts != 1 {
			t.Errorf("the server: %+v", s)
		}
		a.rest()
	})
}

// TestServerDiesAtHandshake checks that a server of known era that exits at its handshake
// counts as failed, and is not started again and again.
func TestServerDiesAtHandshake(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared", "lazy": true}, "-dies", "initialize")}).
		daemon()
	a := p.agent().shake()
	if x := a.wait(a.call("odd__say", map[string]any{})); x.code() != "spawn_failure" {
		t.Errorf("the call: %s", x.raw)
	}
	if n := len(p.told("initialize")); n != 1 {
		t.Errorf("%d processes were introduced", n)
	}
	a.rest()
}
