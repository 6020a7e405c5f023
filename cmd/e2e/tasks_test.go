package e2e

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/mcp"
)

// task is a task as the extension's schema has it.
type task struct {
	ResultType, TaskID, Status, StatusMessage, CreatedAt, LastUpdatedAt string
	TTLMs, PollIntervalMs                                               int64
	Result                                                              *struct {
		ResultType string
		Content    []struct{ Text string }
		IsError    bool
	}
	Error *struct {
		Code    int
		Message string
		Data    struct{ Fault struct{ Code string } }
	}
	InputRequests map[string]struct {
		Method string
		Params struct{ Token, Message string }
	}
}

// tasky begins a request of a modern client that declares the extension for tasks.
func (a *agent) tasky(method string, params map[string]any) int {
	a.t.Helper()
	return a.begin(method, modernly(params, mcp.MetaCapabilities,
		map[string]any{"extensions": map[string]any{mcp.Tasks: map[string]any{}}}))
}

// consultTask asks for a consult, and returns the task that it becomes.
func (a *agent) consultTask(prompt string) task {
	a.t.Helper()
	x := a.wait(a.tasky("tools/call", map[string]any{
		"name": "consult", "arguments": map[string]any{"prompt": prompt, "wait_s": 60, "render": "json"},
	}))
	got := a.taskOf(x)
	if got.ResultType != "task" || got.Status != "working" || got.TTLMs != 24*60*60*1000 || got.PollIntervalMs != 2000 ||
		!regexp.MustCompile("^[0-9a-f]{32}$").MatchString(got.TaskID) {
		a.t.Fatalf("the call returns %s", x.raw)
	}
	return got
}

// taskSchema is the shape of a task in the extension's schema, which is closed. A result says in
// addition what kind it is.
const taskSchema = `{
	"type": "object",
	"required": ["taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"],
	"additionalProperties": false,
	"properties": {
		"resultType": {"enum": ["task", "complete"]},
		"_meta": {"type": "object"},
		"taskId": {"type": "string", "minLength": 1},
		"status": {"enum": ["working", "input_required", "completed", "failed", "cancelled"]},
		"statusMessage": {"type": "string"},
		"createdAt": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$"},
		"lastUpdatedAt": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$"},
		"ttlMs": {"type": ["integer", "null"], "minimum": 0},
		"pollIntervalMs": {"type": "integer", "minimum": 0},
		"result": {"type": "object", "required": ["content"], "properties": {"content": {"type": "array"}}},
		"error": {
			"type": "object", "required": ["code", "message"],
			"properties": {"code": {"type": "integer"}, "message": {"type": "string"}}
		},
		"inputRequests": {"type": "object", "minProperties": 1, "additionalProperties": {
			"type": "object", "required": ["method", "params"], "additionalProperties": false,
			"properties": {"method": {"type": "string"}, "params": {"type": "object"}}
		}}
	},
	"allOf": [
		{
			"if": {"properties": {"status": {"const": "completed"}}},
			"then": {"required": ["result"]}, "else": {"properties": {"result": false}}
		},
		{
			"if": {"properties": {"status": {"const": "failed"}}},
			"then": {"required": ["error"]}, "else": {"properties": {"error": false}}
		},
		{
			"if": {"properties": {"status": {"const": "input_required"}}},
			"then": {"required": ["inputRequests"]}, "else": {"properties": {"inputRequests": false}}
		}
	]
}`

// doneSchema is the shape of the answers to tasks/cancel and tasks/update.
const doneSchema = `{
	"type": "object", "required": ["resultType"], "additionalProperties": false,
	"properties": {"resultType": {"const": "complete"}, "_meta": {"type": "object"}}
}`

// taskShape and doneShape check values against the two. The other processes that the test binary
// plays need neither.
var taskShape, doneShape = shape(taskSchema), shape(doneSchema)

// shape returns a function that returns what checks values against a schema.
func shape(schema string) func() *jsonschema.Resolved {
	return sync.OnceValue(func() *jsonschema.Resolved {
		r, err := tool.Compile(json.RawMessage(schema), nil)
		if err != nil {
			panic(err)
		}
		return r
	})
}

