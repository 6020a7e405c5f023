package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/detached"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A call of a client that takes tasks is detached if it has no answer in time: the client
// gets a task in place of the answer, and the store of tasks owns the call. The server
// notices nothing. The same goroutine goes on with the call, with its turn, its breaker and
// its limits, and tells the store what it has come to.
//
// The order is: the task's file, the line in the worker's journal, the claim, the client. At
// the end it is the task's file, then the record of the call. Whatever dies in between, the
// next daemon finds the one that was written, and goes on from there.

// A detachment is how a call becomes a task. The goroutine that makes the call owns it, but
// for the channel.
type detachment struct {
	id   string
	due  time.Time            // when the call is to be detached
	done bool                 // it is
	told chan json.RawMessage // receives the result that tells the client of the task
	end  func(cause error)    // ends the call
	// follow makes the call end when its client leaves, until leave is called. That returns
	// false if the client has left.
	follow func() (leave func() bool)
	leave  func() bool
}

// errCancelled is the cause of the end of a task's call that was cancelled.
var errCancelled = errors.New("the task was cancelled")

// isDetached reports whether the store of tasks owns the call of the request.
func (r *request) isDetached() bool { return r.task != nil && r.task.done }

// handleOrDetach makes a call like [request.handle]. If it takes too long and the client takes
// tasks, it returns a task, and a goroutine of the hub goes on with the call.
func (r *request) handleOrDetach(ctx context.Context) (tool.RemoteResult, error) {
	if r.rc.Sent.IsZero() {
		r.rc.Sent = time.Now()
	}
	if r.Tasks == nil {
		return r.handle(ctx)
	}
	if r.rc.Replay {
		id := tasks.ID(r.rc.Caller.Session, r.rc.N)
		if created, err := r.createdBefore(id); created != nil || err != nil {
			return tool.RemoteResult{Result: created, Task: id}, err
		}
	}
	after := r.s.Entry().TaskAfter
	if !r.rc.TakesTask || after <= 0 || r.o.Method != mcp.ToolsCall {
		return r.handle(ctx)
	}
	id := tasks.ID(r.rc.Caller.Session, r.rc.N)
	life, end := context.WithCancelCause(r.hub.Life)
	follow := func() func() bool { return context.AfterFunc(ctx, func() { end(context.Cause(ctx)) }) }
	r.task = &detachment{
		id: id, due: r.rc.Sent.Add(after), told: make(chan json.RawMessage, 1), end: end,
		follow: follow, leave: follow(),
	}
	var res tool.RemoteResult
	var err error
	done := make(chan struct{})
	if !r.begin(func() {
		defer close(done)
		defer end(nil)
		if res, err = r.handle(life); err != nil && r.hub.Life.Err() != nil {
			err = tool.ErrStopping
		}
		if r.task.done {
			r.finish(life, res, err)
		}
	}) {
		end(nil)
		return tool.RemoteResult{}, tool.ErrStopping
	}
	select {
	case created := <-r.task.told:
		return tool.RemoteResult{Result: created, Task: id}, nil
	case <-done:
	}
	select {
	case created := <-r.task.told: // both at once
		return tool.RemoteResult{Result: created, Task: id}, nil
	default:
		return res, err
	}
}

// begin runs f in a goroutine of the hub. It returns false if the daemon stops.
func (r *request) begin(f func()) bool {
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	if r.hub.Closed {
		return false
	}
	r.hub.WG.Go(f)
	return true
}

// createdBefore returns the result that names the task of this line of the client, if there
// is one: its client asks again, since it has not read that. It returns nil if there is none.
func (r *request) createdBefore(id string) (json.RawMessage, error) {
	if t := r.Tasks.Told(&r.rc.Caller, id); t != nil {
		return t.Created()
	}
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	if c := r.callLocked(0); c != nil && c.Claim().IsDetached() {
		return nil, fault.New(fault.OutcomeUnknown, fault.Host, r.o.Operation(), taskGone)
	}
	return nil, nil
}

// RecallTask returns what answers line n of a session again if the call has become a task here,
// whatever the configuration says of its server now; nil if it has not.
func (d *Dispatcher) RecallTask(session string, n int64) *tool.Remote {
	id := tasks.ID(session, n)
	rec, ok := d.Tasks.Record(id)
	if !ok {
		return nil
	}
	return &tool.Remote{
		Name: rec.Shown, Server: rec.Server, Contract: rec.Contract,
		Handle: func(_ context.Context, rc tool.RemoteCall) (tool.RemoteResult, error) {
			t := d.Tasks.Told(&rc.Caller, id)
			if t == nil {
				return tool.RemoteResult{}, fault.New(fault.OutcomeUnknown, fault.Host, mcp.ToolsCall+":"+rec.Shown,
					taskGone)
			}
			created, err := t.Created()
			return tool.RemoteResult{Result: created, Task: id}, err
		},
	}
}

