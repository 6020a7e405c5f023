package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
	"holdline/protocol/control"
)

// A damageWorld is a place in which files are damaged while no daemon runs.
type damageWorld struct {
	*place
	a   *agent
	old map[string][]byte // contents of its files some time before
	// worker kills the process that has what is pending; nil if there is none.
	worker func(t *testing.T)
	// finish lets what is pending go on, reads its answer and checks it. It ends the agent.
	finish func(t *testing.T, c damageCase)
}

// A damageCase is what was done to a world.
type damageCase struct {
	path, how string
	alive     bool // the worker of what is pending
	sound     bool // what is pending must get its answer as if nothing had happened
}

// named checks that the fault of what is pending, the log of daemons, status or doctor names the damaged file,
// unless the death of the worker is reason enough for the fault.
func (w *damageWorld) named(t *testing.T, c damageCase, fault string) {
	t.Helper()
	if !c.alive {
		return
	}
	var all strings.Builder
	all.WriteString(fault)
	for _, args := range [][]string{{"status"}, {"doctor"}} {
		out, errs, _ := w.run("", args...)
		all.WriteString(out + errs)
	}
	log, _ := os.ReadFile(filepath.Join(w.stateRoot(), "logs/daemon.log"))
	if all.WriteString(string(log)); !strings.Contains(all.String(), filepath.Base(c.path)) {
		t.Errorf("nothing names %s: %.600s", c.path, fault)
	}
}

// beside is the server m of a damaged world, which is not concerned by the damage: it has a call in flight, which
// must get its answer, and gets a new call afterwards.
type beside struct {
	*place
	a    *agent
	call int
}

// withCall lets the server m begin a call.
func (p *place) withCall(a *agent) beside {
	p.t.Helper()
	id := a.call("m__effect", map[string]any{"token": "u", "until": p.latch("u")})
	p.untilEffect("begin u")
	return beside{p, a, id}
}

// answers returns the answer to the call id, and checks that of m.
func (b beside) answers(t *testing.T, id int) answer {
	t.Helper()
	b.letThrough("u")
	got := b.a.waitAll(id, b.call)
	b.checkEffect(t, "begin u", got[b.call], true, 0)
	return got[id]
}

// after checks that m and the agent go on.
func (b beside) after(t *testing.T, ids ...int) {
	t.Helper()
	if x := b.a.wait(b.a.call("m__effect", map[string]any{"token": "after"})); x.text() != "after" {
		t.Errorf("a new call of the server that is not concerned: %.300s", x.raw)
	}
	b.a.rest(append(ids, b.call)...)
}

// aConsult is a world in which a consult runs. Another one has ended.
func aConsult(t *testing.T) *damageWorld {
	t.Helper()
	p := newPlace(t).login().faults().countRuns()
	p.configure(map[string]any{"m": p.toolsEntry(hosting{"scope": "shared"})})
	a := p.agent().shake()
	ask := func(steps ...claudetest.Step) int {
		return a.call("consult", map[string]any{"render": "json", "prompt": claudetest.Prompt("x", steps...)})
	}
	if x := a.wait(ask(claudetest.Say("another answer"))); !strings.Contains(x.raw, "another answer") {
		t.Fatalf("the first consult: %s", x.raw)
	}
	w := &damageWorld{place: p, a: a, old: p.contentsOfState(t)}
	wait, open := p.hold(t, "step")
	read := claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}}
	id := ask(claudetest.Step{Text: new(saidSoFar), Tool: read}, wait, told, claudetest.Step{Tool: read},
		claudetest.Say("the answer"))
	m := p.withCall(a)
	p.untilConsultSays(t, saidSoFar)
	var list []control.Consult
	decode(t, p.must("consult", "list", "--json"), &list)
	i := slices.IndexFunc(list, func(c control.Consult) bool { return c.State == "running" })
	if i < 0 {
		t.Fatalf("no consult runs: %+v", list)
	}
	p.must("consult", "say", list[i].ID, "look at b.go, too")
	waitFor(t, "the message at the program", func() bool { return p.lines(t, list[i].ID, engine.KindSaid) == 1 })
	w.worker = func(t *testing.T) {
		t.Helper()
		for pid, cmd := range p.processes() {
			if commandIs(cmd, "worker") && strings.Contains(cmd, "/consults/") {
				kill9(t, pid)
				return
			}
		}
		t.Fatal("the consult has no worker")
	}
	w.finish = func(t *testing.T, c damageCase) {
		t.Helper()
		open()
		x := m.answers(t, id)
		switch {
		case strings.Contains(x.raw, "another answer"):
			t.Errorf("the answer of another consult: %s", x.raw)
		case x.code() == "" && strings.Contains(x.raw, "the answer"):
		case c.sound || x.code() == "":
			t.Errorf("the consult: %.600s", x.raw)
		default:
			w.named(t, c, x.raw)
		}
		if n := p.runs(t); n != 2 {
			t.Errorf("the programs of two consults were started %d times", n)
		}
		if x := a.wait(ask(claudetest.Say("a third answer"))); !strings.Contains(x.raw, "a third answer") {
			t.Errorf("a new consult: %s", x.raw)
		}
		m.after(t, id)
	}
	return w
}

