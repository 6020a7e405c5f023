package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/fault"
)

// stalled is a crash while the client reads nothing.
const stalled = "the client is stalled"

// serverCrashes are the deaths that concern a hosted server and calls of its tools.
var serverCrashes = []crash{
	{point: "hosted.spawned"},
	{point: "hosted.introduced"},
	{point: "hosted.listed"},
	{point: "hosted.dispatched"},
	{point: "hosted.dispatched", times: 2},
	{point: "hosted.dispatched", times: 4},
	{point: "hosted.answered"},
	{point: "hosted.answered", times: 3},
	{point: "hosted.answered", times: 4},
	{point: "hosted.answered", times: 5},
	{point: "hosted.answered", times: 6},
	{point: "hosted.spooled", how: stalled},
	{point: "hosted.forgot"},
	{point: "hosted.forgot", times: 2},
	{point: "hosted.forgot", times: 3},
	{point: "hosted.errand"},
	{point: "hosted.errand", times: 2},
	{point: "hosted.asked"},
	{point: "hosted.asked", after: "hosted.dispatched"},
	{point: "hosted.dead", after: "worker.written"},
	{point: "hosted.reaping"},
	{point: "hosted.adopted", after: "hosted.dispatched"},
	{point: "hosted.adopted", after: "hosted.asked"},
	{point: "hosted.adopted", after: "hosted.introduced"},
	{point: "hosted.adopted", after: "hosted.errand"},
	{point: "launch.started"},
	{point: "launch.listening"},
	{point: "launch.attached"},
	{point: "write.recorded"},
	{point: "write.recorded", times: 2},
	{point: "write.recorded", times: 5},
	{point: "write.recorded", times: 7},
	{point: "write.sent"},
	{point: "write.sent", times: 2},
	{point: "write.sent", times: 5},
	{point: "write.sent", times: 7},
	{point: "write.made", times: 2},
	{point: "write.made", times: 5},
	{point: "write.made", times: 7},
	{point: "attach.fenced", after: "hosted.dispatched"},
	{point: "attach.voided", after: "write.recorded"},
	{point: "attach.lost", after: "worker.written"},
	{point: "session.pursued"},
	{point: "session.pursued", times: 2},
	{point: "session.queued", times: 3},
	{point: "session.queued", times: 4},
	{point: "session.written", times: 4},
	{point: "session.acked", after: "hosted.dispatched"},
	{point: "session.replayed", after: "hosted.dispatched"},
	{point: "session.cancelled"},
	{point: "session.ended"},
	{point: "worker.locked"},
	{point: "worker.forked"},
	{point: "worker.attached"},
	{point: "worker.attached", after: "hosted.dispatched"},
	{point: "worker.taken", times: 5},
	{point: "worker.taken", times: 7},
	{point: "worker.written", times: 5},
	{point: "worker.written", times: 7},
	{point: "worker.output", times: 4},
	{point: "worker.acked"},
	{point: "worker.exited"},
	{point: "worker.closed"},
	{point: "proxy.answered", times: 3},
	{point: "proxy.replayed", after: "hosted.dispatched"},
	{point: "proxy.forwarded", times: 5},
}

// TestServerCrashes tests them, each in the day of an agent whose session has a server of
// its own. Each request of a proxy that lives is answered once, nothing that may not be
// done twice is done twice, only a dead worker makes an outcome unknown, the client is
// asked once, and nothing is left.
func TestServerCrashes(t *testing.T) {
	inTurn(t, serverCrashes, func(t *testing.T, c crash, i int) {
		t.Helper()
		c.serve(t, i%2 == 1)
	})
}

// Requests of a serverDay, by id.
const (
	sdHello = iota + 1
	sdList
	sdFirst
	sdEffect
	sdLook
	sdAsk
	sdBig
	sdHang
	sdHealth
	sdFind
)

// serve brings about one death during the day of an agent that calls tools.
func (c crash) serve(t *testing.T, slow bool) {
	t.Helper()
	p := newPlace(t).windows(3).serve("session").login().faults()
	if slow { // and through call_tool
		p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "session"})}, "identities",
			map[string]any{"test": map[string]any{"expose": "search"}})
	}
	if c.after != "" {
		p.dieAs(c.after, death{})
	}
	p.dieAs(c.point, death{times: c.times, after: c.after, who: c.who, deaths: c.deaths()})
	d := &day{t: t, p: p, c: c, answers: map[int][]answer{}, indirect: slow}
	asked := d.serveLive(slow)
	d.serveCheck(asked)
	if c.maybe {
		_ = os.Remove(filepath.Join(p.dir, faultDir, c.point))
	}
	b := p.agent().shake()
	if x := b.wait(b.effect("next", 0)); x.Error != nil || x.Result.IsError {
		t.Errorf("the next agent's call: %s", x.raw)
	}
	b.rest()
	if !c.maybe {
		waitFor(t, "the death at "+c.point, func() bool { return p.died(c.point) })
	}
	if c.twice { // the second daemon may have died when no client was left to start the next
		p.agent().shake().rest()
	}
	p.settled(t)
	if out, errs, code := p.run("", "stop"); code != 0 {
		t.Errorf("stop: exit %d\n%s%s", code, out, errs)
	}
	p.tidy(t)
}

