package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/supervisor"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// crash is one death to test: a process dies when it reaches a point.
type crash struct {
	point string
	times int    // how often the process reaches the point before it dies, this time included; 0 means 1
	after string // another point, at which a process dies first
	how   string // what is done to the daemon first; the point counts from then on
	who   string // the command that dies, if several reach the point
	maybe bool   // the point need not be reached
	twice bool   // two processes die at the point, one after the other
}

func (c crash) String() string {
	name := c.point
	if c.times > 1 {
		name += fmt.Sprintf("#%d", c.times)
	}
	if c.after != "" {
		name += " after " + c.after
	}
	if c.how != "" {
		name += " when " + c.how
	}
	if c.who != "" {
		name += " of the " + c.who
	}
	if c.twice {
		name += " twice"
	}
	return name
}

// deaths returns how many processes die at the point.
func (c crash) deaths() int {
	if c.twice {
		return 2
	}
	return 1
}

// What can be done to a daemon.
const (
	upgraded   = "upgraded"
	terminated = "terminated" // as a service manager does
)

// victim returns the kind of process that reaches the point.
func (c crash) victim() string {
	kind, _, _ := strings.Cut(c.point, ".")
	switch cmp.Or(c.who, kind) {
	case "worker", "exec", "proxy", "engine":
		return cmp.Or(c.who, kind)
	case "adapter":
		return "engine"
	}
	return "daemon"
}