// anEndedConsult is a world in which two consults have ended.
func anEndedConsult(t *testing.T) *damageWorld {
	t.Helper()
	p := newPlace(t).login().faults().countRuns()
	p.configure(map[string]any{"m": p.toolsEntry(hosting{"scope": "shared"})})
	a := p.agent().shake()
	ids := map[string]string{}
	for _, said := range []string{"another answer", "the answer"} {
		id := a.call("consult", map[string]any{
			"render": "json", "wait_s": 0, "prompt": claudetest.Prompt("x", claudetest.Say(said)),
		})
		x := a.wait(id)
		ids[said] = consultID(t, x)
		p.must("consult", "wait", ids[said])
	}
	w := &damageWorld{place: p, a: a, old: p.contentsOfState(t)}
	m := p.withCall(a)
	w.finish = func(t *testing.T, c damageCase) {
		t.Helper()
		of, other := "the answer", "another answer"
		if strings.Contains(c.path, ids[other]) {
			of, other = other, of
		}
		id := a.call("consult_result", map[string]any{"consult_id": ids[of], "render": "json"})
		x := m.answers(t, id)
		switch {
		case strings.Contains(x.raw, other):
			t.Errorf("the answer of another consult: %s", x.raw)
		case x.code() == "" && strings.Contains(x.raw, of):
		case c.how == "unreadable" && strings.Contains(x.raw, c.path):
		default:
			t.Errorf("the answer is lost: %s", x.raw)
		}
		if n := p.runs(t); n != 2 {
			t.Errorf("the programs of two consults were started %d times", n)
		}
		m.after(t, id)
	}
	return w
}

// aBudget is a world in which a consult has cost one of the three that an identity may ask for in a day. Its answer
// is not kept any more: what it has cost stands in the ledger alone.
func aBudget(t *testing.T) *damageWorld {
	t.Helper()
	p := newPlace(t).login().faults().countRuns()
	p.configure(map[string]any{"m": p.toolsEntry(hosting{"scope": "shared"})},
		"consult", map[string]any{"keep": map[string]any{"count": 1}},
		"identities", map[string]any{"a": map[string]any{"budget": map[string]any{"consults_per_day": 3}}})
	a := p.agent("--identity", "a").shake()
	ask := func(said string) answer {
		return a.wait(a.call("consult", map[string]any{
			"render": "json", "prompt": claudetest.Prompt("x", claudetest.Say(said)),
		}))
	}
	for _, said := range []string{"one", "two"} {
		if x := ask(said); x.code() != "" || !strings.Contains(x.raw, said) {
			t.Fatalf("consult %s: %s", said, x.raw)
		}
	}
	waitFor(t, "the ledger", func() bool { return exists(filepath.Join(p.stateRoot(), "spent.json.copy")) })
	w := &damageWorld{place: p, a: a, old: p.contentsOfState(t)}
	m := p.withCall(a)
	w.finish = func(t *testing.T, _ damageCase) {
		t.Helper()
		id := a.call("consult", map[string]any{
			"render": "json", "prompt": claudetest.Prompt("x", claudetest.Say("three")),
		})
		if x := m.answers(t, id); x.code() != "" || !strings.Contains(x.raw, "three") {
			t.Errorf("the third consult of three: %s", x.raw)
		}
		if x := ask("four"); x.code() != "budget_exceeded" {
			t.Errorf("a fourth consult: %s", x.raw)
		}
		m.after(t, id)
	}
	return w
}

