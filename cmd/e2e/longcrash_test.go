package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/calls"
)

// longCrashes are deaths around a call whose request and result are long: both lie in files,
// which the processes name to each other.
var longCrashes = []crash{
	{point: "session.read"},
	{point: "write.recorded"},
	{point: "write.sent"},
	{point: "write.made"},
	{point: "attach.received"},
	{point: "attach.received", times: 4},
	{point: "hosted.answered"},
	{point: "hosted.filed"},
	{point: "hosted.answered", twice: true},
	{point: "session.pursued"},
	{point: "session.queued"},
	{point: "session.written"},
	{point: "session.acked"},
	{point: "hosted.forgot"},
	{point: "attach.fenced", after: "hosted.filed"},
	{point: "session.replayed", after: "write.sent"},
	{point: "worker.read"},
	{point: "worker.taken"},
	{point: "worker.written"},
	{point: "worker.output"},
	{point: "worker.output", times: 8},
	{point: "worker.acked"},
	{point: "proxy.spilled"},
	{point: "proxy.took"},
	{point: "proxy.forwarded"},
	{point: "proxy.opened"},
	{point: "proxy.copied"},
}

// longResult returns what the odd server is to say in the long call: it is in the request, too.
func longResult() string {
	return `{"content":[{"type":"text","text":"` + strings.Repeat("0123456789", 70_000) + `"}]}`
}

// TestLongCrashes brings about each of them. The call is made once and answered once, only a
// dead worker makes its outcome unknown, and no file is left.
func TestLongCrashes(t *testing.T) {
	t.Parallel()
	inTurn(t, longCrashes, func(t *testing.T, c crash, _ int) {
		t.Helper()
		p := newPlace(t).login().faults()
		p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"})})
		a := p.agent().shake()
		say := func(a *agent, result string) int { return a.call("odd__say", map[string]any{"text": result}) }
		if id := say(a, `{"content":[]}`); a.wait(id).Error != nil {
			t.Fatal("the server does not answer")
		}
		// All of its processes are done with it, or they would die of it.
		waitFor(t, "the end of the first call", func() bool { return len(p.callsOnRecord()) == 0 })
		if c.after != "" {
			p.dieAs(c.after, death{})
		}
		p.dieAs(c.point, death{times: c.times, after: c.after, deaths: c.deaths()})
		result := longResult()
		id := say(a, result)
		victim := c.victim()
		if victim == "proxy" {
			_ = a.cmd.Wait()
		} else {
			x := a.wait(id)
			unknown := victim == "worker" && (x.code() == "outcome_unknown" || x.code() == "process_failure")
			if !unknown && x.result(t, id) != result {
				t.Errorf("the answer has %d bytes: %.300s", len(x.raw), x.raw)
			}
			if n := p.effectsOf("tools/call"); n != 2 && (victim != "worker" || n != 1) {
				t.Errorf("the server was called %d times, want 2", n)
			}
			if c.point == "session.queued" {
				// The answer may have come before the daemon died. A client that leaves while there is no
				// daemon cannot confirm it, and the file stays until nobody can ask for it any more.
				waitFor(t, "the death at "+c.point, func() bool { return p.died(c.point) })
				a.ask("ping", map[string]any{})
			}
			a.rest(id)
		}
		waitFor(t, "the death at "+c.point, func() bool { return p.died(c.point) })
		b := p.agent().shake()
		if id := say(b, result); b.wait(id).result(t, id) != result {
			t.Error("the next agent's call has another result")
		}
		b.rest()
		waitFor(t, "the end of the files", func() bool { return len(p.longFiles()) == 0 })
		p.must("stop", "--all")
		p.tidy(t)
	})
}

// callsOnRecord returns the records of calls that are not confirmed.
func (p *place) callsOnRecord() (records []calls.Record) {
	p.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, dir := range dirs {
		all, err := calls.Load(dir, true)
		if err != nil || all.Damage != nil {
			p.t.Fatal(err, all.Damage)
		}
		for _, r := range all.Records {
			if r.Kind == calls.KindCall {
				records = append(records, r)
			}
		}
	}
	return records
}

// longFiles returns the files of long lines, and of kept answers.
func (p *place) longFiles() (files []string) {
	p.t.Helper()
	for _, pattern := range []string{".line.*", "w/*/a/*", "w/*/a/.*", "w/*/long.*", "w/*/in.*"} {
		found, err := filepath.Glob(filepath.Join(p.dir, "run/holdline", pattern))
		if err != nil {
			p.t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
}
