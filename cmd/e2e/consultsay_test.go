package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// receiptOf returns what a call of consult_say has returned.
func receiptOf(t *testing.T, x answer) control.Receipt {
	t.Helper()
	var r control.Receipt
	if err := json.Unmarshal(x.Result.StructuredContent, &r); err != nil || r.Receipt == "" {
		t.Fatalf("no receipt in %s: %v", x.raw, err)
	}
	return r
}

// lines returns how many lines of a kind the transcript of a consult has.
func (p *place) lines(t *testing.T, id, kind string) (n int) {
	t.Helper()
	b, _ := os.ReadFile(filepath.Join(p.dir, "home/.local/state/holdline/consults", id, engine.FileTranscript))
	for line := range strings.Lines(string(b)) {
		var e engine.Entry
		if json.Unmarshal([]byte(line), &e) == nil && e.Kind == kind {
			n++
		}
	}
	return n
}

// told is a step in which the fake program waits for a message: the transcript has it before the program.
var told = claudetest.Step{Do: "told"}

// TestSayInTheSameTurn says something to a consult of Claude Code that works, and kills the daemon,
// once or twice, or the proxy at each step of that. The message is said once, in the same turn, and
// counts as delivered only when the program has repeated it.
func TestSayInTheSameTurn(t *testing.T) {
	t.Parallel()
	const said = "consult.said" // it is written down
	for _, c := range []struct{ victim, point string }{
		{"nobody", ""},
		{"daemon", "session.read"},
		{"daemon", "session.pursued"},
		{"daemon", said},
		{"daemon twice", said},
		{"daemon", "session.queued"},
		{"daemon", "session.written"},
		{"daemon", "session.acked"},
		{"proxy", "proxy.took"},
		{"proxy", said},
		{"proxy", "proxy.answered"},
		{"proxy", "proxy.copied"},
	} {
		t.Run(c.victim+" at "+c.point, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login().faults()
			wait, open := p.hold(t, "step")
			a := p.agent().shake()
			id := consultID(t, a.wait(a.call("consult", map[string]any{
				"wait_s": 0, "render": "json", "prompt": claudetest.Prompt("x", wait, told,
					claudetest.Step{Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "a"}}},
					claudetest.Say("seen")),
			})))
			waitFor(t, "the program", func() bool { return p.lines(t, id, engine.KindSession) == 1 })
			d := death{held: c.victim == "proxy" && c.point == said}
			if c.victim == "daemon twice" {
				d.deaths = 2
			}
			if c.point != "" {
				p.dieAs(c.point, d)
			}
			const text = "look at b.go, too"
			call := a.call("consult_say", map[string]any{"consult_id": id, "text": text, "render": "json"})
			if c.victim != "proxy" {
				if r := receiptOf(t, a.wait(call)); r.Receipt != control.MessageQueued || r.ConsultID != id {
					t.Errorf("the receipt of a message that the program has not taken: %+v", r)
				}
			}
			waitFor(t, "the death", func() bool { return c.point == "" || p.died(c.point) })
			switch {
			case d.held:
				kill9(t, a.cmd.Process.Pid)
				p.letGo(c.point)
			case c.point == "proxy.took": // no daemon has heard of it
				p.must("consult", "say", id, text)
			}
			waitFor(t, "the message at the program", func() bool { return p.lines(t, id, engine.KindSaid) == 1 })
			if n := p.lines(t, id, engine.KindHeard); n != 0 {
				t.Errorf("%d messages were heard before the program has repeated any", n)
			}
			open()
			if out := p.must("consult", "wait", id); out != "seen, and heard: "+text+"\n" {
				t.Errorf("the answer: %q", out)
			}
			shown := p.must("consult", "show", "--json", id)
			if said, heard := p.lines(t, id, engine.KindSaid), p.lines(t, id, engine.KindHeard); said != 1 || heard != 1 ||
				!strings.Contains(shown, `"receipt": "delivered"`) {
				t.Errorf("said %d times, heard %d times: %s", said, heard, shown)
			}
		})
	}
}

// sayCrashes are deaths of the daemon and of the engine process about a message.
var sayCrashes = []crash{{point: "consult.said"}, {point: "adapter.said"}, {point: "adapter.heard"}}

