// Package tasks speaks the extension io.modelcontextprotocol/tasks of MCP 2026-07-28: a client
// that declares it gets a task in place of the answer to a long call, asks for that, cancels it,
// and may be notified of it. What a task does, and where it is kept, is the business of a [Store].
package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Status is where a task stands.
type Status string

// The statuses.
const (
	Working       Status = "working"
	InputRequired Status = "input_required"
	Completed     Status = "completed"
	Failed        Status = "failed" // the call had a JSON-RPC error, or what happened to it is not known
	Cancelled     Status = "cancelled"
)

// IsFinal reports whether a task with that status has ended.
func (s Status) IsFinal() bool { return s != Working && s != InputRequired }

const (
	// poll is how long a client should wait before it asks again, in milliseconds.
	poll = 2000
	// noteEvery is the pause between two notifications of a task that works.
	noteEvery = 5 * time.Second
	// maxWatched bounds the tasks of one subscription.
	maxWatched = 64
)

// How long a task is kept: from when it was asked for, at most, and after its end, at least.
const (
	keepTime  = 24 * time.Hour
	keepGrace = time.Hour
)

// TTL returns for how long after its beginning a task is kept that took so long, or has taken so
// long by now. age is that of the results that the configuration keeps.
func TTL(age, took time.Duration) time.Duration { return max(min(age, keepTime), took+keepGrace) }

// Asked is what a call for which a task was made must keep of how it was asked: the result of
// the task is the one that the call would have had.
type Asked struct {
	ID     string      `json:"id"` // of the task
	Render tool.Render `json:"render,omitempty"`
	Detail tool.Detail `json:"detail,omitempty"`
}

// Task is a task as a client sees it.
type Task struct {
	ResultType string          `json:"resultType,omitempty"` // must be the first member; see [Task.Created]
	ID         string          `json:"taskId"`
	Status     Status          `json:"status"`
	Message    string          `json:"statusMessage,omitempty"`
	CreatedAt  string          `json:"createdAt"`
	UpdatedAt  string          `json:"lastUpdatedAt"`
	TTL        int64           `json:"ttlMs"`
	Poll       int64           `json:"pollIntervalMs"`
	Result     json.RawMessage `json:"result,omitempty"` // of the call; only of a task that is completed
	Error      json.RawMessage `json:"error,omitempty"`  // of JSON-RPC; only of a task that has failed
	// Requests is what the server asks the client, by keys that [Store.UpdateTask] takes: an
	// object, only of a task that requires input.
	Requests json.RawMessage `json:"inputRequests,omitempty"`
}

// ID returns the id of the task for line n of a session. Who does not know the session cannot
// guess it. It depends on these two alone: it is the same after any crash.
func ID(session string, n int64) string {
	sum := sha256.Sum256([]byte("task:" + session + ":" + strconv.FormatInt(n, 10)))
	return hex.EncodeToString(sum[:])[:32]
}

// New returns a task that works. ttl counts from created.
func New(id, message string, created, updated time.Time, ttl time.Duration) *Task {
	return &Task{
		ID: id, Status: Working, Message: message, CreatedAt: stamp(created), UpdatedAt: stamp(updated),
		TTL: ttl.Milliseconds(), Poll: poll,
	}
}

// stamp returns a time as it stands in a task.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Created returns the result of a call for which the task was made.
func (t *Task) Created() (json.RawMessage, error) {
	its := *t
	its.ResultType = "task"
	return jsonrpc.Marshal(its)
}

// A Store has tasks. It shows a caller those that the caller may see; all others do not exist
// for it. Errors are faults, or [tool.ErrStopping].
type Store interface {
	// Task returns a task, nil if there is none. It blocks until the task has ended, asks its
	// client something, or wait is over. fetched says that the client gets it as the answer to a
	// request of its own.
	Task(ctx context.Context, c *tool.Caller, id string, wait time.Duration, fetched bool) (*Task, error)
	// CancelTask ends a task that works, and reports whether it exists. It returns
	// once no crash of the daemon can lose the cancellation.
	CancelTask(ctx context.Context, c *tool.Caller, id string) (known bool, err error)
	// UpdateTask takes the client's answers to what a task has asked, an object, and reports
	// whether there is such a task. It returns once no crash of the daemon can lose them, and
	// ignores keys that are not asked.
	UpdateTask(ctx context.Context, c *tool.Caller, id string, answers json.RawMessage) (known bool, err error)
}

// Stores are the tasks of several stores.
type Stores []Store