// serveLive makes the requests of the day. It returns how often the client was asked.
func (d *day) serveLive(slow bool) (asked int) {
	d.a = d.p.agentOf(d.p.command("mcp-stdio"))
	defer func() {
		_ = d.a.stdin.Close()
		for d.read() {
		}
		d.exit = d.a.cmd.Wait()
	}()
	d.on = func(x *answer) {
		if x.Method == "elicitation/create" {
			asked++
			d.send(map[string]any{
				"jsonrpc": "2.0", "id": x.ID,
				"result": map[string]any{"action": "accept", "content": map[string]any{"said": "yes"}},
			})
		}
	}
	d.ask(sdHello, "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	})
	d.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	d.ask(sdList, "tools/list", map[string]any{})
	if d.indirect {
		d.ask(sdFind, "tools/call",
			map[string]any{"name": "find_tools", "arguments": map[string]any{"query": "effect"}})
	}
	ms := 40
	if slow {
		ms = 150
	}
	d.tool(sdFirst, "effect", map[string]any{"token": "first", "ms": 0})
	d.wait(sdFirst)
	d.tool(sdEffect, "effect", map[string]any{"token": "effect", "ms": ms})
	d.tool(sdLook, "look", map[string]any{"token": "look", "ms": ms})
	d.tool(sdAsk, "ask", map[string]any{"token": "ask", "method": "elicitation/create"})
	d.tool(sdBig, "big", map[string]any{"token": "big", "bytes": 300_000})
	if d.c.how == stalled {
		d.until(func() bool { return d.p.effectsOf("begin effect") > 0 })
		_ = syscall.Kill(d.a.cmd.Process.Pid, syscall.SIGSTOP)
		waitFor(d.t, "the death while the client is stalled", func() bool { return d.p.died(d.c.point) })
		_ = syscall.Kill(d.a.cmd.Process.Pid, syscall.SIGCONT)
	}
	for id := sdEffect; id <= sdBig; id++ {
		d.wait(id)
	}
	d.tool(sdHang, "hang", map[string]any{"token": "hang"})
	d.until(func() bool { return d.p.effectsOf("begin hang") > 0 || len(d.answers[sdHang]) > 0 })
	d.send(map[string]any{
		"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": sdHang},
	})
	d.until(func() bool { return d.p.effectsOf("cancelled hang") > 0 || d.c.kills() })
	d.ask(sdHealth, "tools/call", map[string]any{"name": "health_snapshot", "arguments": map[string]any{}})
	return asked
}

func (d *day) tool(id int, name string, args map[string]any) {
	if name = "tools__" + name; d.indirect {
		name, args = "call_tool", map[string]any{"server": "tools", "tool": name, "arguments": args}
	}
	d.begin(id, "tools/call",
		map[string]any{"name": name, "arguments": args, "_meta": map[string]any{"progressToken": id}})
}

func (d *day) serveCheck(asked int) {
	d.t.Helper()
	for id, all := range d.answers {
		if len(all) > 1 {
			d.t.Errorf("request %d has %d answers: %v", id, len(all), all)
		}
	}
	for _, token := range []string{"first", "effect"} {
		if n := d.p.effectsOf("begin " + token); n > 1 {
			d.t.Errorf("%s was begun %d times", token, n)
		}
	}
	if d.c.victim() == "proxy" {
		if d.exit == nil {
			d.t.Error("the proxy lived on")
		}
		return
	}
	if d.exit != nil {
		d.t.Errorf("the proxy ended with %v: %s", d.exit, d.a.errs)
	}
	for _, id := range []int{sdHello, sdList, sdLook, sdHealth} {
		d.good(id)
	}
	if d.indirect {
		d.good(sdFind)
	}
	for id, token := range map[int]string{sdFirst: "first", sdEffect: "effect", sdAsk: "ask", sdBig: "big"} {
		all := d.answers[id]
		if len(all) != 1 {
			d.t.Errorf("%s has %d answers: %v", token, len(all), all)
			continue
		}
		x := all[0]
		switch {
		case x.Error == nil && !x.Result.IsError:
			if !strings.Contains(x.raw, token) || id <= sdEffect && d.p.effectsOf("end "+token) != 1 {
				d.t.Errorf("%s ended %d times: %.300s", token, d.p.effectsOf("end "+token), x.raw)
			}
		case !d.c.kills() || !strings.Contains(x.raw, string(fault.OutcomeUnknown)):
			d.t.Errorf("%s: %.1000s", token, x.raw)
		}
	}
	if n := len(d.answers[sdHang]); n > 0 && !d.c.kills() {
		d.t.Errorf("the cancelled request was answered: %s", d.answers[sdHang][0].raw)
	}
	if asked > 1 {
		d.t.Errorf("the client was asked %d times", asked)
	}
	if dirs, _ := filepath.Glob(filepath.Join(d.p.dir, "run/holdline/w/*/a/*")); len(dirs) > 0 {
		if _, err := os.Stat(dirs[0]); err == nil {
			d.t.Logf("spooled answers: %v", dirs)
		}
	}
}