// The deaths, by process. Each point in the code must be here, or TestEveryFaultPoint
// fails. Further ways to reach a point have lines of their own.
var (
	daemonCrashes = []crash{
		{point: "start.locked"},
		{point: "start.locked", after: "write.made"},
		{point: "start.sole"},
		{point: "start.counted"},
		{point: "start.listening"},
		{point: "start.listening", after: "write.made"},
		{point: "start.hunted", after: "write.made"},
		{point: "start.serving"},
		{point: "start.serving", after: "write.made"},
		{point: "session.greeted"},
		{point: "session.greeted", after: "write.made"},
		{point: "session.taken", after: "write.made"},
		{point: "session.replayed", after: "write.made"},
		{point: "session.read"},
		{point: "session.read", times: 3},
		{point: "session.read", times: 5},
		{point: "session.read", times: 6},
		{point: "session.queued"},
		{point: "session.queued", after: "worker.written"},
		{point: "session.written", after: "worker.written"},
		{point: "consult.kept", after: "worker.written"},
		{point: "session.queued", times: 3},
		{point: "session.written"},
		{point: "session.written", times: 4},
		{point: "session.acked"},
		{point: "session.pursued"},
		{point: "session.pursued", times: 2},
		{point: "session.cancelled"},
		{point: "session.ended"},
		{point: "consult.dir"},
		{point: "consult.dir", times: 2},
		{point: "consult.queued"},
		{point: "private.starting"},
		{point: "launch.dirs"},
		{point: "launch.counted"},
		{point: "launch.spec"},
		{point: "launch.started"},
		{point: "launch.started", times: 2},
		{point: "launch.listening"},
		{point: "launch.attached"},
		{point: "attach.fenced"},
		{point: "attach.voided"},
		{point: "attach.fenced", after: "write.made"},
		{point: "attach.voided", after: "write.made"},
		{point: "attach.lost", after: "worker.written"},
		{point: "attach.received"},
		{point: "private.started"},
		{point: "write.recorded"},
		{point: "write.sent"},
		{point: "write.made"},
		{point: "write.made", times: 2},
		{point: "private.event"},
		{point: "private.event", times: 3},
		{point: "private.called"},
		{point: "private.called", times: 2},
		{point: "private.exited"},
		{point: "private.exited", times: 2},
		{point: "private.followed"},
		{point: "private.followed", times: 2},
		{point: "consult.kept"},
		{point: "consult.kept", times: 2},
		{point: "consult.told"},
		{point: "private.letting"},
		{point: "consult.released"},
		{point: "consult.resumed", after: "write.made"},
		{point: "consult.resumed", after: "consult.queued"},
		{point: "private.attaching", after: "write.made"},
		{point: "private.attached", after: "write.made"},
		{point: "private.attached", after: "private.followed"},
		{point: "pointer.half"},
		{point: "file.half", who: "daemon"},
		{point: "file.half", who: "daemon", times: 2},
		{point: "file.half", who: "daemon", times: 3},
		{point: "file.half", who: "daemon", times: 4},
		{point: "file.half", who: "daemon", times: 5},
		{point: "file.half", who: "daemon", times: 6},
		{point: "file.half", who: "daemon", times: 7},
		{point: "file.half", who: "daemon", times: 8},
		{point: "rollout.probed", how: upgraded},
		{point: "rollout.flushed", how: upgraded},
		{point: "rollout.exec", how: upgraded},
		{point: "rollout.taken", how: upgraded},
		{point: "start.locked", how: upgraded},
		{point: "start.listening", how: upgraded},
		{point: "start.serving", how: upgraded},
		{point: "start.sole", how: upgraded},
		{point: "start.counted", how: upgraded},
		{point: "start.hunted", how: upgraded},
		{point: "session.taken", how: upgraded},
		{point: "session.replayed", how: upgraded},
		{point: "consult.resumed", how: upgraded},
		{point: "attach.fenced", how: upgraded},
		{point: "private.attached", how: upgraded},
		{point: "stop.begun", how: terminated},
		{point: "stop.detached", how: terminated},
		{point: "stop.alone", how: terminated},
		{point: "stop.swept", how: terminated},
		{point: "start.serving", how: terminated},
		{point: "private.attached", how: terminated},
	}
	workerCrashes = []crash{
		{point: "worker.output", after: "write.made"},
		{point: "worker.exited", after: "write.made"},
		{point: "worker.closed", after: "write.made"},
		{point: "worker.left", after: "consult.kept"},
		{point: "worker.begun"},
		{point: "worker.detached"},
		{point: "worker.locked"},
		{point: "worker.checked"},
		{point: "worker.listening"},
		{point: "worker.starting"},
		{point: "worker.forked"},
		{point: "worker.recorded"},
		{point: "exec.begun"},
		{point: "exec.told"},
		{point: "worker.attached"},
		{point: "worker.attached", after: "write.made"},
		{point: "worker.read", times: 3},
		{point: "worker.taken"},
		{point: "worker.written"},
		{point: "worker.phase"},
		{point: "worker.output"},
		{point: "worker.acked"},
		{point: "worker.exited"},
		{point: "worker.closed"},
		{point: "worker.leaving"},
		{point: "worker.left"},
		{point: "file.half", who: "worker"},
		{point: "file.half", who: "worker", times: 2},
		{point: "file.half", who: "worker", times: 3},
	}
	// Of the engine process, which dies alone.
	engineCrashes = []crash{
		{point: "adapter.begun"},
		{point: "adapter.started"},
		{point: "adapter.told"},
		{point: "adapter.exited"},
		{point: "adapter.outcome"},
		{point: "adapter.outcome", after: "write.made"},
		{point: "adapter.answered"},
		{point: "adapter.answered", after: "write.made"},
		{point: "adapter.cancelled"},
		{point: "file.half", who: "engine"},
	}
	proxyCrashes = []crash{
		{point: "proxy.started"},
		{point: "proxy.dialled"},
		{point: "proxy.greeted"},
		{point: "proxy.welcomed"},
		{point: "proxy.read"},
		{point: "proxy.read", times: 4},
		{point: "proxy.took"},
		{point: "proxy.took", times: 4},
		{point: "proxy.forwarded"},
		{point: "proxy.forwarded", times: 4},
		{point: "proxy.received"},
		{point: "proxy.answered"},
		{point: "proxy.answered", times: 3},
		{point: "proxy.copied"},
		{point: "proxy.acked"},
		{point: "proxy.lost", after: "write.made"},
		{point: "proxy.dialled", after: "write.made"},
		{point: "proxy.replayed", after: "write.made"},
		{point: "proxy.leaving"},
		{point: "proxy.bye"},
	}
	// Of a daemon that its user stops.
	stopCrashes = []crash{
		{point: "stop.marked"},
		{point: "stop.told"},
		{point: "stop.detached"},
		{point: "stop.alone"},
		{point: "stop.swept"},
	}
	// Of workers without a daemon. With users, their window is two minutes.
	aloneCrashes = []crash{
		{point: "worker.alone"},
		{point: "worker.spooled"},
	}
)