// Task implements [Store].
func (all Stores) Task(
	ctx context.Context, c *tool.Caller, id string, wait time.Duration, fetched bool,
) (*Task, error) {
	for _, s := range all {
		if t, err := s.Task(ctx, c, id, wait, fetched); t != nil || err != nil {
			return t, err
		}
	}
	return nil, nil //nolint:nilnil // there is no such task
}

// CancelTask implements [Store].
func (all Stores) CancelTask(ctx context.Context, c *tool.Caller, id string) (known bool, err error) {
	for _, s := range all {
		if known, err = s.CancelTask(ctx, c, id); known || err != nil {
			break
		}
	}
	return known, err
}

// UpdateTask implements [Store].
func (all Stores) UpdateTask(
	ctx context.Context, c *tool.Caller, id string, answers json.RawMessage,
) (known bool, err error) {
	for _, s := range all {
		if known, err = s.UpdateTask(ctx, c, id, answers); known || err != nil {
			break
		}
	}
	return known, err
}

// Methods returns the requests of the extension.
func Methods() []string { return []string{mcp.TasksGet, mcp.TasksUpdate, mcp.TasksCancel} }

// Answer returns the answer to a request of the extension: its result, or an error.
func Answer(ctx context.Context, s Store, c tool.Caller, method string, params json.RawMessage) any {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.InvalidInput, fault.Protocol, method, format, args...)
	}
	id, ok := mcp.String(jsonrpc.Field(params, "taskId"))
	if !ok {
		return invalid("params.taskId must be a string")
	}
	var t *Task
	var err error
	switch method {
	case mcp.TasksCancel:
		ok, err = s.CancelTask(ctx, &c, id)
	case mcp.TasksUpdate:
		given := jsonrpc.Field(params, "inputResponses")
		if len(given) == 0 || given[0] != '{' {
			return invalid("params.inputResponses must be an object")
		}
		ok, err = s.UpdateTask(ctx, &c, id, given)
	default:
		t, err = s.Task(ctx, &c, id, 0, true)
		ok = t != nil
	}
	switch {
	case err != nil:
		return err
	case !ok:
		return invalid("there is no such task, or it is kept no more")
	case method == mcp.TasksGet:
		return t
	}
	return json.RawMessage(`{}`)
}

// Wanted returns the tasks of which a subscription wants to be notified, from its member
// taskIds, and a fault if there are too many.
func Wanted(notifications json.RawMessage) ([]string, *fault.Record) {
	raw := jsonrpc.Field(notifications, "taskIds")
	if raw == nil {
		return nil, nil
	}
	var ids []string
	if json.Unmarshal(raw, &ids) != nil {
		return nil, fault.New(fault.InvalidInput, fault.Protocol, mcp.Listen,
			"params.notifications.taskIds must be a list of strings")
	}
	if len(ids) > maxWatched {
		return nil, fault.New(fault.ResourceExhausted, fault.Protocol, mcp.Listen,
			"params.notifications.taskIds names more than %d tasks: ask for fewer", maxWatched).
			WithLimit("tasks", maxWatched, len(ids))
	}
	return ids, nil
}

// Known returns those of the tasks that there are. An error is [tool.ErrStopping] or a fault.
func Known(ctx context.Context, s Store, c tool.Caller, ids []string) ([]string, error) {
	var known []string
	for _, id := range ids {
		t, err := s.Task(ctx, &c, id, 0, false)
		if err != nil {
			return nil, err
		}
		if t != nil {
			known = append(known, id)
		}
	}
	return known, nil
}

// Watch notifies a client of a task: how it stands now, then when its message has changed, but
// at most every few seconds, and at once when it requires input or has ended. notify gets what the client is
// told by that, and skips what it was told last. connected returns a channel that is closed when the client
// connects the next time: then Watch calls notify again for the end, since a notification may be lost with a
// connection. It blocks until ctx is done or there is no such task any more.
func Watch(ctx context.Context, s Store, c tool.Caller, id string,
	connected func() <-chan struct{}, notify func(state string, params json.RawMessage),
) {
	for wait := time.Duration(0); ; wait = noteEvery {
		next := connected()
		t, err := s.Task(ctx, &c, id, wait, false)
		if err != nil || t == nil || ctx.Err() != nil {
			return
		}
		params, err := jsonrpc.Marshal(t)
		if err != nil { // its result is JSON
			return
		}
		notify(string(t.Status)+t.Message+string(t.Requests), params)
		if t.Status.IsFinal() {
			select {
			case <-next:
			case <-ctx.Done():
				return
			}
		}
	}
}