// shaped checks the result or the params of a message against a schema, and returns them.
func (a *agent) shaped(x answer, shape func() *jsonschema.Resolved) json.RawMessage {
	a.t.Helper()
	var m struct{ Result, Params json.RawMessage }
	decode(a.t, x.raw, &m)
	if m.Result == nil {
		m.Result = m.Params
	}
	var v any
	decode(a.t, string(m.Result), &v)
	if err := shape().Validate(v); err != nil {
		a.t.Errorf("%v in %s", err, x.raw)
	}
	return m.Result
}

// TestTaskShape checks that the schema with which the tests of tasks check every message finds what
// is wrong with one.
func TestTaskShape(t *testing.T) {
	const common = `"taskId":"t","createdAt":"2026-01-02T03:04:05.000Z","lastUpdatedAt":"2026-01-02T03:04:05.000Z","ttlMs":1`
	for text, good := range map[string]bool{
		`{"status":"working",` + common + `}`:                                                         true,
		`{"status":"working","resultType":"task",` + common + `}`:                                     true,
		`{"status":"working","result":{"content":[]},` + common + `}`:                                 false,
		`{"status":"working","ttl":1,` + common + `}`:                                                 false,
		`{"status":"working","taskId":"t"}`:                                                           false,
		`{"status":"done",` + common + `}`:                                                            false,
		`{"status":"completed","result":{"content":[]},` + common + `}`:                               true,
		`{"status":"completed",` + common + `}`:                                                       false,
		`{"status":"failed","error":{"code":-1,"message":"m"},` + common + `}`:                        true,
		`{"status":"failed",` + common + `}`:                                                          false,
		`{"status":"input_required","inputRequests":{"0":{"method":"m","params":{}}},` + common + `}`: true,
		`{"status":"input_required","inputRequests":{"0":{"method":"m"}},` + common + `}`:             false,
	} {
		var v any
		decode(t, text, &v)
		if err := taskShape().Validate(v); (err == nil) != good {
			t.Errorf("%s: %v, want it to be good: %v", text, err, good)
		}
	}
}

// taskOf returns the task in an answer or a notification, which must have the shape that the
// extension's schema requires.
func (a *agent) taskOf(x answer) task {
	a.t.Helper()
	if x.Error != nil {
		a.t.Fatalf("no task: %s", x.raw)
	}
	var got task
	decode(a.t, string(a.shaped(x, taskShape)), &got)
	for _, at := range []string{got.CreatedAt, got.LastUpdatedAt} {
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			a.t.Errorf("%v in %s", err, x.raw)
		}
	}
	if x.Method != "" && got.ResultType != "" {
		a.t.Errorf("a notification is no result: %s", x.raw)
	}
	return got
}

// getTask asks for a task.
func (a *agent) getTask(id string) task {
	a.t.Helper()
	x := a.wait(a.tasky("tasks/get", map[string]any{"taskId": id}))
	got := a.taskOf(x)
	if got.ResultType != "complete" || got.TaskID != id {
		a.t.Errorf("tasks/get returns %s", x.raw)
	}
	return got
}

// untilTask asks for a task until it has ended.
func (a *agent) untilTask(t *testing.T, id string) (got task) {
	t.Helper()
	waitFor(t, "the end of a task", func() bool {
		got = a.getTask(id)
		return got.Status != "working" && got.Status != "input_required"
	})
	return got
}

// notified reads lines until a notification of a task with that status.
func (a *agent) notified(status string) task {
	a.t.Helper()
	var got task
	a.until(func(x *answer) bool {
		if x.Method == "notifications/tasks" {
			got = a.taskOf(*x)
		}
		return got.Status == status
	})
	return got
}