// atOnce is how many deaths are tested at the same time: they wait more than they compute.
const atOnce = 6

// raceShare says which part of the deaths is tested with the race detector, which makes
// each several times slower: one in this many.
const raceShare = 13 // odd, so that both eras are tested

// TestCrashes tests all of them. Each is a small place with one agent, of the two eras in
// turn. Each request of a proxy that lives is answered once, no consult runs twice, only a
// dead worker makes an outcome unknown, the next daemon serves, and nothing is left.
func TestCrashes(t *testing.T) {
	goThrough(t, slices.Concat(daemonCrashes, workerCrashes, engineCrashes, proxyCrashes))
}

// TestConsultCrashesTwice kills two daemons, one after the other, at each step of a consult that the
// next daemon may take again.
func TestConsultCrashesTwice(t *testing.T) {
	points := map[string]bool{}
	for _, c := range daemonCrashes {
		kind, _, _ := strings.Cut(c.point, ".")
		if slices.Contains([]string{"consult", "private", "write"}, kind) {
			points[c.point] = true
		}
	}
	var all []crash
	for _, point := range slices.Sorted(maps.Keys(points)) {
		all = append(all, crash{point: point, twice: true, maybe: true})
	}
	goThrough(t, all)
}

// TestCrashesEverywhere tests what the tables leave out: each point at each of its first
// times, also after an earlier death of a daemon or a worker. It takes many minutes.
func TestCrashesEverywhere(t *testing.T) {
	if os.Getenv("HOLDLINE_LONG") == "" {
		t.Skip("it takes many minutes: HOLDLINE_LONG=1 runs it")
	}
	var all []crash
	for _, point := range slices.Sorted(maps.Keys(faultPoints(t))) {
		for times := range 4 {
			for _, after := range []string{
				"", "consult.queued", "write.made", "private.followed", "worker.written", "session.cancelled",
			} {
				if after != point {
					all = append(all, crash{point: point, times: times + 1, after: after, maybe: true})
				}
			}
			for _, how := range []string{upgraded, terminated} {
				all = append(all, crash{point: point, times: times + 1, how: how, maybe: true})
			}
		}
	}
	goThrough(t, all)
}

func goThrough(t *testing.T, all []crash) {
	t.Helper()
	inTurn(t, all, func(t *testing.T, c crash, i int) {
		t.Helper()
		c.happen(t, i%2 == 1)
	})
}

// inTurn runs one for each of the deaths, some at the same time.
func inTurn(t *testing.T, all []crash, one func(t *testing.T, c crash, i int)) {
	t.Helper()
	// Written before a process is forked, which would inherit the file open for writing.
	if err := copyFile(filepath.Join(programs, "holdline"), filepath.Join(programs, newFile)); err != nil {
		t.Fatal(err)
	}
	slots := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i, c := range all {
		if raceEnabled && i%raceShare != 0 {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			t.Run(c.String(), func(t *testing.T) { one(t, c, i) })
		})
	}
	wait.Wait()
}

// TestCrashesAlone checks that a worker that dies when it becomes alone takes its child
// along, and that the next daemon finds it dead and can remove everything.
func TestCrashesAlone(t *testing.T) {
	t.Parallel()
	for _, c := range aloneCrashes {
		t.Run(c.String(), func(t *testing.T) {
			p := newPlace(t).faults()
			p.dieAs(c.point, death{})
			root := filepath.Join(p.dir, "run/holdline")
			if err := os.Mkdir(root, 0o700); err != nil {
				t.Fatal(err)
			}
			daemon := func(epoch int64) *supervisor.Supervisor {
				return supervisor.New(supervisor.Options{
					Exe: filepath.Join(programs, "holdline"), RuntimeDir: root, StateDir: root, Epoch: epoch,
					Program: "test",
					Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
				})
			}
			first := daemon(1)
			w, err := first.Start(t.Context(), first.Dir("alone"), process.Spec{
				ID: "alone", Kind: process.KindConsult, Name: "alone",
				Argv: []string{"/bin/sh", "-c", "echo up; exec sleep 1000"}, Cwd: "/",
				Orphan: process.Orphan{AfterMS: 50, Do: process.OrphanLeave},
			}, p.env)
			if err != nil {
				t.Fatal(err)
			}
			<-w.Ready() // the child runs
			child := w.Status().ChildPID
			if err := first.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the death at "+c.point, func() bool { return p.died(c.point) })
			second := daemon(2)
			if w, err = second.Attach(t.Context(), w.Dir()); err != nil {
				t.Fatal(err)
			}
			var last supervisor.Event
			for last.Kind != supervisor.Lost && last.Kind != supervisor.Closed {
				<-w.Ready()
				events, _ := w.Take()
				if n := len(events); n > 0 {
					last = events[n-1]
				}
			}
			if last.Kind != supervisor.Lost || last.Fault == nil || alive(child) {
				t.Errorf("the last event is %+v, the child lives: %v", last, alive(child))
			}
			if err := second.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := second.Reap(w.Dir()); err != nil {
				t.Fatal(err)
			}
			p.settled(t)
			p.tidy(t)
		})
	}
}

