package e2e

import (
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
	"holdline/protocol/mcp"
)

// soon is a holdline object with which calls become tasks at once. One that has to become a task waits for a
// latch: on a busy machine the daemon may be late.
func soon(scope string, more ...any) hosting {
	h := hosting{"scope": scope, "task_after": "50ms"}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i].(string)] = more[i+1]
	}
	return h
}

// tasking writes a configuration with the tool server, whose calls become tasks at once.
func (p *place) tasking(scope string, more ...any) *place {
	p.t.Helper()
	return p.configure(map[string]any{"tools": p.toolsEntry(soon(scope, more...))})
}

// taskAgent returns an agent of that identity, for which the tool server is ready.
func (p *place) taskAgent(args ...string) *agent {
	p.t.Helper()
	a := p.agent(args...)
	a.wait(a.tasky("server/discover", map[string]any{}))
	p.untilReady("tools")
	return a
}

// callTask calls a tool of a hosted server, which becomes a task.
func (a *agent) callTask(name string, args map[string]any) task {
	a.t.Helper()
	return a.toBeTask(a.tasky("tools/call", map[string]any{"name": name, "arguments": args}))
}

// letTask calls a tool, and lets the call end once it is a task: with a time of its own it might end before the
// daemon of a busy machine makes it one.
func (p *place) letTask(a *agent, name, token string) task {
	p.t.Helper()
	got := a.callTask(name, map[string]any{"token": token, "until": p.latch(token)})
	p.letThrough(token)
	return got
}

// toBeTask waits for the answer to a call, which must be a task.
func (a *agent) toBeTask(id int) task {
	a.t.Helper()
	x := a.wait(id)
	got := a.taskOf(x)
	if got.ResultType != "task" || got.Status != "working" || got.TTLMs < time.Hour.Milliseconds() {
		a.t.Fatalf("the call returns %s", x.raw)
	}
	return got
}

// failedBy returns the code of the fault by which a task has failed, or what it is instead.
func (got task) failedBy() string {
	if got.Status != "failed" || got.Error == nil {
		return got.Status
	}
	return got.Error.Data.Fault.Code
}

// effect returns the arguments of a call that takes so many milliseconds.
func effectArgs(token string, ms int) map[string]any { return map[string]any{"token": token, "ms": ms} }

// TestServerTask has a call of a hosted server become a task, which outlives its session and the
// daemon. Nobody else sees it, and a client that does not declare the extension gets no task.
func TestServerTask(t *testing.T) {
	t.Parallel()
	// A short call has an answer before it becomes a task, on a busy machine, too.
	p := newPlace(t).login().tasking("project", "task_after", "3s")
	daemon := p.daemon()
	a, b := p.taskAgent("--no-autostart", "--identity", "a"), p.agent("--no-autostart", "--identity", "b")
	first := a.callTask("tools__effect", map[string]any{"token": "one", "until": p.latch("one")})
	listen := a.tasky("subscriptions/listen",
		map[string]any{"notifications": map[string]any{"taskIds": []string{first.TaskID}}})
	a.notified("working")
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		params := map[string]any{"taskId": first.TaskID, "inputResponses": map[string]any{}}
		if x := b.wait(b.tasky(method, params)); x.Error == nil || x.Error.Code != -32602 {
			t.Errorf("%s of another identity returns %s", method, x.raw)
		}
	}
	for _, method := range []string{"tasks/list", "tasks/result"} {
		if x := a.wait(a.tasky(method, map[string]any{"taskId": first.TaskID})); x.Error == nil || x.Error.Code != -32601 {
			t.Errorf("%s returns %s", method, x.raw)
		}
	}
	kill9(t, daemon.Process.Pid)
	daemon = p.daemon()
	if got := a.getTask(first.TaskID); got.Status != "working" || got.CreatedAt != first.CreatedAt {
		t.Errorf("at the next daemon the task is %+v", got)
	}
	p.letThrough("one")
	if got := a.notified("completed"); got.Result.Content[0].Text != "one" || got.Result.ResultType != "complete" {
		t.Errorf("the notification is %+v", got)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + strconv.Itoa(listen) + `}}`)
	if got := a.getTask(first.TaskID); got.Status != "completed" || got.Result.IsError {
		t.Errorf("the task ends as %+v", got)
	}
	if begun, ended := p.effectsOf("begin one"), p.effectsOf("end one"); begun != 1 || ended != 1 {
		t.Errorf("the call was begun %d times, ended %d times", begun, ended)
	}

	// A client that declares nothing waits, and gets the answer; so does a short call.
	x := b.ask("tools/call", modernly(map[string]any{"name": "tools__effect", "arguments": effectArgs("two", 200)}))
	if x.text() != "two" || strings.Contains(x.raw, "task") {
		t.Errorf("a client that declares nothing gets %s", x.raw)
	}
	if x := a.wait(a.tasky("tools/call", map[string]any{
		"name": "tools__effect", "arguments": effectArgs("three", 0),
	})); x.text() != "three" {
		t.Errorf("a short call returns %s", x.raw)
	}

	// The session ends, then the daemon. Another session of the identity has the task all the same.
	second := a.callTask("tools__effect", map[string]any{"token": "four", "until": p.latch("four")})
	a.rest(listen)
	kill9(t, daemon.Process.Pid)
	p.daemon()
	p.letThrough("four")
	a = p.agent("--no-autostart", "--identity", "a")
	if got := a.untilTask(t, second.TaskID); got.Status != "completed" || got.Result.Content[0].Text != "four" {
		t.Errorf("the task of a session that has ended is %+v", got)
	}
	if got := a.getTask(first.TaskID); got.Status != "completed" {
		t.Errorf("the first task is %+v", got)
	}
	a.leave(exitFailure, exitNoDaemon, exitLost)
	b.leave(exitFailure, exitNoDaemon, exitLost)
}

