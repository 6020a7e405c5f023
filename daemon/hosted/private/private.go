// Package private makes calls that do not come from a session. Each is a tools/call of a
// process that is started for it alone, and never twice; it outlives the daemon.
package private

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/lines"
	"holdline/daemon/supervisor"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

const (
	// startLimit bounds the start of a private process.
	startLimit = 30 * time.Second
	// cancelLimit is how long a private process may take to end after a cancellation;
	// then its worker ends it.
	cancelLimit = 2200 * time.Millisecond
	// giveUp bounds the wait for a terminated worker to report that all processes
	// are gone.
	giveUp = 60 * time.Second
	// leaveLimit bounds the wait for a worker to exit after its last event.
	leaveLimit = 5 * time.Second
	// adoptRetry is the pause between attempts to attach to a worker that lives and can be
	// neither reached nor killed.
	adoptRetry = time.Second
	// spare is the least time that an adopted process gets to end.
	spare = 30 * time.Second
)

// requestID is the id of the one request to a private process, and its progress token.
var requestID = jsonrpc.IntID(1)

// A Call is one tools/call of a process that is started for it alone. No session
// and no other call reaches that process. It is never started twice.
type Call struct {
	Dir    string       // of the worker, named by its id; the caller may have files there
	Argv   []string     // of the process, which serves MCP of the modern era
	Name   string       // of the process, for people
	Record calls.Record // who asked for which tool; the kind and the write are filled in
	// Hard is when the worker ends the process by itself, with or without a daemon.
	Hard  time.Time
	Grace time.Duration // between the steps by which a process is ended
	// Adopt says that an earlier daemon has started the process, which may be gone.
	Adopt bool
	// Compose returns the arguments of the tool, and the whole environment of the
	// process. It is called before a process is started, and for an adopted one that has
	// certainly not got the call.
	Compose   func(ctx context.Context) (arguments any, env []string, err error)
	Progress  func(params json.RawMessage) // receives each progress notification
	Cancel    <-chan struct{}              // closed when the call is to be cancelled
	Cancelled func()                       // called before the cancellation is sent, and if an earlier daemon has sent it
}

// An End is what became of a [Call].
type End struct {
	Left       bool            // the process goes on, for the next daemon; then nothing else is set
	Generation int64           // of the process; 0 if none was started or found
	Result     json.RawMessage // of the tool; nil if there is none
	Err        error           // why no process was started or found, or why the call was not made
	Exit       process.Exit    // zero if it is not known how the process ended
	Lost       *fault.Record   // the worker itself died
}

// A Watcher receives the states of processes, by worker. Its methods must not block.
type Watcher interface {
	// WorkerStarting reports that a worker is started or attached.
	WorkerStarting(id string, generation int64)
	// WorkerReady reports that the process of a worker runs.
	WorkerReady(id string)
	// WorkerEnded reports that nothing is left of the process.
	WorkerEnded(id string)
}

// A Caller makes private calls. It is safe for concurrent use.
type Caller struct {
	Log     *slog.Logger
	Workers *supervisor.Supervisor
	Watch   Watcher // of the processes
}

// private makes a private call. The goroutine of [Caller.Call] owns it; the
// goroutines of ops use only the worker and their arguments.
type private struct {
	*Call
	p      *Caller
	id     string // of the worker
	log    *slog.Logger
	w      *supervisor.Worker
	line   []byte        // the call, until it is sent
	called chan struct{} // closed when the worker has the call; nil if it was not sent
	failed chan error    // yields why the call could not be written
	timer  *time.Timer   // when it fires, the worker is to end the process
	ending bool          // terminate was called
	over   bool          // the last event has come, and the worker waits for its acknowledgement
	ops    sync.WaitGroup
	stdout *lines.Splitter
	last   int64 // highest number received
	keep   int64 // what begins with this number stays with the worker until the call is settled
	end    End
}