// TestSayEngineKilled kills the engine process, or its worker, when the engine process has a
// message, or the program's word that it has taken one. The consult ends with one honest fault and
// all its processes, it is not run again, and only the latter message is delivered.
func TestSayEngineKilled(t *testing.T) {
	t.Parallel()
	type row struct{ victim, point, why string }
	var rows []row
	for _, c := range sayCrashes[1:] {
		rows = append(rows, row{"engine", c.point, "before there was an answer"},
			row{"worker", c.point, "what it did is unknown"})
	}
	for _, c := range rows {
		t.Run(c.victim+" at "+c.point, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).faults().countRuns()
			wait, open := p.hold(t, "step")
			d := consultDeath{victim: c.victim, point: c.point, held: c.victim == "worker"}
			p.dieAs(c.point, death{held: d.held})
			a := p.agent().shake()
			id := consultID(t, a.wait(a.call("consult", map[string]any{
				"wait_s": 0, "render": "json", "prompt": claudetest.Prompt("x", wait, told,
					claudetest.Step{Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "a"}}},
					claudetest.Say("seen")),
			})))
			waitFor(t, "the program", func() bool { return p.lines(t, id, engine.KindSession) == 1 })
			r := receiptOf(t, a.wait(a.call("consult_say", map[string]any{
				"consult_id": id, "text": "look at b.go, too", "render": "json",
			})))
			if r.Receipt != control.MessageQueued {
				t.Errorf("the receipt: %+v", r)
			}
			waitFor(t, "the message at the program", func() bool { return p.lines(t, id, engine.KindSaid) == 1 })
			open()
			waitFor(t, "the engine process at "+c.point, func() bool { return p.died(c.point) })
			if d.held {
				kill9(t, p.consultProcess(t, c.victim))
			}
			d.checkProcesses(t, p)
			if _, errs, code := p.run("", "consult", "wait", id); code != exitFailure || !strings.Contains(errs, c.why) {
				t.Errorf("exit %d, %q", code, errs)
			}
			shown, _, _ := p.run("", "consult", "show", "--json", id)
			if got, want := strings.Contains(shown, `"receipt": "delivered"`), c.point == "adapter.heard"; got != want {
				t.Errorf("delivered: %t, want %t: %s", got, want, shown)
			}
			want := 1
			if r.ConsultID != id { // the consult ended before the call, so that another one continues it
				p.must("consult", "wait", r.ConsultID)
				want = 2
			}
			a.rest()
			p.settled(t)
			if runs := p.runs(t); runs != want {
				t.Errorf("the program was started %d times, want %d", runs, want)
			}
		})
	}
}

// TestSayInTheNextTurn says something to a program that reads no messages. It is started again
// with the message, in the same consult, and the answer is that of the last turn.
func TestSayInTheNextTurn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	bin := filepath.Join(p.dir, "codex-elsewhere")
	p.fakeCodex(bin)
	p.env = append(p.env, "HOLDLINE_CODEX_BIN="+bin, "CODEX_API_KEY=x")
	p.configure(map[string]any{}, "consult", map[string]any{
		"env": map[string]any{"LEDGER": p.codexLedger()},
	})
	held := bin + ".held"
	if err := os.WriteFile(held, nil, 0o600); err != nil { // the first turn lasts until the message is there
		t.Fatal(err)
	}
	a := p.agent().shake()
	id := consultID(t, a.wait(a.call("consult", map[string]any{
		"wait_s": 0, "render": "json", "engine": "codex", "prompt": "one two",
	})))
	p.untilSteps(1)
	var out, errs string
	var code int
	var saying sync.WaitGroup
	saying.Go(func() { out, errs, code = p.run("", "consult", "say", "--wait", id, "one two three") })
	waitFor(t, "the message in the queue", func() bool {
		shown, _, _ := p.look("consult", "show", "--json", id)
		return strings.Contains(shown, `"receipt": "queued"`)
	})
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	saying.Wait()
	if code != 0 || out != "3 words\n" || !strings.Contains(errs, ": consult "+id) {
		t.Errorf("exit %d, %q %q", code, out, errs)
	}
	if n := p.steps(); n != 2 {
		t.Errorf("the program was started %d times, want 2", n)
	}
	if n := p.lines(t, id, engine.KindHeard); n != 1 {
		t.Errorf("%d messages were heard, want 1", n)
	}
}