// TestServerTaskEnds checks how tasks end that are cancelled, run out of time, or lose their
// server, their worker, or all by another start of the machine.
func TestServerTaskEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().tasking("project", "timeout", "10s", "max_restarts", 1000)
	daemon := p.daemon()
	a := p.taskAgent("--no-autostart")
	cancelled := a.callTask("tools__hang", map[string]any{"token": "c"}).TaskID
	a.shaped(a.wait(a.tasky("tasks/cancel", map[string]any{"taskId": cancelled})), doneShape)
	if got := a.getTask(cancelled); got.Status != "cancelled" {
		t.Errorf("after tasks/cancel the task is %+v", got)
	}
	p.untilEffect("cancelled c")

	again := a.callTask("tools__hang", map[string]any{"token": "again"}).TaskID
	kill9(t, daemon.Process.Pid) // the next daemon tells the server
	p.daemon()
	a.wait(a.tasky("tasks/cancel", map[string]any{"taskId": again}))
	p.untilEffect("cancelled again")

	late := a.callTask("tools__hang", map[string]any{"token": "late"}).TaskID
	if got := a.untilTask(t, late); got.failedBy() != "timeout" {
		t.Errorf("without an answer in time the task is %+v", got)
	}

	worker := func() control.Worker {
		return p.until("a worker", func(s control.StatusAnswer) bool { return child(s, "tools") != 0 }).Workers[0]
	}
	for token, pid := range map[string]func() int{
		"server": func() int { return worker().ChildPID }, "worker": func() int { return worker().PID },
	} {
		once := a.callTask("tools__effect", effectArgs(token, 60_000)).TaskID
		again := token + " twice"
		twice := a.callTask("tools__look", map[string]any{"token": again, "until": p.latch(again)}).TaskID
		kill9(t, pid())
		p.letThrough(again)
		if got := a.untilTask(t, once); got.failedBy() != "outcome_unknown" {
			t.Errorf("without its %s the task is %+v", token, got)
		}
		if got := a.untilTask(t, twice); got.Status != "completed" || got.Result.Content[0].Text != token+" twice" {
			t.Errorf("without its %s the task of a tool that changes nothing is %+v", token, got)
		}
	}

	rebooted := a.callTask("tools__effect", effectArgs("rebooted", 60_000)).TaskID
	s := p.status()
	for _, pid := range []int{a.cmd.Process.Pid, s.Daemon.PID, worker().PID} {
		kill9(t, pid)
	}
	waitFor(t, "the end of the server", func() bool { return !alive(s.Workers[0].ChildPID) })
	p.reboot(t, 0)
	p.daemon()
	a = p.agent("--no-autostart")
	if got := a.getTask(rebooted); got.failedBy() != "outcome_unknown" {
		t.Errorf("after a reboot the task is %+v", got)
	}
	if got := a.getTask(cancelled); got.Status != "cancelled" {
		t.Errorf("after a reboot the cancelled task is %+v", got)
	}
	a.leave()
}