// TestDaemonKilledWithoutChange_TaskSubscriberToldNothing kills the daemon beside a client that is notified of a
// task, while that runs and after it has ended. The client is told nothing twice: neither what its subscription
// is for, nor how the task stands.
func TestDaemonKilledWithoutChange_TaskSubscriberToldNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	last, open := p.hold(t, "last")
	p.daemon()
	a := p.agent("--identity", "a")
	id := a.consultTask(claudetest.Prompt("x", last, claudetest.Say("said"))).TaskID
	a.tasky("subscriptions/listen", map[string]any{"notifications": map[string]any{"taskIds": []string{id}}})
	told, before, ended := 0, "", false
	hear := func(x *answer) {
		if x.Method == acknowledged {
			told++
		}
		if x.Method == "notifications/tasks" {
			got := a.taskOf(*x)
			if now := got.Status + " " + got.StatusMessage; now == before {
				t.Errorf("told twice that the task is %s", now)
			} else {
				before = now
			}
			ended = ended || got.Status == "completed"
		}
	}
	until := func(is func(x *answer) bool) {
		a.until(func(x *answer) bool {
			hear(x)
			return is(x)
		})
	}
	until(func(*answer) bool { return strings.HasPrefix(before, "working") })
	pid := p.pid(0)
	kills := func() {
		for range 10 {
			kill9(t, pid)
			pid = p.pid(pid)
			get := a.tasky("tasks/get", map[string]any{"taskId": id})
			until(func(x *answer) bool { return x.answers(get) })
		}
	}
	kills()
	open()
	if !ended {
		until(func(*answer) bool { return ended })
	}
	kills()
	if told != 1 {
		t.Errorf("the subscription was acknowledged %d times, want once", told)
	}
	a.rest()
}

