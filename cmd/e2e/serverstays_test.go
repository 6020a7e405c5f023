package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/protocol/control"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// serverPIDs returns the processes that have notes with that verb in the ledger, each once,
// in the order of their first note.
func (p *place) serverPIDs(verb string) []string {
	b, err := os.ReadFile(p.effects())
	if err != nil {
		p.t.Fatal(err)
	}
	var pids []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == verb && !slices.Contains(pids, f[2]) {
			pids = append(pids, f[2])
		}
	}
	return pids
}

// TestServerStays kills the daemon several times under a server that sessions share, while
// calls of dead processes are still on record. The process stays the same until it dies
// itself.
func TestServerStays(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().serve("shared")
	a := p.agent("--identity", "a").shake()
	for round := range 3 {
		// A process dies with a call on record that is never confirmed: its client is gone,
		// and so is the daemon that could have noticed.
		b := p.agent("--identity", "b").shake()
		b.effect(fmt.Sprintf("lost%d", round), 60_000)
		p.untilEffect(fmt.Sprintf("begin lost%d", round))
		s := p.until("the server", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 })
		if err := b.cmd.Process.Signal(os.Kill); err != nil {
			t.Fatal(err)
		}
		kill9(t, s.Daemon.PID)
		kill9(t, s.Workers[0].PID)
		if x := a.wait(a.call("tools__look", map[string]any{"token": fmt.Sprintf("new%d", round)})); x.Result.IsError {
			t.Fatalf("after the server's death: %s", x.raw)
		}
	}
	pid, was := p.pid(0), len(p.serverPIDs("look"))
	for round := range 6 {
		kill9(t, pid)
		var ids []int
		for i := range 5 {
			ids = append(ids, a.call("tools__look", map[string]any{"token": fmt.Sprintf("again%d.%d", round, i)}))
		}
		for _, x := range a.waitAll(ids...) {
			if x.Result.IsError || x.Error != nil {
				t.Errorf("after the daemon's death: %s", x.raw)
			}
		}
		pid = p.pid(pid)
	}
	if now := p.serverPIDs("look"); was != 3 || len(now) != was {
		t.Errorf("the server was %d processes before the daemons died, and %d behind that", was, len(now))
	}
	a.rest()
}

// TestServerAsksAndDaemonDies kills the daemon after it has read a server's request that it
// answers itself, and before it has answered. The next daemon answers.
func TestServerAsksAndDaemonDies(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().faults().serve("shared")
	a := p.agent().shake()
	if x := a.wait(a.call("tools__ask", map[string]any{"token": "first"})); x.Result.IsError {
		t.Fatal(x.raw)
	}
	s := p.until("the server", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 })
	stray := filepath.Join(p.dir, "run/holdline/w", s.Workers[0].ID, "a", fmt.Sprintf(".7.%d.1-1", s.Daemon.PID))
	if err := os.WriteFile(stray, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all that was said to be acked",
		func() bool { said, acked := p.said(t, s.Workers[0].ID); return acked == said })
	// For this call the daemon reaches the point twice: with the call, and with the answer
	// to the server. It is held the second time, long enough for it to acknowledge the
	// server's output.
	p.dieAs("write.recorded", death{times: 2, held: true})
	id := a.call("tools__ask", map[string]any{"token": "second", "method": "roots/list"})
	p.untilEffect("asked second")
	waitFor(t, "the daemon to be held", func() bool { return p.died("write.recorded") })
	for range 50 {
		a.ask("tools/call", map[string]any{"name": "health_snapshot"})
	}
	kill9(t, s.Daemon.PID)
	if x := a.wait(id); x.Result.IsError || !strings.Contains(x.text(), "second") {
		t.Errorf("ask = %s", x.raw)
	}
	if n := p.effectsOf("told second"); n != 1 {
		t.Errorf("the server was told %d times", n)
	}
	waitFor(t, "the end of what was half written",
		func() bool { _, err := os.Stat(stray); return errors.Is(err, os.ErrNotExist) })
	a.rest(id)
}

// said asks the worker of a server how much output its child has written, and how much of
// it is acknowledged, as numbers of events.
func (p *place) said(t *testing.T, id string) (said, acked int64) {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(p.dir, "run/holdline/w", id, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := workerwire.Frame{
		Kind: workerwire.Initialize, ID: 1,
		Body: jsonrpc.Encode(workerwire.InitializeParams{Version: process.Newest()}),
	}
	if err := workerwire.WriteFrames(conn, ask); err != nil {
		t.Fatal(err)
	}
	f, err := workerwire.ReadFrame(conn)
	var r workerwire.InitializeResult
	if err == nil {
		err = f.Decode(&r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.NextSeq - 1, r.Acked
}

// TestServerEndedUnwanted has a server end while no daemon runs, with a call that it had
// answered and that its client no longer waits for at the resume. The next process is
// started all the same.
func TestServerEndedUnwanted(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared").faults()
	p.daemon()
	a := p.agent("--no-autostart").shake()
	pid := p.untilReady("tools")
	// The answer is confirmed and acknowledged, but not yet recorded as done.
	const forgot, closed, dead = "hosted.forgot", "worker.closed", "hosted.dead"
	p.dieAs(forgot, death{})
	p.dieAs(closed, death{held: true})
	a.wait(a.effect("before", 0))
	waitFor(t, "the daemon's end", func() bool { return p.died(forgot) })
	kill9(t, pid)
	waitFor(t, "all that the worker has to say", func() bool { return p.died(closed) })
	p.letGo(closed)
	p.dieAs(dead, death{held: true})
	p.daemon()
	p.until("the client to be back",
		func(s control.StatusAnswer) bool { return len(s.Sessions) == 1 && s.Sessions[0].State == "attached" })
	waitFor(t, "the daemon to see the server's end", func() bool { return p.died(dead) })
	p.letGo(dead)
	if x := a.wait(a.effect("after", 0)); x.Error != nil || x.Result.IsError {
		t.Errorf("a call after the server's end: %s", x.raw)
	}
	a.rest()
}

// TestServerEndedInAbsence checks that a server that ended while no daemon ran gets no
// write from the next daemon, which starts another process.
func TestServerEndedInAbsence(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared")
	d := p.daemon()
	a := p.agent("--no-autostart").shake()
	if x := a.wait(a.effect("before", 0)); x.Error != nil || x.Result.IsError {
		t.Fatal(x.raw)
	}
	w := p.status().Workers[0]
	kill9(t, d.Process.Pid)
	kill9(t, w.ChildPID)
	waitFor(t, "the server's end", func() bool { return !alive(w.ChildPID) })
	var ids []int
	for i := range 20 {
		ids = append(ids, a.effect(fmt.Sprint("after ", i), 0))
	}
	p.daemon()
	for _, x := range a.waitAll(ids...) {
		if x.Error != nil || x.Result.IsError {
			t.Errorf("a call after the server's end: %s", x.raw)
		}
	}
	a.rest()
}