// TestServerTaskKilledTogether kills daemon and worker of a task, in both orders. The next daemon
// says that the outcome is not known, and makes again what may be made again.
func TestServerTaskKilledTogether(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"daemon first": {0, 1}, "worker first": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login().tasking("project")
			daemon := p.daemon()
			a := p.taskAgent("--no-autostart")
			once := a.callTask("tools__effect", effectArgs("once", 60_000)).TaskID
			twice := a.callTask("tools__look", map[string]any{"token": "twice", "until": p.latch("twice")}).TaskID
			pids := []int{daemon.Process.Pid, p.status().Workers[0].PID}
			for _, i := range order {
				kill9(t, pids[i])
			}
			p.letThrough("twice")
			p.daemon()
			if got := a.untilTask(t, once); got.failedBy() != "outcome_unknown" {
				t.Errorf("the task is %+v", got)
			}
			if got := a.untilTask(t, twice); got.Status != "completed" || got.Result.Content[0].Text != "twice" {
				t.Errorf("the task of a tool that changes nothing is %+v", got)
			}
			if n := p.effectsOf("begin once"); n != 1 {
				t.Errorf("the call was begun %d times", n)
			}
			a.leave(exitFailure, exitNoDaemon, exitLost)
		})
	}
}

// taskCrashes are the deaths of [TestServerTaskCrashes].
var taskCrashes = []crash{
	{point: "task.begun"},
	{point: "task.begun", times: 2},
	{point: "task.recorded"},
	{point: "task.recorded", times: 2},
	{point: "task.ended"},
	{point: "task.ended", times: 2},
	{point: "hosted.answered", after: "task.recorded"},
	{point: "hosted.forgot", after: "task.recorded"},
	{point: "hosted.adopted", after: "task.recorded"},
	{point: "session.queued", after: "task.recorded"},
	{point: "worker.output", after: "task.recorded"},
	{point: "worker.attached", after: "task.recorded"},
}

// TestServerTaskCrashes kills a process at each step in which a call becomes a task and ends.
// The call is made once, and its client has its answer.
func TestServerTaskCrashes(t *testing.T) {
	t.Parallel()
	for _, c := range taskCrashes {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login().tasking("project").windows(5).faults()
			a := p.taskAgent("--identity", "a")
			if c.after != "" {
				p.dieAs(c.after, death{})
			}
			p.dieAs(c.point, death{times: c.times, after: c.after, deaths: c.deaths()})
			var ids []int
			for _, token := range []string{"one", "two"} {
				ids = append(ids, a.tasky("tools/call",
					map[string]any{"name": "tools__effect", "arguments": effectArgs(token, 1500)}))
			}
			lost := strings.HasPrefix(c.point, "worker.")
			answers := map[int]answer{}
			a.until(func(x *answer) bool {
				if id, ok := x.ID.(float64); ok {
					answers[int(id)] = *x
				}
				return len(answers) == len(ids)
			})
			for i, token := range []string{"one", "two"} {
				x := answers[ids[i]]
				if x.text() == token || lost && x.code() == "outcome_unknown" {
					continue // it ended before it was a task
				}
				got := a.untilTask(t, a.taskOf(x).TaskID)
				switch {
				case lost && got.failedBy() == "outcome_unknown":
				case got.Status != "completed" || got.Result.Content[0].Text != token:
					t.Errorf("the task of %s ends as %+v", token, got)
				}
			}
			for _, token := range []string{"one", "two"} {
				if n := p.effectsOf("begin " + token); n != 1 {
					t.Errorf("%s was begun %d times", token, n)
				}
			}
			waitFor(t, "the death at "+c.point, func() bool { return p.died(c.point) })
			a.rest()
			p.settled(t)
		})
	}
}

// answerTask answers what a task asks.
func (a *agent) answerTask(id, key, answer string) {
	a.t.Helper()
	a.shaped(a.wait(a.tasky("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{
		key: map[string]any{"action": "accept", "content": map[string]any{"word": answer}},
	}})), doneShape)
}