// TestCrashesOfStop checks that a daemon that dies while it is stopped counts as stopped:
// no proxy starts another, each pending call is answered once, and the next daemon has the
// consults. Those without a client end.
func TestCrashesOfStop(t *testing.T) {
	t.Parallel()
	inTurn(t, stopCrashes, func(t *testing.T, c crash, _ int) {
		t.Helper()
		p := newPlace(t).login().faults()
		a := p.up().agent("--reconnect-timeout", "1s").shake()
		id := a.call("consult", p.hangs())
		args := p.slow(0.5)
		args["wait_s"] = 0
		background := a.wait(a.call("consult", args))
		p.untilSteps(2)
		p.dieAs(c.point, death{})
		p.run("", "stop")
		if !p.died(c.point) {
			t.Fatalf("no daemon came to %s", c.point)
		}
		if x := a.wait(id); !strings.Contains(x.raw, string(fault.OutcomeUnknown)) {
			t.Errorf("the consult's answer: %s", x.raw)
		}
		for line := range a.lines {
			t.Errorf("one more line: %s", line)
		}
		_ = a.cmd.Wait()
		if code := a.cmd.ProcessState.ExitCode(); code != exitLost {
			t.Errorf("the proxy ended with %d: %s", code, a.errs)
		}
		if _, _, code := p.run("", "status"); code != exitNoDaemon {
			t.Errorf("a daemon was started: status exits %d", code)
		}
		p.windows(100).daemon()
		p.settled(t)
		list, _, _ := p.run("", "consult", "list")
		if strings.Count(list, " done ") != 1 || strings.Count(list, " cancelled ") != 1 || p.steps() != 3 {
			t.Errorf("%d steps; the one in the background was begun with %s; the consults are\n%s", p.steps(),
				background.text(), list)
		}
		p.run("", "stop")
		p.tidy(t)
	})
}

// TestEveryFaultPoint checks that each point in the code has a death, and each death a
// point.
func TestEveryFaultPoint(t *testing.T) {
	walked := map[string]bool{}
	for _, c := range slices.Concat(daemonCrashes, workerCrashes, engineCrashes, proxyCrashes, stopCrashes,
		aloneCrashes, serverCrashes, askCrashes, questionCrashes, loginCrashes, longCrashes, panelCrashes, sayCrashes,
		taskCrashes, answerCrashes, unreadCrashes) {
		walked[c.point] = true
	}
	points := faultPoints(t)
	for point, n := range points {
		if n != 1 {
			t.Errorf("%s stands in the code %d times, and a name is for one place", point, n)
		}
		if !walked[point] {
			t.Errorf("no test lets a process die at %s: put it in a table of this file", point)
		}
	}
	for point := range walked {
		if points[point] == 0 {
			t.Errorf("the code does not come to %s any more", point)
		}
	}
}

// faultPoints returns the points in the program's code, with how often each is there.
func faultPoints(t *testing.T) map[string]int {
	t.Helper()
	at := regexp.MustCompile(`faultpoint\.At\((.*?)\)`)
	name := regexp.MustCompile(`^"([a-z]+(?:\.[a-z]+)+)"$`)
	points := map[string]int{}
	sources(t, func(path string, text []byte) {
		for _, m := range at.FindAllSubmatch(text, -1) {
			point := name.FindSubmatch(m[1])
			if point == nil {
				t.Errorf("%s: the name of a point is words with dots between them: %s", path, m[0])
				continue
			}
			points[string(point[1])]++
		}
	})
	if len(points) == 0 {
		t.Fatal("no points in the code")
	}
	return points
}