// Call starts the process of a private call, or attaches to it, and makes the
// call unless the process has it. It blocks until nothing is left of the process, then
// passes what came of it to settle. It acknowledges the result only when settle has
// returned: the worker's copy may be the only one. Then the worker ends.
//
// When ctx is done, Call leaves the process to the next daemon.
func (p *Caller) Call(ctx context.Context, call Call, settle func(End)) {
	id := filepath.Base(call.Dir)
	c := &private{
		Call: &call, p: p, id: id, log: p.Log.With("worker", id), failed: make(chan error, 1), keep: math.MaxInt64,
	}
	p.Watch.WorkerStarting(id, 0) // which generation it is, is known once it runs
	defer p.Watch.WorkerEnded(id)
	c.stdout = lines.New(call.Dir, dialect.LineEnds, c.log, c.readLine)
	if err := c.open(ctx); err != nil {
		settle(End{Left: errors.Is(err, errLeft), Err: err})
		return
	}
	defer c.w.Close()
	p.Watch.WorkerStarting(id, c.w.Generation())
	p.Watch.WorkerReady(id)
	c.end.Generation = c.w.Generation()
	faultpoint.At("consult.started")
	c.follow(ctx)
	faultpoint.At("consult.followed")
	settle(c.end)
	if c.over && !c.end.Left {
		c.release(ctx)
	}
}

// errLeft ends the attempts to attach to a worker: the daemon stops, and
// the next daemon goes on with the call.
var errLeft = errors.New("left to the next daemon")