// TestDaemonKilledWhileTwoTasksAsk_EachHasItsOwnQuestion checks that of two tasks with an open question
// each shows its own, before a kill and right behind it, and takes the answer to it at once.
func TestDaemonKilledWhileTwoTasksAsk_EachHasItsOwnQuestion(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().tasking("session")
	daemon := p.daemon()
	a := p.taskAgent("--no-autostart")
	ids, keys := map[string]string{}, map[string]string{}
	shown := func(token string) string {
		got := a.getTask(ids[token])
		if got.Status != "input_required" || len(got.InputRequests) != 1 {
			return ""
		}
		for key := range got.InputRequests {
			return key
		}
		return ""
	}
	for _, token := range []string{"one", "two"} {
		params := modernly(map[string]any{
			"name": "tools__ask", "arguments": map[string]any{
				"token": token, "method": "elicitation/create", "before": 2000, "ms": 100,
			},
		}, mcp.MetaCapabilities, map[string]any{
			"elicitation": map[string]any{}, "extensions": map[string]any{mcp.Tasks: map[string]any{}},
		})
		ids[token] = a.toBeTask(a.begin("tools/call", params)).TaskID
		waitFor(t, "the question of "+token, func() bool { return shown(token) != "" })
		keys[token] = shown(token)
	}
	if shown("one") != keys["one"] || keys["one"] == keys["two"] {
		t.Errorf("the first task asks %s first, then %s, the second one %s", keys["one"], shown("one"), keys["two"])
	}
	kill9(t, daemon.Process.Pid)
	daemon = p.daemon()
	for token, key := range keys {
		if got := shown(token); got != key {
			t.Errorf("right behind the kill, task %s asks %q, not %s", token, got, key)
		}
		a.answerTask(ids[token], key, token)
		if got := a.getTask(ids[token]); got.Status == "input_required" {
			t.Errorf("task %s still asks after its answer", token)
		}
	}
	kill9(t, daemon.Process.Pid)
	p.daemon()
	for token, id := range ids {
		got := a.untilTask(t, id)
		want := `{"word":"` + token + `"}`
		if got.Status != "completed" || !strings.Contains(got.Result.Content[0].Text, want) {
			t.Errorf("task %s ends as %+v", token, got)
		}
		if asked, told := p.effectsOf("asked "+token), p.effectsOf("told "+token); asked != 1 || told != 1 {
			t.Errorf("%s: begun %d times, told %d times", token, asked, told)
		}
	}
	a.leave(exitFailure, exitNoDaemon, exitLost)
}

// TestTaskCancelledRightBehindAKill_ServerHearsOfIt checks that a task that asks its client something
// and is cancelled right behind a kill, is so at once, that its server hears of that, and that an
// answer that comes afterwards changes nothing.
func TestTaskCancelledRightBehindAKill_ServerHearsOfIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().tasking("session")
	daemon := p.daemon()
	a := p.taskAgent("--no-autostart")
	id := a.toBeTask(a.begin("tools/call", modernly(map[string]any{
		"name":      "tools__ask",
		"arguments": map[string]any{"token": "t", "method": "elicitation/create", "before": 2000, "ms": 100},
	}, mcp.MetaCapabilities, map[string]any{
		"elicitation": map[string]any{}, "extensions": map[string]any{mcp.Tasks: map[string]any{}},
	}))).TaskID
	var key string
	waitFor(t, "the question", func() bool {
		for key = range a.getTask(id).InputRequests {
		}
		return key != ""
	})
	kill9(t, daemon.Process.Pid)
	daemon = p.daemon()
	a.shaped(a.wait(a.tasky("tasks/cancel", map[string]any{"taskId": id})), doneShape)
	a.answerTask(id, key, "late")
	if got := a.getTask(id); got.Status != "cancelled" {
		t.Errorf("the task is %+v", got)
	}
	p.untilEffect("cancelled t")
	kill9(t, daemon.Process.Pid)
	p.daemon()
	if got := a.getTask(id); got.Status != "cancelled" || p.effectsOf("told t") != 0 {
		t.Errorf("the task is %+v, the server was told %d times", got, p.effectsOf("told t"))
	}
	a.leave(exitFailure, exitNoDaemon, exitLost)
}