// aTask is a world in which a call of the server tools has become a task.
func aTask(t *testing.T) *damageWorld {
	t.Helper()
	p := newPlace(t).login().faults()
	p.configure(map[string]any{
		"tools": p.toolsEntry(soon("shared")), "m": p.toolsEntry(hosting{"scope": "shared"}),
	})
	a := p.taskAgent()
	first := p.letTask(a, "tools__effect", "first")
	a.untilTask(t, first.TaskID)
	w := &damageWorld{place: p, a: a, old: p.contentsOfState(t)}
	got := a.callTask("tools__effect", map[string]any{"token": "e", "until": p.latch("e")})
	p.untilEffect("begin e")
	w.worker = func(t *testing.T) { t.Helper(); p.killWorker(t, "stools-") }
	w.finish = func(t *testing.T, c damageCase) {
		t.Helper()
		p.letThrough("e")
		var x answer
		waitFor(t, "the end of the task", func() bool {
			x = a.wait(a.tasky("tasks/get", map[string]any{"taskId": got.TaskID}))
			return !strings.Contains(x.raw, `"status":"working"`)
		})
		switch {
		case strings.Contains(x.raw, `"status":"completed"`) && strings.Contains(x.raw, `"text":"e"`):
		case c.sound:
			t.Errorf("the task: %s", x.raw)
		case x.Error != nil || strings.Contains(x.raw, "outcome_unknown"):
			w.named(t, c, x.raw)
		default:
			t.Errorf("the task: %s", x.raw)
		}
		if n := p.effectsOf("begin e"); n != 1 {
			t.Errorf("the call ran %d times", n)
		}
		after := p.letTask(a, "tools__effect", "after")
		if got := a.untilTask(t, after.TaskID); got.Status != "completed" || got.Result.Content[0].Text != "after" {
			t.Errorf("a new task: %+v", got)
		}
		a.rest()
	}
	return w
}

// aWorldWithTools is a world whose agent has called the server tools, which has that scope, and has a call of
// another server in flight. Its worker is that of tools.
func aWorldWithTools(t *testing.T, scope string) (*damageWorld, beside) {
	t.Helper()
	p := newPlace(t).login().faults()
	p.configure(map[string]any{
		"tools": p.toolsEntry(hosting{"scope": scope}), "m": p.toolsEntry(hosting{"scope": "shared"}),
	})
	a := p.agent().shake()
	a.wait(a.call("tools__look", map[string]any{"token": "first"}))
	w := &damageWorld{place: p, a: a, old: p.contentsOfState(t)}
	w.worker = func(t *testing.T) { t.Helper(); p.killWorker(t, "stools-") }
	return w, p.withCall(a)
}

// aQuestion is a world in which a call waits for what the user says to a question of its server.
func aQuestion(t *testing.T) *damageWorld {
	t.Helper()
	w, m := aWorldWithTools(t, "session")
	p, a := w.place, w.a
	id := a.call("tools__ask", elicit("w"))
	question := a.question("elicitation/create")
	waitFor(t, "the file of the question", func() bool {
		files, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*/q/[0-9]*"))
		indexes, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*/q.json"))
		return len(files) == 1 && len(indexes) == 1
	})
	w.finish = func(t *testing.T, c damageCase) {
		t.Helper()
		a.accept(question)
		x := m.answers(t, id)
		switch {
		case x.text() == `w {"action":"accept"}`:
		case c.sound || x.code() != "outcome_unknown":
			t.Errorf("the call that asks: %s", x.raw)
		default:
			w.named(t, c, x.raw)
		}
		if n := p.effectsOf("told w"); n > 1 {
			t.Errorf("the server was answered %d times", n)
		}
		if x := a.wait(a.call("tools__look", map[string]any{"token": "last"})); x.text() != "last" {
			t.Errorf("a new call of the server that asks: %s", x.raw)
		}
		m.after(t, id)
	}
	return w
}