// TestSayAtTheEnd says something to a consult in the moment of its end, and to one that has
// ended. Each is continued by a consult that follows it, with its session.
func TestSayAtTheEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults()
	const point = "adapter.exited"
	p.dieAs(point, death{who: "engine", held: true})
	a := p.agent().shake()
	id := consultID(t, a.wait(a.call("consult", map[string]any{"wait_s": 0, "render": "json", "prompt": "first"})))
	waitFor(t, "the end of the program", func() bool { return p.died(point) })
	call := a.call("consult_say", map[string]any{"consult_id": id, "text": "second", "render": "json"})
	p.letGo(point)
	r := receiptOf(t, a.wait(call))
	if r.Receipt != control.MessageQueued || r.ConsultID == id {
		t.Fatalf("the receipt in the moment of the end: %+v", r)
	}
	if out := p.must("consult", "wait", r.ConsultID); out != "fake answer: second\n" {
		t.Errorf("the answer of the consult that follows: %q", out)
	}
	if shown := p.must("consult", "show", "--json", r.ConsultID); !strings.Contains(shown, `"follows": "`+id+`"`) {
		t.Errorf("it does not say what it follows: %s", shown)
	}
	if out, errs, code := p.run("third", "consult", "say", "--wait", r.ConsultID); code != 0 ||
		out != "fake answer: third\n" || strings.Contains(errs, r.ConsultID) {
		t.Errorf("exit %d, %q %q", code, out, errs)
	}
	if _, errs, code := p.run("", "consult", "say", id, " "); code != exitUsage ||
		!strings.Contains(errs, "the message is missing\nhint: holdline consult say ID '") {
		t.Errorf("a blank message: exit %d, %q", code, errs)
	}
}

// TestSayToQueuedConsult says something to a consult that waits for its slot. It gets the message
// behind its prompt, in its only turn.
func TestSayToQueuedConsult(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{}, "consult", map[string]any{"max_concurrent": 1})
	wait, open := p.hold(t, "step")
	a := p.agent().shake()
	first := a.call("consult", map[string]any{"wait_s": 0, "render": "json", "prompt": claudetest.Prompt("x", wait,
		claudetest.Say("first"))})
	consultID(t, a.wait(first))
	id := consultID(t, a.wait(a.call("consult", map[string]any{"wait_s": 0, "render": "json", "prompt": "one"})))
	call := a.call("consult_say", map[string]any{"consult_id": id, "text": "two", "render": "json"})
	if r := receiptOf(t, a.wait(call)); r.Receipt != control.MessageQueued || r.ConsultID != id {
		t.Errorf("the receipt of a message to a queued consult: %+v", r)
	}
	open()
	if out := p.must("consult", "wait", id); out != "fake answer: one\n\ntwo\n" {
		t.Errorf("the answer: %q", out)
	}
	if n := p.lines(t, id, engine.KindTurn); n != 1 || p.lines(t, id, engine.KindHeard) != 1 {
		t.Errorf("%d turns, want 1, and the message heard once", n)
	}
}

// TestSayAgainAfterTheEnd kills the daemon when a message to a consult that has ended has begun
// the consult that continues it. The repeated call gets the receipt that names it, and nothing
// is said twice.
func TestSayAgainAfterTheEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults()
	a := p.agent().shake()
	id := consultID(t, a.wait(a.call("consult", map[string]any{"wait_s": 0, "render": "json", "prompt": "first"})))
	p.must("consult", "wait", id)
	p.dieAt("consult.queued", 1)
	r := receiptOf(t, a.wait(a.call("consult_say", map[string]any{
		"consult_id": id, "text": "second", "render": "json",
	})))
	if !p.died("consult.queued") || r.ConsultID == id || r.ConsultID != r.MessageID {
		t.Errorf("the receipt: %+v", r)
	}
	if out := p.must("consult", "wait", r.ConsultID); out != "fake answer: second\n" {
		t.Errorf("the answer: %q", out)
	}
	if n := strings.Count(p.must("consult", "list", "--json"), `"id"`); n != 2 {
		t.Errorf("there are %d consults, want 2", n)
	}
	a.rest()
}