// TestServerTaskAsks checks that a server may ask the client of a task, that the client is asked
// once in any number of daemons, and that a key counts once.
func TestServerTaskAsks(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{
		"sdk": map[string]any{
			"command": filepath.Join(programs, "sdkserver"), "args": []string{"modern"}, "holdline": soon("project"),
		},
		"tools": p.toolsEntry(soon("session")),
	})
	caps := func(params map[string]any) map[string]any {
		return modernly(params, mcp.MetaCapabilities, map[string]any{
			"elicitation": map[string]any{}, "extensions": map[string]any{mcp.Tasks: map[string]any{}},
		})
	}
	daemon := p.daemon()
	a := p.taskAgent("--no-autostart")
	p.untilReady("sdk")
	for _, c := range []struct {
		tool, key string
		args      map[string]any
	}{
		{"sdk__inquire", "0/word", map[string]any{"word": "late"}},
		{"tools__ask", "", map[string]any{"token": "t", "method": "elicitation/create", "before": 2000, "ms": 300}},
	} {
		id := a.toBeTask(a.begin("tools/call", caps(map[string]any{"name": c.tool, "arguments": maps.Clone(c.args)}))).TaskID
		var got task
		asked := func() string {
			waitFor(t, "the question of "+c.tool, func() bool {
				got = a.getTask(id)
				return got.Status == "input_required"
			})
			for key := range got.InputRequests {
				return key
			}
			return ""
		}
		key := asked()
		if len(got.InputRequests) != 1 || got.InputRequests[key].Method != "elicitation/create" ||
			c.key != "" && key != c.key {
			t.Errorf("%s asks %+v", c.tool, got.InputRequests)
		}
		kill9(t, daemon.Process.Pid)
		daemon = p.daemon()
		if asked() != key {
			t.Errorf("%s: the next daemon asks %+v", c.tool, got.InputRequests)
		}
		a.answerTask(id, "another", "wrong")
		a.answerTask(id, key, "right")
		kill9(t, daemon.Process.Pid)
		daemon = p.daemon()
		a.answerTask(id, key, "late")
		if got = a.untilTask(t, id); got.Status != "completed" || !strings.Contains(got.Result.Content[0].Text, "right") {
			t.Errorf("%s ends as %+v", c.tool, got)
		}
	}
	if asked, told := p.effectsOf("asked t"), p.effectsOf("told t"); asked != 1 || told != 1 {
		t.Errorf("the legacy server has asked %d times, and was told %d times", asked, told)
	}
	a.leave(exitFailure, exitNoDaemon, exitLost)
}

// answerCrashes are the deaths of [TestTaskAnswerOnDisk_ServerHasItOnce].
var answerCrashes = []crash{{point: "task.answered"}}

// TestTaskAnswerOnDisk_ServerHasItOnce kills the daemon when the answer to a task's question is on disk
// and the server does not have it yet. The next daemon gives it to the server, once, and the client's
// request succeeds.
func TestTaskAnswerOnDisk_ServerHasItOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().tasking("session").faults()
	p.daemon()
	a := p.taskAgent("--no-autostart")
	id := a.toBeTask(a.begin("tools/call", modernly(map[string]any{
		"name": "tools__ask", "arguments": map[string]any{"token": "t", "method": "elicitation/create", "before": 2000, "ms": 300},
	}, mcp.MetaCapabilities, map[string]any{
		"elicitation": map[string]any{}, "extensions": map[string]any{mcp.Tasks: map[string]any{}},
	}))).TaskID
	var key string
	waitFor(t, "the question", func() bool {
		for key = range a.getTask(id).InputRequests {
			return true
		}
		return false
	})
	point := answerCrashes[0].point
	p.dieAs(point, death{})
	update := a.tasky("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{
		key: map[string]any{"action": "accept", "content": map[string]any{"word": "right"}},
	}})
	waitFor(t, "the death", func() bool { return p.died(point) })
	p.daemon()
	a.shaped(a.wait(update), doneShape)
	if got := a.untilTask(t, id); got.Status != "completed" || !strings.Contains(got.Result.Content[0].Text, "right") {
		t.Errorf("the task ends as %+v", got)
	}
	if asked, told := p.effectsOf("asked t"), p.effectsOf("told t"); asked != 1 || told != 1 {
		t.Errorf("the server has asked %d times, and was told %d times", asked, told)
	}
	a.leave(exitFailure, exitNoDaemon, exitLost)
}