// aLongRequest is a world with two calls in flight whose requests are so long that they lie in files.
func aLongRequest(t *testing.T) *damageWorld {
	t.Helper()
	w, m := aWorldWithTools(t, "shared")
	p, a := w.place, w.a
	long := func(tool, token string) int {
		return a.call(tool, map[string]any{"token": token, "until": p.latch(token), "pad": strings.Repeat("x", 2<<20)})
	}
	effect, look := long("tools__effect", "e"), long("tools__look", "l")
	p.untilEffect("begin e")
	p.untilEffect("look l")
	w.finish = func(t *testing.T, c damageCase) {
		t.Helper()
		for _, token := range []string{"e", "l", "u"} {
			p.letThrough(token)
		}
		got := a.waitAll(effect, look, m.call)
		p.checkEffect(t, "begin e", got[effect], c.sound, 0)
		p.checkEffect(t, "begin u", got[m.call], true, 0)
		if x := got[look]; x.text() != "l" {
			if c.sound || x.code() == "" {
				t.Errorf("the call that may run again: %s", x.raw)
			}
			w.named(t, c, x.raw)
		}
		if x := a.wait(long("tools__effect", "e")); x.text() != "e" {
			t.Errorf("a new long call: %.300s", x.raw)
		}
		m.after(t, effect, look)
	}
	return w
}

// aLogin is a world with a server by address to which the user is logged in.
func aLogin(t *testing.T) *damageWorld {
	t.Helper()
	s := logintest.Start(t, logintest.Options{})
	p := newPlace(t).login().faults()
	p.configure(map[string]any{
		"far": map[string]any{"url": s.URL}, "m": p.toolsEntry(hosting{"scope": "shared"}),
	}, "identities", searcher())
	target := s.LogIn(t, p.logins())
	if err := p.logins().Update(t.Context(), target, &login.Credentials{}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	a := p.agent().shake()
	if x := a.echo(); !strings.Contains(x.text(), "done") {
		t.Fatalf("the first call: %s", x.raw)
	}
	w := &damageWorld{place: p, a: a, old: p.contentsOfState(t)}
	m := p.withCall(a)
	w.worker = func(t *testing.T) { t.Helper(); p.killWorker(t, "sfar-") }
	w.finish = func(t *testing.T, c damageCase) {
		t.Helper()
		id := a.call("far__echo", map[string]any{})
		x := m.answers(t, id)
		if !strings.Contains(x.text(), "done") {
			if c.sound || x.code() == "" {
				t.Errorf("a call with a damaged login: %s", x.raw)
			}
			if c.how != "missing" { // which is no login
				w.named(t, c, x.raw)
			}
		}
		if c.how != "" {
			_ = os.Remove(filepath.Join(p.dir, faultDir, faultUnread)) // the disk is repaired
			p.must("servers", "logout", "far")
			s.LogIn(t, p.logins())
			waitFor(t, "a call after a new login", func() bool { return strings.Contains(a.echo().text(), "done") })
		}
		m.after(t, id)
	}
	return w
}

// aFarCall is a world with a call in flight on another machine.
func aFarCall(t *testing.T) *damageWorld {
	t.Helper()
	p := newPlace(t).faults()
	home := p.farHome()
	p.configure(map[string]any{
		"tools": p.elsewhere(hosting{"scope": "shared"}), "m": p.toolsEntry(hosting{"scope": "shared"}),
	})
	a := p.agent().shake()
	if x := a.wait(a.effect("before", 1)); x.text() != "before" {
		t.Fatalf("the first call: %s", x.raw)
	}
	w := &damageWorld{place: p, a: a, old: p.contentsOfState(t)}
	m := p.withCall(a)
	id := a.call("tools__effect", map[string]any{"token": "e", "until": p.latch("e")})
	p.untilEffect("begin e")
	w.worker = func(t *testing.T) {
		t.Helper()
		for _, pid := range p.farWorkers() {
			kill9(t, pid)
		}
	}
	w.finish = func(t *testing.T, c damageCase) {
		t.Helper()
		p.letThrough("e")
		x := m.answers(t, id)
		p.checkEffect(t, "begin e", x, c.sound, 0)
		if x.code() != "" {
			w.named(t, c, x.raw)
		}
		if x := a.wait(a.effect("again", 1)); x.text() != "again" {
			t.Errorf("a new call on the other machine: %s", x.raw)
		}
		m.after(t, id)
		_ = os.Remove(filepath.Join(p.dir, faultDir, faultUnread)) // the disk is repaired
		p.must("stop", "--all")
		p.nothingFar(home)
	}
	return w
}

// aStop is a world in which daemons were stopped.
func aStop(t *testing.T) *damageWorld {
	t.Helper()
	p := newPlace(t).login().faults()
	p.configure(map[string]any{"m": p.toolsEntry(hosting{"scope": "shared"})})
	a := p.agent().shake()
	w := &damageWorld{place: p, a: a, old: p.contentsOfState(t)}
	w.finish = func(t *testing.T, c damageCase) {
		t.Helper()
		out, errs, code := p.run("", "start")
		if code != 0 {
			t.Errorf("start ends with %d: %s%s", code, out, errs)
		}
		b := p.agent().shake()
		if x := b.wait(b.call("m__effect", map[string]any{"token": "after"})); x.text() != "after" {
			t.Errorf("a new call: %s", x.raw)
		}
		b.rest()
		a.die()
	}
	return w
}

// damageScenes are the worlds in which [TestDamage] damages files, but for the one of [damageCell].
var damageScenes = map[string]func(t *testing.T) *damageWorld{
	"a consult": aConsult, "an ended consult": anEndedConsult, "a budget": aBudget, "a task": aTask,
	"a question": aQuestion, "a long request": aLongRequest, "a login": aLogin, "a far call": aFarCall, stopScene: aStop,
}

// stopScene is the scene in which the daemon was not killed, but stopped.
const stopScene = "a stop"

// sceneCell damages a file of one of [damageScenes].
func sceneCell(t *testing.T, row damageRow, how string, alive bool) {
	t.Helper()
	w := damageScenes[row.in](t)
	w.endDaemon(t, row.in)
	path := w.damagePath(t, row)
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("there is no %s to be damaged: %v", row.path, err)
	}
	if !alive && w.worker != nil {
		w.worker(t)
	}
	if err := damages[how](w.place, path, now, w.old[path], w.neighbour(path)); err != nil {
		t.Fatal(err)
	}
	w.damageContinues(w.a)
	begun := time.Now()
	w.finish(t, damageCase{path, how, alive, alive && (!row.loses || how == "unreadable once")})
	if took := time.Since(begun); took > waitLimit {
		t.Errorf("all took %v", took)
	}
}

