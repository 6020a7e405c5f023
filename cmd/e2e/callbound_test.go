package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// deadly kills one daemon of the place after another, each this long after its start and at
// most most of them, until stop is called. stop returns how many it has killed.
func (p *place) deadly(each time.Duration, most int) (stop func() int) {
	stopped, n := make(chan struct{}), 0
	var killing sync.WaitGroup
	killing.Go(func() {
		before := 0
		for n < most {
			pid, _, err := statedir.Holder(filepath.Join(p.dir, "run/holdline/daemon.lock"))
			wait := 20 * time.Millisecond
			if another := err == nil && pid > 0 && pid != os.Getpid() && pid != before; another {
				wait = each
			} else {
				pid = 0
			}
			select {
			case <-time.After(wait):
			case <-stopped:
				return
			}
			if pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
				before, n = pid, n+1
			}
		}
	})
	return func() int {
		close(stopped)
		killing.Wait()
		return n
	}
}

// Each daemon of these tests lives for less time than a call may take, and for longer than
// it needs to notice that the time is over.
const (
	shortLife = 6 * time.Second
	callTime  = 10 * time.Second
	mostLives = 20
)

// TestHangingCallEndsOverDaemons checks that the time of a call that hangs is counted over
// all daemons that die meanwhile, with and without progress.
func TestHangingCallEndsOverDaemons(t *testing.T) {
	t.Parallel()
	for _, progress := range []bool{false, true} {
		t.Run(fmt.Sprintf("progress wanted %v", progress), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared", "timeout": callTime.String()})})
			a := p.agent().shake()
			p.untilReady("tools")
			params := map[string]any{"name": "tools__hang", "arguments": map[string]any{"token": "a"}}
			if progress {
				params["_meta"] = map[string]any{"progressToken": 1}
			}
			id := a.begin("tools/call", params)
			p.untilEffect("begin a")
			stop := p.deadly(shortLife, mostLives)
			x := a.wait(id)
			if n := stop(); n == mostLives || x.code() != "timeout" || p.effectsOf("begin a") != 1 {
				t.Errorf("after %d daemons the call got %s", n, x.raw)
			}
			a.rest(id)
		})
	}
}

// TestWaitingCallEndsOverDaemons checks the same for a call that waits for a server that
// does not start: it ends after the time for a start or the time for a call, whichever is
// shorter.
func TestWaitingCallEndsOverDaemons(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]hosting{
		"for a start":        {"timeout": "1s", "start_timeout": callTime.String()},
		"for all its time":   {"timeout": "1s", "start_timeout": "10m", "max_timeout": callTime.String()},
		"for its first list": {"timeout": "1s", "start_timeout": "10m"},
		"for another's end": {
			"timeout": "1s", "start_timeout": "10m", "max_timeout": callTime.String(), "max_concurrent": 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			silent := filepath.Join(p.dir, "silent")
			program := p.script("stray",
				fmt.Sprintf("#!/bin/sh\ntest -e %s && exec sleep 600\nexec %s \"$@\"\n", silent,
					filepath.Join(programs, "oddserver")))
			entry := p.strayEntry(h)
			entry["command"] = program
			h["scope"], h["max_restarts"], h["circuit_threshold"] = "shared", 100, 100
			p.configure(map[string]any{"stray": entry})
			fall := func() {
				if err := os.WriteFile(silent, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if name == "for its first list" {
				p.firstList("8s")
				fall()
			}
			a := p.agent().shake()
			if name != "for its first list" {
				pid := p.untilReady("stray")
				fall()
				kill9(t, pid)
				p.until("the server is gone",
					func(s control.StatusAnswer) bool { return find(t, s, "stray").State != "ready" })
			}
			ids := []int{
				a.call("stray__say", map[string]any{"token": "a"}), a.call("stray__say", map[string]any{"token": "b"}),
			}
			stop := p.deadly(shortLife, mostLives)
			answers := a.waitAll(ids...)
			n := stop()
			for _, x := range answers {
				if n == mostLives || x.code() != "timeout" {
					t.Errorf("after %d daemons a call got %s", n, x.raw)
				}
			}
			if p.effectsOf("say a")+p.effectsOf("say b") != 0 {
				t.Error("a call was made")
			}
			a.rest(ids...)
		})
	}
}

// TestProgressCountsOverDaemons checks that a call that makes progress may take longer than
// one without, also if its daemon dies meanwhile.
func TestProgressCountsOverDaemons(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared", "timeout": "10s"})})
	a := p.agent().shake()
	p.untilReady("stray")
	id := a.begin("tools/call", map[string]any{
		"name": "stray__walk", "arguments": map[string]any{"token": "far", "ms": 4000},
		"_meta": map[string]any{"progressToken": 1},
	})
	waitFor(t, "more progress than fits into the call's time", func() bool { return p.effectsOf("step far") == 3 })
	kill9(t, p.pid(0))
	if x := a.wait(id); x.text() != "far" || p.effectsOf("walk far") != 1 {
		t.Errorf("the call got %s", x.raw)
	}
	a.rest(id)
}

// TestCallWaitsForOldOutput checks that a call to an adopted server waits until the
// server's earlier output is read, because the server may have ended meanwhile. It waits no
// longer than for a start, and is not made if that takes longer.
func TestCallWaitsForOldOutput(t *testing.T) {
	t.Parallel()
	const adopted = "hosted.adopted"
	p := newPlace(t).login().faults()
	a, b := p.wild(hosting{"timeout": "2s", "start_timeout": "3s"})
	p.untilReady("wild")
	s := p.until("the worker", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 })
	// The line cannot go into the worker's first file: it has more than fits between worker and daemon.
	file := filepath.Join(p.dir, "run/holdline/w", s.Workers[0].ID, process.FileLong+"1")
	if err := os.MkdirAll(filepath.Join(file, "in its place"), 0o700); err != nil {
		t.Fatal(err)
	}
	half := a.call("wild__half", map[string]any{"bytes": 16 << 20})
	waitFor(t, "half of the answer", func() bool { return p.effectsOf("half") == 1 })
	p.dieAs(adopted, death{who: "daemon", held: true})
	kill9(t, s.Daemon.PID)
	waitFor(t, "a daemon that has taken up the worker", func() bool { return p.died(adopted) })
	worker := s.Workers[0].PID
	if err := syscall.Kill(worker, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.letGo(adopted)
	id := b.call("wild__echo", map[string]any{"text": "x"})
	if x := b.wait(id); x.code() != "timeout" || !strings.Contains(x.text(), "the call was not made") {
		t.Errorf("a call meanwhile got %s", x.raw)
	}
	if x := a.wait(half); x.code() != "timeout" {
		t.Errorf("the call before got %s", x.raw)
	}
	if err := syscall.Kill(worker, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.rest(half)
	b.rest(id)
}