// open starts the process, or attaches to it if the call is adopted.
func (c *private) open(ctx context.Context) error {
	if c.Adopt {
		return c.adopt(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	env, err := c.compose(ctx)
	if err != nil {
		return err
	}
	spec := process.Spec{
		ID: c.id, Kind: process.KindConsult, Name: c.Name, Argv: c.Argv, Cwd: c.Dir,
		Owner: process.Owner{Session: c.Record.Session, N: c.Record.N, Identity: c.Record.Identity},
	}
	spec.Orphan.Do = process.OrphanLeave
	spec.Orphan.HardDeadlineBootMS = bootclock.AtMS(c.Hard)
	faultpoint.At("consult.starting")
	c.w, err = c.p.Workers.Start(ctx, c.Dir, spec, env)
	return err
}

// compose makes the line that calls the tool, and returns the environment of the
// process.
func (c *private) compose(ctx context.Context) (env []string, err error) {
	arguments, env, err := c.Compose(ctx)
	if err != nil {
		return nil, err
	}
	params, err := json.Marshal(map[string]any{
		"name": c.Record.Name, "arguments": arguments,
		"_meta": map[string]any{
			mcp.MetaVersion: mcp.Modern, mcp.MetaCapabilities: map[string]any{}, mcp.MetaProgress: json.RawMessage(requestID),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the call: %w", err)
	}
	c.line = append(jsonrpc.AppendRequest(nil, requestID, mcp.ToolsCall, params), '\n')
	return env, nil
}

// adopt attaches to the worker that an earlier daemon has started. While the worker
// lives but cannot be reached, adopt tries again every second: no outcome may be
// reported as long as the process may still finish. It returns [errLeft] if ctx
// is done meanwhile, and the error of the last attempt if the worker is dead.
func (c *private) adopt(ctx context.Context) error {
	for {
		err := c.attach(ctx)
		if err == nil {
			return nil
		}
		if alive, lerr := supervisor.Alive(c.Dir); lerr != nil || !alive {
			return err
		}
		c.log.ErrorContext(ctx, "worker of a private call can be neither reached nor killed", "err", err)
		select {
		case <-ctx.Done():
			return errLeft
		case <-time.After(adoptRetry):
		}
	}
}

// attach attaches to the worker, or reads what a dead worker has left. If the worker has
// certainly not taken the call, attach composes it again.
func (c *private) attach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	alive, err := supervisor.Alive(c.Dir)
	faultpoint.At("adopt.attaching")
	w, aerr := c.p.Workers.Attach(ctx, c.Dir)
	if aerr != nil {
		return aerr
	}
	faultpoint.At("adopt.attached")
	c.w = w
	c.last, _ = w.Old()
	c.stdout.Resume(c.last)
	if w.LastWrite() > 1 { // behind the call there is nothing but its cancellation
		c.Cancelled()
	}
	made := w.LastWrite() > 0
	f := calls.Facts{
		Pending: true, Recorded: made, Taken: made, Alive: alive || err != nil, Call: true, Private: true, Started: true,
	}
	if calls.Decide(f) != calls.Dispatch {
		c.called = make(chan struct{})
		close(c.called)
		return nil
	}
	if _, err := c.compose(ctx); err != nil {
		c.failed <- err // the process, which still waits for its call, is ended
	}
	return nil
}

// follow sends the call and handles events until the process and its worker are gone,
// or until ctx is done. It returns only after all goroutines of ops have ended.
func (c *private) follow(ctx context.Context) {
	writing, cancel := context.WithCancel(ctx)
	defer c.ops.Wait()
	defer cancel() // runs before Wait
	hard := bootclock.TimeMS(c.w.Spec().Orphan.HardDeadlineBootMS)
	c.timer = time.NewTimer(max(time.Until(hard), spare))
	defer c.timer.Stop()
	cancelled := c.Cancel
	select {
	case <-cancelled: // a client that has cancelled meanwhile does not pay for the call
	default:
		c.send(writing)
	}
	for {
		select {
		case <-c.w.Ready():
			if c.take() {
				return
			}
		case <-cancelled:
			cancelled = nil
			c.cancel(writing)
		case <-c.timer.C:
			if c.ending { // the worker has not reported in time either
				return
			}
			c.terminate(writing)
		case c.end.Err = <-c.failed:
			c.terminate(writing)
		case <-ctx.Done():
			c.end.Left = true
			return
		}
	}
}

// send writes the call in a goroutine, unless the process has it. The write blocks
// while the process does not read.
func (c *private) send(ctx context.Context) {
	if c.line == nil {
		return
	}
	line := c.line
	c.line, c.called = nil, make(chan struct{})
	c.ops.Go(func() {
		err := c.write(ctx, calls.KindCall, line)
		faultpoint.At("consult.called")
		close(c.called)
		if err != nil && ctx.Err() == nil {
			c.failed <- err
		}
	})
}

// write records a line and writes it to the process.
func (c *private) write(ctx context.Context, kind string, line []byte) error {
	rec := c.Record
	rec.Kind = kind
	_, err := c.w.Write(ctx, rec, line)
	return err
}

// cancel cancels the call. If the process does not end in time the worker ends it.
func (c *private) cancel(ctx context.Context) {
	c.Cancelled()
	if c.called == nil {
		c.terminate(ctx)
		return
	}
	if c.ending {
		return
	}
	params := fmt.Appendf(nil, `{"requestId":%s}`, requestID)
	line := append(jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, params), '\n')
	c.ops.Go(func() {
		select {
		case <-c.called:
			_ = c.write(ctx, calls.KindCancel, line) // if it fails the worker ends the process in time
		case <-ctx.Done():
		}
	})
	c.timer.Reset(cancelLimit)
}

// terminate asks the worker to end the process and all that it has started. It does not
// block; the second call does nothing.
func (c *private) terminate(ctx context.Context) {
	if c.ending {
		return
	}
	c.ending = true
	// If this fails, the worker is lost, and take gets that as an event.
	c.ops.Go(func() { _, _ = c.w.Terminate(ctx, c.Grace) })
	c.timer.Reset(giveUp)
}

// take handles the events that have come, and reports whether the last one was among
// them. It acknowledges the output that is not needed any more.
func (c *private) take() (last bool) {
	events, detached := c.w.Take()
	for i := range events {
		faultpoint.At("consult.event")
		ev := &events[i]
		c.last = max(c.last, ev.Seq)
		switch ev.Kind {
		case supervisor.Output:
			if ev.Stream == process.Stdout {
				c.stdout.Split(lines.Piece{Seq: ev.Seq, Data: ev.Data, Gap: ev.Dropped > 0, Old: ev.Old})
			}
		case supervisor.Exited:
			faultpoint.At("consult.exited")
			c.end.Exit, c.keep = ev.Exit, min(c.keep, ev.Seq)
		case supervisor.Closed:
			c.over = true
			return true
		case supervisor.Lost:
			c.end.Lost = ev.Fault
			return true
		}
	}
	safe, _ := c.stdout.Ackable(c.last, c.keep)
	c.w.Ack(calls.AckBefore(safe, c.keep))
	return detached
}

// readLine handles one line of the process's stdout.
func (c *private) readLine(l *lines.Line) {
	if l.Event != lines.Whole {
		return
	}
	msg, err := jsonrpc.Parse(l.Text)
	switch {
	case err != nil:
	case msg.Kind == jsonrpc.Response && msg.ID.Key() == requestID.Key() && msg.Result != nil:
		c.end.Result, c.keep = bytes.Clone(msg.Result), min(c.keep, c.stdout.Begin())
	case msg.Method == mcp.ProgressNote:
		c.Progress(bytes.Clone(msg.Params))
	}
}

// release acknowledges the last event, after which the worker exits, and waits for
// that, at most [leaveLimit]. A call that has ended thus leaves no process.
func (c *private) release(ctx context.Context) {
	c.w.Ack(c.last)
	faultpoint.At("consult.letting")
	t := time.NewTimer(leaveLimit)
	defer t.Stop()
	select {
	case <-c.w.Done():
	case <-t.C:
	case <-ctx.Done():
	}
}