// damagePath returns the path of the file that a row means. One that is there only at times is made, empty.
func (p *place) damagePath(t *testing.T, row damageRow) string {
	t.Helper()
	path := p.damaged(row.path)
	if path != "" || !row.absent {
		return path
	}
	path = filepath.Join(p.dir, row.path)
	if dir := filepath.Dir(row.path); strings.Contains(dir, "*") { // that of a worker
		path = filepath.Join(filepath.Dir(p.damaged(filepath.Join(dir, "spec.json"))), filepath.Base(row.path))
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// endDaemon stops the agent's proxy with SIGSTOP, and ends the daemon.
func (w *damageWorld) endDaemon(t *testing.T, scene string) {
	t.Helper()
	daemon := w.pid(0)
	halt(t, w.a.cmd.Process.Pid)
	if scene == stopScene {
		w.must("stop")
		return
	}
	kill9(t, daemon)
}

// recordScene returns the files that processes open in one of [damageScenes] in which nothing is damaged, and
// afterwards.
func recordScene(t *testing.T, scene string) (p *place, opened []string) {
	t.Helper()
	w := damageScenes[scene](t)
	if err := os.WriteFile(filepath.Join(w.dir, faultDir, faultOpened), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.endDaemon(t, scene)
	w.damageContinues(w.a)
	w.finish(t, damageCase{alive: true, sound: true})
	for _, args := range damageCommands {
		w.run("", args...)
	}
	return w.place, w.openedFiles(t)
}