// TestConsultTask asks for consults as tasks. A task survives the daemon, and what it came to is
// the answer of the consult. Nobody else sees it, and a client that does not declare the
// extension sees none of it.
func TestConsultTask(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	last, open := p.hold(t, "last")
	daemon := p.daemon()
	a := p.agent("--no-autostart", "--identity", "a")
	if x := a.wait(a.tasky("server/discover", map[string]any{})); !strings.Contains(x.raw,
		`"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
		t.Errorf("server/discover returns %s", x.raw)
	}
	first := a.consultTask(claudetest.Prompt("x", last, claudetest.Say("the one answer")))
	id := first.TaskID
	listen := a.tasky("subscriptions/listen", map[string]any{
		"notifications": map[string]any{"taskIds": []string{id, "unknown"}},
	})
	a.until(func(x *answer) bool {
		return x.Method == "notifications/subscriptions/acknowledged" && strings.Contains(x.raw, `"taskIds":["`+id+`"]`)
	})
	a.notified("working")

	for _, method := range []string{"tasks/list", "tasks/result"} {
		if x := a.wait(a.tasky(method, map[string]any{"taskId": id})); x.Error == nil || x.Error.Code != -32601 {
			t.Errorf("%s returns %s", method, x.raw)
		}
	}
	b := p.agent("--no-autostart", "--identity", "b")
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		params := map[string]any{"taskId": id, "inputResponses": map[string]any{}}
		if x := b.wait(b.tasky(method, params)); x.Error == nil || x.Error.Code != -32602 {
			t.Errorf("%s of another identity returns %s", method, x.raw)
		}
		if x := b.ask(method, modernly(params)); x.Error == nil || x.Error.Code != -32601 {
			t.Errorf("%s of a client that declares nothing returns %s", method, x.raw)
		}
	}
	update := map[string]any{"taskId": id, "inputResponses": map[string]any{"x": map[string]any{}}}
	a.shaped(a.wait(a.tasky("tasks/update", update)), doneShape)

	kill9(t, daemon.Process.Pid)
	daemon = p.daemon()
	if got := a.getTask(id); got.Status != "working" || got.CreatedAt != first.CreatedAt {
		t.Errorf("at the next daemon the task is %+v", got)
	}
	open()
	note := a.notified("completed")
	got := a.untilTask(t, id)
	if got.Status != "completed" || got.Result.IsError || !strings.Contains(got.Result.Content[0].Text, "the one answer") ||
		note.Result.Content[0].Text != got.Result.Content[0].Text {
		t.Errorf("the task ends as %+v, the notification is %+v", got, note)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + strconv.Itoa(listen) + `}}`)
	a.shaped(a.wait(a.tasky("tasks/cancel", map[string]any{"taskId": id})), doneShape)
	kill9(t, daemon.Process.Pid)
	p.daemon()
	if again := a.getTask(id); again.Status != "completed" || again.LastUpdatedAt != got.LastUpdatedAt {
		t.Errorf("after another daemon the task is %+v, was %+v", again, got)
	}

	// A call that declares nothing is answered as ever.
	x := b.ask("tools/call", modernly(map[string]any{
		"name": "consult", "arguments": map[string]any{"prompt": claudetest.Prompt("x", claudetest.Say("said"))},
	}))
	if !strings.Contains(x.text(), "said") || strings.Contains(x.raw, "task") {
		t.Errorf("a client that declares nothing gets %s", x.raw)
	}
	bad := a.wait(a.tasky("tools/call", map[string]any{
		"name": "consult", "arguments": map[string]any{"prompt": "x", "engine": "none"},
	}))
	if strings.Contains(bad.raw, "taskId") || !bad.Result.IsError {
		t.Errorf("a bad call returns %s", bad.raw)
	}
	a.leave(exitFailure, exitNoDaemon, exitLost)
	b.leave(exitFailure, exitNoDaemon, exitLost)
}

// TestConsultTaskEnds checks how a task ends whose consult is cancelled, loses its worker, or is
// lost since the machine was started again.
func TestConsultTaskEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	a := p.agent("--no-autostart")
	hangs := claudetest.Prompt("x", claudetest.Step{Do: "ledger", Message: p.ledger()}, claudetest.Step{Do: "hang"})
	cancelled := a.consultTask(hangs).TaskID
	p.untilSteps(1)
	a.shaped(a.wait(a.tasky("tasks/cancel", map[string]any{"taskId": cancelled})), doneShape)
	if got := a.getTask(cancelled); got.Status != "cancelled" {
		t.Errorf("after tasks/cancel the task is %+v", got)
	}

	lost := a.consultTask(hangs).TaskID
	p.untilSteps(2)
	kill9(t, p.until("the worker is there", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 }).Workers[0].PID)
	got := a.untilTask(t, lost)
	if got.Status != "completed" || !got.Result.IsError {
		t.Errorf("without its worker the task is %+v", got)
	}

	rebooted := a.consultTask(hangs).TaskID
	p.untilSteps(3)
	s := p.until("its worker alone",
		func(s control.StatusAnswer) bool { return len(s.Workers) == 1 && s.Workers[0].ChildPID != 0 })
	for _, pid := range []int{a.cmd.Process.Pid, s.Daemon.PID, s.Workers[0].PID} {
		kill9(t, pid)
	}
	waitFor(t, "the end of the child", func() bool { return !alive(s.Workers[0].ChildPID) })
	p.reboot(t, 3)
	p.daemon()
	a = p.agent("--no-autostart")
	got = a.untilTask(t, rebooted)
	if got.Status != "completed" || !got.Result.IsError || !strings.Contains(got.Result.Content[0].Text, "outcome_unknown") {
		t.Errorf("after a reboot the task is %+v", got)
	}
	if got := a.getTask(cancelled); got.Status != "cancelled" {
		t.Errorf("after a reboot the cancelled task is %+v", got)
	}
	a.leave()
}

// TestConsultTaskCrashes kills the daemon before a client has its task, and as the task ends. The next daemon has the same task, which has run once.
func TestConsultTaskCrashes(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"consult.dir", "consult.queued", "consult.kept"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login().faults()
			p.dieAs(point, death{times: 1})
			a := p.agent()
			prompt, _ := p.slow(0.1)["prompt"].(string)
			got := a.untilTask(t, a.consultTask(prompt).TaskID)
			if !p.died(point) || got.Status != "completed" || !strings.Contains(got.Result.Content[0].Text, "the one answer") {
				t.Errorf("the task ends as %+v", got)
			}
			if steps := p.steps(); steps != 2 {
				t.Errorf("%d steps in a run of two", steps)
			}
			p.run("", "stop")
			p.settled(t)
		})
	}
}