// sources calls show for each of the program's source files.
func sources(t *testing.T, show func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		show(path, b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// happen brings about one death during an agent's day.
func (c crash) happen(t *testing.T, modern bool) {
	t.Helper()
	p := newPlace(t).login().faults()
	if c.after != "" {
		p.dieAs(c.after, death{})
	}
	if c.how == "" {
		p.dieAs(c.point, death{times: c.times, after: c.after, who: c.who, deaths: c.deaths()})
	}
	defer func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(p.dir, "home/.local/state/holdline/logs/daemon.log"))
			t.Logf("the daemons' log:\n%s", log)
		}
	}()
	d := &day{t: t, p: p, c: c, modern: modern, answers: map[int][]answer{}}
	d.live()
	d.check()
	if c.maybe {
		_ = os.Remove(filepath.Join(p.dir, faultDir, c.point))
	}
	// The next agent is served.
	b := p.agent().shake()
	if x := b.wait(b.call("health_snapshot", nil)); x.Error != nil || x.Result.IsError {
		t.Errorf("health_snapshot of the next agent: %s", x.raw)
	}
	b.rest()
	if !c.maybe {
		waitFor(t, "the death at "+c.point, func() bool { return p.died(c.point) })
	}
	if c.twice { // as in serve
		p.agent().shake().rest()
	}
	waitFor(t, "the consults' end", func() bool {
		list, _, _ := p.look("consult", "list", "--json")
		return !strings.Contains(list, `"running"`) && !strings.Contains(list, `"queued"`)
	})
	p.settled(t)
	if out, errs, code := p.look("stop"); code != 0 {
		t.Errorf("stop: exit %d\n%s%s", code, out, errs)
	}
	p.tidy(t)
}

// Requests of a day, by id.
const (
	dayHello = iota + 1
	dayList
	dayConsult
	dayHealth
	dayCancelled
	dayPoll // and all above
)

// day is what an agent does with its proxy.
type day struct {
	t        *testing.T
	p        *place
	c        crash
	modern   bool
	a        *agent
	answers  map[int][]answer
	indirect bool            // hosted tools are called through call_tool
	lost     bool            // the proxy's output has ended
	on       func(x *answer) // called for each line that is no answer; may be nil
	exit     error
}

// ledger returns the file in which the program of request id notes its steps.
func (d *day) ledger(id int) string { return d.p.ledger() + strconv.Itoa(id) }

func (d *day) steps(id int) int {
	b, _ := os.ReadFile(d.ledger(id))
	return bytes.Count(b, []byte{'\n'})
}

// live makes the requests of the day. It returns early when the proxy ends.
func (d *day) live() {
	d.p.link("holdline")
	cmd := d.p.command("mcp-stdio")
	cmd.Path = d.p.bin()
	cmd.Args[0] = d.p.bin()
	d.a = d.p.agentOf(cmd)
	defer func() {
		_ = d.a.stdin.Close()
		for d.read() {
		}
		d.exit = d.a.cmd.Wait()
	}()
	if d.modern {
		d.ask(dayHello, "server/discover", map[string]any{})
	} else {
		d.ask(dayHello, "initialize", map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
			"clientInfo": map[string]string{"name": "test", "version": "1"},
		})
		d.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	}
	d.ask(dayList, "tools/list", map[string]any{})
	note := claudetest.Step{Do: "ledger", Message: d.ledger(dayConsult)}
	last := note
	last.Delay = 0.1
	if d.c.how != "" {
		last.Delay = 1
	}
	d.begin(dayConsult, "tools/call", map[string]any{"name": "consult", "arguments": map[string]any{
		"prompt": claudetest.Prompt("x", note, claudetest.Step{Do: "chatter", N: 2}, last,
			claudetest.Say("the one answer")),
	}})
	if d.c.how != "" {
		d.until(func() bool { return d.steps(dayConsult) > 0 })
		d.disturb()
	}
	d.wait(dayConsult)
	d.ask(dayHealth, "tools/call", map[string]any{"name": "health_snapshot", "arguments": map[string]any{}})
	d.begin(dayCancelled, "tools/call", map[string]any{"name": "consult", "arguments": map[string]any{
		"prompt": claudetest.Prompt("x", claudetest.Step{Do: "ledger", Message: d.ledger(dayCancelled)},
			claudetest.Step{Do: "hang"}),
	}})
	d.until(func() bool { return d.steps(dayCancelled) > 0 || len(d.answers[dayCancelled]) > 0 })
	d.send(map[string]any{
		"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": dayCancelled},
	})
	d.idle()
}

