package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/protocol/fault"
)

// sharedCrashes are the deaths under two agents, one of each era, that share a server.
var sharedCrashes = []crash{
	{point: "hosted.introduced"},
	{point: "hosted.dispatched"},
	{point: "hosted.dispatched", times: 2},
	{point: "hosted.answered", times: 2},
	{point: "hosted.forgot"},
	{point: "hosted.adopted", after: "hosted.dispatched"},
	{point: "hosted.adopted", after: "hosted.answered"},
	{point: "hosted.adopted", how: upgraded},
	{point: "hosted.adopted", how: terminated},
	{point: "attach.voided", how: upgraded},
	{point: "attach.fenced", how: terminated},
	{point: "rollout.exec", how: upgraded},
	{point: "rollout.taken", how: upgraded},
	{point: "start.hunted", how: upgraded},
	{point: "start.serving", how: terminated},
	{point: "stop.detached", how: terminated},
	{point: "stop.alone", how: terminated},
	{point: "session.taken", how: upgraded},
	{point: "session.replayed", how: terminated},
	{point: "write.recorded", times: 6},
	{point: "write.sent", times: 5},
	{point: "write.made", times: 6},
	{point: "hosted.dead", after: "worker.taken"},
	{point: "worker.taken", times: 6},
	{point: "worker.written", times: 6},
	{point: "worker.output", times: 5},
	{point: "worker.output", times: 3, after: "hosted.dispatched"},
	{point: "worker.acked", times: 3},
}

// TestSharedCrashes tests them, half of them with a server that runs without its launcher. Each call of both agents is
// answered once, and has its effect once while the server lives.
func TestSharedCrashes(t *testing.T) {
	inTurn(t, sharedCrashes, func(t *testing.T, c crash, i int) {
		t.Helper()
		c.share(t, i%2 == 1, i/2%2 == 1)
	})
}

// TestSharedCrashesEverywhere tests what the table leaves out, as [TestCrashesEverywhere]
// does.
func TestSharedCrashesEverywhere(t *testing.T) {
	if os.Getenv("HOLDLINE_LONG") == "" {
		t.Skip("it takes many minutes: HOLDLINE_LONG=1 runs it")
	}
	var all []crash
	for _, point := range slices.Sorted(maps.Keys(faultPoints(t))) {
		part, _, _ := strings.Cut(point, ".")
		if slices.Contains([]string{"proxy", "consult", "private"}, part) {
			continue // they belong to another day
		}
		for times := range 3 {
			for _, after := range []string{"", "hosted.introduced", "hosted.dispatched", "worker.written"} {
				if after != point {
					all = append(all, crash{point: point, times: times + 1, after: after, maybe: true})
				}
			}
			for _, how := range []string{upgraded, terminated} {
				all = append(all, crash{point: point, times: times + 1, how: how, maybe: true})
			}
		}
	}
	inTurn(t, all, func(t *testing.T, c crash, i int) {
		t.Helper()
		c.share(t, i%2 == 1, i/2%2 == 1)
	})
}

// Requests of a shared day, by id.
const (
	sharedHello = iota + 1
	sharedList
	sharedEffect
	sharedLook
	sharedLate
)

// share brings about one death while two agents use a server, which a launcher is to start if it is launched.
func (c crash) share(t *testing.T, modern, launched bool) {
	t.Helper()
	p := newPlace(t).login()
	if launched {
		p.serveDirectly("project")
	} else {
		p.serve("project")
	}
	p.faults()
	p.link("holdline")
	if c.after != "" {
		p.dieAs(c.after, death{})
	}
	if c.how == "" {
		p.dieAs(c.point, death{times: c.times, after: c.after})
	}
	var both []*day
	for i := range 2 {
		d := &day{t: t, p: p, c: c, modern: modern == (i == 0), answers: map[int][]answer{}}
		cmd := p.command("mcp-stdio", "--identity", fmt.Sprintf("agent%d", i))
		cmd.Path, cmd.Args[0] = p.bin(), p.bin()
		d.a = p.agentOf(cmd)
		both = append(both, d)
		d.hello()
		d.ask(sharedList, "tools/list", map[string]any{})
	}
	all := func(do func(d *day, n string)) {
		for i, d := range both {
			do(d, fmt.Sprint(i))
		}
	}
	all(func(d *day, n string) { d.effect(sharedEffect, "first"+n, 40) })
	all(func(d *day, _ string) { d.wait(sharedEffect) })
	all(func(d *day, n string) {
		d.begin(sharedLook, "tools/call",
			map[string]any{"name": "tools__look", "arguments": map[string]any{"token": "look" + n}})
	})
	all(func(d *day, _ string) { d.wait(sharedLook) })
	late := 40
	if c.how != "" {
		late = 600
	}
	all(func(d *day, n string) { d.effect(sharedLate, "late"+n, late) })
	if c.how != "" {
		p.untilEffect("begin late0")
		p.untilEffect("begin late1")
		both[0].disturb()
	}
	all(func(d *day, n string) {
		d.wait(sharedLate)
		d.end()
		d.shared(n)
	})
	if c.maybe {
		_ = os.Remove(filepath.Join(p.dir, faultDir, c.point))
	} else {
		waitFor(t, "the death at "+c.point, func() bool { return p.died(c.point) })
	}
	if out, errs, code := p.run("", "stop", "--all"); code != 0 {
		t.Errorf("stop --all: exit %d\n%s%s", code, out, errs)
	}
	p.tidy(t)
}

// hello makes the handshake of the day's era.
func (d *day) hello() {
	if d.modern {
		d.ask(sharedHello, "server/discover", map[string]any{})
		return
	}
	d.ask(sharedHello, "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	})
	d.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

// effect begins a call that must not have its effect twice.
func (d *day) effect(id int, token string, ms int) {
	d.begin(id, "tools/call",
		map[string]any{"name": "tools__effect", "arguments": map[string]any{"token": token, "ms": ms}})
}

// end closes the agent's side, and reads the remaining lines.
func (d *day) end() {
	_ = d.a.stdin.Close()
	for d.read() {
	}
	d.exit = d.a.cmd.Wait()
}

// shared checks the answers of agent n and the effects of its calls.
func (d *day) shared(n string) {
	if d.exit != nil {
		d.t.Errorf("the proxy ended with %v: %s", d.exit, d.a.errs)
	}
	for _, id := range []int{sharedHello, sharedList, sharedLook} {
		d.good(id)
	}
	for id, token := range map[int]string{sharedEffect: "first" + n, sharedLate: "late" + n} {
		begun, ended := d.p.effectsOf("begin "+token), d.p.effectsOf("end "+token)
		if len(d.answers[id]) != 1 || begun > 1 || ended > begun {
			d.t.Errorf("effect %s was begun %d times, ended %d times, and has the answers %v", token, begun, ended,
				d.answers[id])
			continue
		}
		x := d.answers[id][0]
		switch {
		case x.Error == nil && !x.Result.IsError:
			if ended != 1 || !strings.Contains(x.text(), token) {
				d.t.Errorf("effect %s ended %d times, and the answer is %s", token, ended, x.raw)
			}
		case !d.c.kills():
			d.t.Errorf("the server lived, effect %s was begun %d times, and the answer is %s", token, begun, x.raw)
		case begun > 0 && !strings.Contains(x.raw, string(fault.OutcomeUnknown)):
			d.t.Errorf("effect %s was begun, and the answer is %s", token, x.raw)
		}
	}
}