// taskGone says that a call has become a task, and that nothing of it is left.
const taskGone = "the call became a task that is not kept any more"

// detach detaches the call, which is under way. If it cannot, the client waits on, and detach
// is called again later.
func (r *request) detach(c *upstream.Call) {
	d := r.task
	d.due = time.Now().Add(detachRetry)
	if !r.hub.CanDetach(c) || !d.leave() {
		return // it is being taken up, or the client has left
	}
	rec := detached.NewRecord(r.rc, r.o.Remote.Server, r.o.Own, r.o.Remote.Contract, r.o.Remote.Name)
	err := r.Tasks.Begin(rec, r.rc.Params, func() { d.end(errCancelled) })
	if err == nil {
		err = r.hub.Detach(c)
	}
	if err != nil {
		r.Tasks.Forget(d.id) // also after a failed Begin: its file may be there, and only not be on the disk
		r.hub.Log.Error("a call cannot become a task, so its client waits on", "server", r.o.Remote.Server,
			"tool", r.o.Own, "err", err)
		d.leave, d.due = d.follow(), time.Now().Add(failedRetry)
		return
	}
	faultpoint.At("task.recorded")
	d.done = true
	r.hub.Mu.Lock()
	r.ownLocked(c)
	c.OnProgress = r.progress
	r.hub.Mu.Unlock()
	if t := r.Tasks.Told(&r.rc.Caller, d.id); t != nil {
		created, _ := t.Created() // it is JSON
		d.told <- created
	}
}

// ownLocked gives a call of a detached request to the store of tasks. Its client has the id if
// it has confirmed the first round.
func (r *request) ownLocked(c *upstream.Call) {
	c.Demand(calls.Detach)
	if first := r.callLocked(0); first != nil && first.Claim() == calls.Detached {
		c.Demand(calls.Confirm)
	}
}

// Pauses between two attempts to detach a call: while its process is being adopted, and
// after a failure.
const (
	detachRetry = 100 * time.Millisecond
	failedRetry = time.Minute
)

// progress shows what the server says of its progress in the task.
func (r *request) progress(params json.RawMessage) {
	if message, ok := mcp.String(jsonrpc.Field(params, "message")); ok {
		r.Tasks.Say(r.task.id, tool.Cut(message, maxMessage))
	}
}

// maxMessage bounds the message of a task, in units of UTF-16.
const maxMessage = 1000

// finish tells the store what a detached call has come to. Then the record of the call may go,
// once its client has the task's id. If the daemon stops, the next one does all that.
func (r *request) finish(ctx context.Context, res tool.RemoteResult, err error) {
	defer r.contain(&res, &err)
	if errors.Is(err, tool.ErrStopping) || r.hub.Life.Err() != nil {
		return
	}
	if errors.Is(context.Cause(ctx), errCancelled) { // the store knows
		r.hub.Mu.Lock()
		defer r.hub.Mu.Unlock()
		for _, c := range r.roundsLocked(r.rc.Caller.Session, r.rc.N) {
			r.hub.DropLocked(c)
		}
		return
	}
	if err == nil && res.Load != nil {
		res.Result, res.Error, err = res.Load()
	}
	o, message := outcome(&res, err)
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		if err = r.Tasks.End(r.task.id, o, message); err == nil {
			break
		}
		r.hub.Log.ErrorContext(ctx, "what a task has come to cannot be written down", "task", r.task.id, "err", err)
		r.Tasks.Say(r.task.id, "the call has ended, and that cannot be written down: "+err.Error())
		if r.hub.Pause(wait, nil) != nil {
			return
		}
	}
	r.hub.Log.InfoContext(ctx, "a task has ended", "task", r.task.id, "server", r.o.Remote.Server, "tool", r.o.Own,
		"how", message)
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	r.storedLocked(r.rc.Caller.Session, r.rc.N)
}

// storedLocked notes that the store has what the rounds of a detached call have come to.
func (d *Dispatcher) storedLocked(session string, n int64) {
	for _, c := range d.roundsLocked(session, n) {
		if c.Demand(calls.Store); !c.Claim().Wanted() {
			d.hub.ContainLocked(c.Up, "settled a call", func() { d.hub.DropLocked(c) })
		}
	}
}

// outcome returns what a call has come to as the store keeps it.
func outcome(res *tool.RemoteResult, err error) (o detached.Outcome, message string) {
	switch {
	case err != nil:
		f := fault.From(err, fault.Server, mcp.ToolsCall)
		o.Error = detached.Failure(f)
		return o, f.Fault.Detail
	case res.Error != nil:
		o.Error = mcp.ModernError(res.Error)
		return o, "the server answered with an error"
	}
	o.Result = mcp.ModernResult(mcp.ToolsCall, res.Result)
	return o, "the server has answered"
}