// disturb does to the daemon what c.how says. It ignores the output of the command, which
// may be cut short.
func (d *day) disturb() {
	d.p.dieAs(d.c.point, death{times: d.c.times, who: d.c.who})
	switch d.c.how {
	case upgraded:
		d.p.link(newFile)
		d.p.run("", "upgrade")
	case terminated:
		_ = syscall.Kill(d.p.pid(0), syscall.SIGTERM)
	}
}

// idle waits until no consult runs any more.
func (d *day) idle() {
	for id := dayPoll; !d.lost; id++ {
		d.ask(id, "tools/call", map[string]any{"name": "consult_result", "arguments": map[string]any{"render": "json"}})
		if d.lost {
			return
		}
		list := d.answers[id][0].raw
		if !strings.Contains(list, "running") && !strings.Contains(list, "queued") {
			return
		}
		if id > dayPoll+1000 {
			d.t.Fatalf("the consults do not end: %s", list)
		}
		time.Sleep(15 * time.Millisecond)
	}
}

// send sends a message, unless the proxy has ended.
func (d *day) send(message map[string]any) {
	b, err := json.Marshal(message)
	if err != nil {
		d.t.Fatal(err)
	}
	_, _ = d.a.stdin.Write(append(b, '\n')) // the end of the proxy is seen in its output
}

func (d *day) begin(id int, method string, params map[string]any) {
	if d.modern {
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
			"io.modelcontextprotocol/clientInfo":         map[string]string{"name": "test", "version": "1"},
		}
	}
	if !d.lost {
		d.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	}
}

func (d *day) ask(id int, method string, params map[string]any) {
	d.begin(id, method, params)
	d.wait(id)
}

// wait waits for the answer to id, or the proxy's end.
func (d *day) wait(id int) { d.until(func() bool { return len(d.answers[id]) > 0 }) }

// until reads lines until ok returns true or the proxy has ended.
func (d *day) until(ok func() bool) {
	limit := time.After(waitLimit)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !d.lost && !ok() {
		select {
		case line, more := <-d.a.lines:
			d.take(line, more)
		case <-look.C:
		case <-limit:
			d.t.Fatalf("it takes too long; the proxy said %s, answers: %v", d.a.errs, d.answers)
		}
	}
}

// read reads a line. It returns false at the proxy's end.
func (d *day) read() bool {
	select {
	case line, more := <-d.a.lines:
		d.take(line, more)
		return more
	case <-time.After(waitLimit):
		d.t.Errorf("the proxy does not end; it said %s", d.a.errs)
		return false
	}
}

func (d *day) take(line string, more bool) {
	if !more {
		d.lost = true
		return
	}
	x := answer{raw: line}
	if err := json.Unmarshal([]byte(line), &x); err != nil {
		d.t.Errorf("the proxy printed %q: %v", line, err)
		return
	}
	if n, ok := x.ID.(float64); ok && x.Method == "" {
		d.answers[int(n)] = append(d.answers[int(n)], x)
	} else if d.on != nil {
		d.on(&x)
	}
}

// check checks the answers, and what the programs have done.
func (d *day) check() {
	if d.c.victim() == "proxy" && (!d.c.maybe || d.p.died(d.c.point)) {
		if d.exit == nil {
			d.t.Error("the proxy lived on")
		}
	} else {
		if d.exit != nil {
			d.t.Errorf("the proxy ended with %v: %s", d.exit, d.a.errs)
		}
		for _, id := range []int{dayHello, dayList, dayHealth} {
			d.good(id)
		}
		d.consult()
	}
	for id, all := range d.answers {
		if len(all) > 1 {
			d.t.Errorf("request %d has %d answers: %v", id, len(all), all)
		}
	}
	if n := len(d.answers[dayCancelled]); n > 0 && !d.c.kills() {
		d.t.Errorf("the cancelled request was answered: %s", d.answers[dayCancelled][0].raw)
	}
	if first, second := d.steps(dayConsult), d.steps(dayCancelled); first > 2 || second > 1 {
		d.t.Errorf("the programs took %d and %d steps, at most 2 and 1 are right: one ran twice", first, second)
	}
}

func (d *day) good(id int) {
	if x := d.answers[id]; len(x) != 1 || x[0].Error != nil || x[0].Result.IsError {
		d.t.Errorf("answers to request %d: %v; the proxy said %s", id, x, d.a.errs)
	}
}

// consult checks the answer of the consult that was not cancelled.
func (d *day) consult() {
	all := d.answers[dayConsult]
	if len(all) != 1 {
		d.t.Errorf("the consult has %d answers: %v", len(all), all)
		return
	}
	x, steps := all[0], d.steps(dayConsult)
	switch {
	case x.Error == nil && !x.Result.IsError:
		if !strings.Contains(x.text(), "the one answer") || steps != 2 {
			d.t.Errorf("the program took %d steps, and the answer is %s", steps, x.raw)
		}
	case !d.c.kills():
		d.t.Errorf("the consult's worker lived, its program took %d steps, and the answer is %s", steps, x.raw)
	case x.code() != string(fault.OutcomeUnknown) && x.code() != string(fault.ProcessFailure):
		d.t.Errorf("the fault does not say that a process was killed: %s", x.raw)
	case strings.Contains(x.raw, string(fault.OutcomeUnknown)) && steps == 0 && d.c.early():
		d.t.Errorf("nothing was told to the program, and the answer is %s", x.raw)
	}
}

// kills reports whether a worker or its child dies.
func (c crash) kills() bool {
	kind, _, _ := strings.Cut(c.after, ".")
	if c.victim() == "engine" { // afterwards the outcome is in its file
		return kind == "worker" ||
			!slices.Contains([]string{"adapter.outcome", "adapter.answered", "adapter.cancelled"}, c.point)
	}
	return c.victim() == "worker" || c.victim() == "exec" || c.point == "file.half" && c.who == "" || kind == "worker"
}

// early reports whether the victim dies before the program can have got anything. Once the
// child is forked, the worker takes writes for it.
func (c crash) early() bool {
	return slices.Contains([]string{
		"worker.begun", "worker.detached", "worker.locked", "worker.checked", "worker.listening", "worker.starting",
		"file.half", "worker.forked", "exec.begun", "exec.told", "worker.attached", "adapter.begun",
	}, c.point) && c.after == "" && c.times < 2
}

// settled waits until no consult and no worker of the place is left.
func (p *place) settled(t *testing.T) {
	t.Helper()
	waitFor(t, "the consults' end", func() bool {
		left, _ := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*"))
		if len(left) > 0 { // to look at all processes of the machine is dear
			return false
		}
		for _, cmd := range p.processes() {
			if !strings.Contains(cmd, "holdline daemon") && !strings.Contains(cmd, " daemon ") {
				left = append(left, cmd)
			}
		}
		return len(left) == 0
	})
}

// newFile is a copy of the program that tests run.
const newFile = "holdline-too"

// link makes one of the programs the installed one.
func (p *place) link(name string) {
	p.t.Helper()
	next := p.bin() + ".new"
	err := os.MkdirAll(filepath.Dir(next), 0o700)
	if err == nil {
		err = os.Link(filepath.Join(programs, name), next)
	}
	if err == nil {
		err = os.Rename(next, p.bin())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// tidy fails the test if a file is left that only a running process needs.
func (p *place) tidy(t *testing.T) {
	t.Helper()
	p.untilEmpty(t)
	// The names of files that are not complete.
	half := regexp.MustCompile(`^\..*\.[0-9]+$|\.new$|^tmp$|^run\.json$|^probe$`)
	for _, root := range []string{"run", "home/.local"} {
		_ = filepath.WalkDir(filepath.Join(p.dir, root), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && half.MatchString(filepath.Base(path)) {
				t.Errorf("%s is left", path)
			}
			return nil
		})
	}
}
