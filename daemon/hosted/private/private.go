// Package private makes the one call of a process that no session shares.
//
// A private process is started for one tools/call, lists nothing, and is never started
// twice. Its worker outlives the daemon: the next daemon attaches to it, and makes the
// call only if the worker has certainly not taken it. The result stays with the worker
// until the caller has settled the call.
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
	"holdline/daemon/supervisor/finding"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

const (
	// startTimeout bounds one attempt to start a process or to attach to its worker.
	startTimeout = 30 * time.Second
	// attachRetry is the pause between attempts to attach to a worker that lives and can
	// be neither reached nor killed.
	attachRetry = time.Second
	// attachTime is how long that is tried; then the worker counts for damaged, and is ended.
	attachTime = 5 * time.Second
	// cancelTime is how long a process may take to end after a cancellation; then its
	// worker ends it.
	cancelTime = 2200 * time.Millisecond
	// spareTime is the least time that an adopted process gets to end.
	spareTime = 30 * time.Second
	// giveUp bounds the wait for a terminated worker to report that all processes are gone.
	giveUp = 60 * time.Second
	// leaveTimeout bounds the wait for a worker to exit after its last event.
	leaveTimeout = 5 * time.Second
)

// callID is the id of the one request to a process, and its progress token.
var callID = jsonrpc.IntID(1)

// A Call is one tools/call of a process that is started for it alone.
type Call struct {
	Dir    string       // of the worker, named by its id; the caller may have files there
	Argv   []string     // of the process, which serves MCP of the modern era
	Name   string       // of the process, for people
	Record calls.Record // who asked for which tool; the kind and the write are filled in
	// Limit is how long the process may take from its start. Then the worker ends it,
	// with or without a daemon.
	Limit time.Duration
	Grace time.Duration // between the steps by which a process is ended
	// Adopt says that an earlier daemon has started the process, which may be gone.
	Adopt bool
	// Compose returns the arguments of the tool, and the whole environment of the
	// process. It is called before a process is started, and for an adopted one that has
	// certainly not got the call.
	Compose  func(ctx context.Context) (arguments any, env []string, err error)
	Progress func(params json.RawMessage) // receives each progress notification
	Cancel   <-chan struct{}              // closed when the call is to be cancelled
	// Cancelled is called before the cancellation is sent, and if an earlier daemon has
	// sent one.
	Cancelled func()
}

// An End is what became of a [Call].
type End struct {
	Left       bool            // the process goes on, for the next daemon; the rest says nothing then
	Generation int64           // of the process; 0 if none was started or found
	Result     json.RawMessage // of the tool; nil if there is none
	Err        error           // why no process was started or found, or why the call was not made
	Exit       process.Exit    // zero if it is not known how the process ended
	Lost       *fault.Record   // the worker itself died, or was killed while it was started
}

// A Watcher receives the states of workers.
type Watcher interface {
	// WorkerStarting reports that a worker was started or attached.
	WorkerStarting(id string, generation int64)
	// WorkerReady reports that the process of a worker serves.
	WorkerReady(id string)
	// WorkerEnded reports that no process runs and none is being started.
	WorkerEnded(id string)
}

// Processes makes the calls of private processes. It is safe for concurrent use.
type Processes struct {
	Log     *slog.Logger
	Workers *supervisor.Supervisor
	Watch   Watcher
}

// Clear ends what is left of the worker of a settled call: see
// [supervisor.Supervisor.Clear].
func (p Processes) Clear(ctx context.Context, dir string) error { return p.Workers.Clear(ctx, dir) }

// Call starts the process of a call, or attaches to it, and makes the call unless the
// process has it. It blocks until nothing is left of the process, then passes what came
// of it to settle. It acknowledges the result only when settle has returned: the
// worker's copy may be the only one. Then the worker ends.
//
// When ctx is done, Call leaves the process to the next daemon.
func (p Processes) Call(ctx context.Context, call *Call, settle func(End)) {
	id := filepath.Base(call.Dir)
	c := &caller{
		Call: call, id: id, log: p.Log.With("worker", id), workers: p.Workers,
		failed: make(chan error, 1), keep: math.MaxInt64,
	}
	c.stdout = lines.New(call.Dir, dialect.LineEnds, c.log, c.readLine)
	c.stdout.Stop = ctx.Done()
	p.Watch.WorkerStarting(id, 0) // which generation it is, is known once it runs
	defer p.Watch.WorkerEnded(id)
	if err := c.open(ctx); err != nil {
		left := ctx.Err() != nil
		if left { // else it is the call's fault, which its caller reports
			c.log.WarnContext(ctx, "worker not started, and the daemon goes", "err", err)
		}
		e := End{Left: left, Err: err}
		if supervisor.Vanished(err) {
			e.Lost = fault.From(err, fault.Worker, "start:"+c.Name)
		}
		settle(e)
		return
	}
	defer c.w.Close()
	p.Watch.WorkerStarting(id, c.w.Generation())
	p.Watch.WorkerReady(id)
	c.end.Generation = c.w.Generation()
	faultpoint.At("private.started")
	closed := c.follow(ctx)
	faultpoint.At("private.followed")
	if c.end.Lost != nil {
		<-c.w.Done() // the caller may make the call again, in the same directory
	}
	settle(c.end)
	if closed {
		c.release(ctx)
	}
}

// caller makes a call. The goroutine of [Processes.Call] owns it; the goroutines of ops
// use only the worker and their arguments.
type caller struct {
	*Call
	id      string // of the worker
	log     *slog.Logger
	workers *supervisor.Supervisor
	w       *supervisor.Worker
	line    []byte        // the call, until it is sent
	called  chan struct{} // closed when the worker has the call; nil if it was not sent
	failed  chan error    // yields why the call could not be written
	timer   *time.Timer   // when it fires, the worker is to end the process
	ending  bool          // terminate was called
	ops     sync.WaitGroup
	stdout  *lines.Splitter
	last    int64 // highest number received
	lost    bool  // output is lost, in which the result may have been
	keep    int64 // what begins with this number stays with the worker until the call is settled
	end     End
}

// open starts the process, or attaches to it if the call is adopted. While the worker of
// an adopted one lives but cannot be reached, open tries again every second, and after attachTime it
// ends the worker: no outcome may be reported as long as the process may still finish.
func (c *caller) open(ctx context.Context) error {
	for begin := time.Now(); ; {
		err := c.openOnce(ctx)
		if err == nil || !c.Adopt {
			return err
		}
		if alive, lerr := finding.Alive(c.Dir); lerr != nil || !alive {
			return err
		}
		if time.Since(begin) >= attachTime {
			cerr := c.workers.Clear(ctx, c.Dir)
			if cerr == nil {
				c.log.ErrorContext(ctx, "worker of a private call ended, since it cannot be reached", "err", err)
				return err
			}
			c.log.ErrorContext(ctx, "worker of a private call can be neither reached nor killed",
				"err", errors.Join(err, cerr))
		}
		select {
		case <-time.After(attachRetry):
		case <-ctx.Done():
			return err
		}
	}
}

// openOnce is one attempt of open. The end of ctx does not end it: a start that is broken
// off would leave a worker of which the next daemon cannot know what it did.
func (c *caller) openOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	if c.Adopt {
		return c.attach(ctx)
	}
	env, err := c.compose(ctx)
	if err != nil {
		return err
	}
	spec := process.Spec{
		ID: c.id, Kind: process.KindConsult, Name: c.Name, Argv: c.Argv, Cwd: c.Dir,
		Owner:  process.Owner{Session: c.Record.Session, N: c.Record.N, Identity: c.Record.Identity},
		Orphan: process.Orphan{Do: process.OrphanLeave, HardDeadlineBootMS: bootclock.AtMS(time.Now().Add(c.Limit))},
	}
	faultpoint.At("private.starting")
	c.w, err = c.workers.Start(ctx, c.Dir, spec, env)
	return err
}

// compose makes the line that calls the tool, and returns the environment of the
// process.
func (c *caller) compose(ctx context.Context) (env []string, err error) {
	arguments, env, err := c.Compose(ctx)
	if err != nil {
		return nil, err
	}
	params, err := json.Marshal(map[string]any{
		"name": c.Record.Name, "arguments": arguments,
		"_meta": map[string]any{
			mcp.MetaVersion: mcp.Modern, mcp.MetaCapabilities: struct{}{}, mcp.MetaProgress: json.RawMessage(callID),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the call: %w", err)
	}
	c.line = append(jsonrpc.AppendRequest(nil, callID, mcp.ToolsCall, params), '\n')
	return env, nil
}

// attach attaches to the worker, or reads what a dead worker has left. If the worker has
// certainly not taken the call, attach composes it again.
func (c *caller) attach(ctx context.Context) error {
	alive, lerr := finding.Alive(c.Dir)
	faultpoint.At("private.attaching")
	w, err := c.workers.Attach(ctx, c.Dir)
	if err != nil {
		return err
	}
	faultpoint.At("private.attached")
	c.w = w
	c.last, _ = w.Old()
	c.stdout.Resume(c.last)
	if w.LastWrite() > 1 { // behind the call there is nothing but its cancellation
		c.Cancelled()
	}
	made := w.LastWrite() > 0
	f := calls.Facts{
		Pending: true, Recorded: made, Taken: made, Alive: alive || lerr != nil,
		Call: true, Private: true, Started: true,
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
// or until ctx is done. It reports whether the worker waits for the acknowledgement of
// its last event. It returns only after all goroutines of ops have ended.
func (c *caller) follow(ctx context.Context) (closed bool) {
	writing, stop := context.WithCancel(ctx)
	defer c.ops.Wait()
	defer stop() // runs before Wait
	hard := bootclock.TimeMS(c.w.Spec().Orphan.HardDeadlineBootMS)
	c.timer = time.NewTimer(max(time.Until(hard), spareTime))
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
			events, detached := c.w.Take()
			for i := range events {
				c.readEvent(&events[i])
				if c.lost && c.end.Result == nil {
					c.terminate(writing) // it would wait for ever: what it has left says what the call came to
				}
				if kind := events[i].Kind; kind == supervisor.Closed || kind == supervisor.Lost {
					return kind == supervisor.Closed
				}
			}
			if detached { // it may live, and be another daemon's by now
				c.end.Left = true
				return false
			}
			safe, _ := c.stdout.Ackable(c.last, c.keep)
			c.w.Ack(calls.AckBefore(safe, c.keep))
		case <-cancelled:
			cancelled = nil
			c.cancel(writing)
		case <-c.timer.C:
			if c.ending { // the worker has not reported in time either
				return false
			}
			c.terminate(writing)
		case c.end.Err = <-c.failed:
			c.terminate(writing)
		case <-ctx.Done():
			c.end.Left = true
			return false
		}
	}
}

// send writes the call in a goroutine, unless the process has it. The write blocks
// while the process does not read.
func (c *caller) send(ctx context.Context) {
	if c.line == nil {
		return
	}
	c.called = make(chan struct{})
	c.ops.Go(func() {
		err := c.write(ctx, calls.KindCall, c.line)
		faultpoint.At("private.called")
		close(c.called)
		if err != nil && ctx.Err() == nil && !supervisor.Disowned(err) { // then ctx ends soon
			c.failed <- err
		}
	})
}

// write records a line and writes it to the process.
func (c *caller) write(ctx context.Context, kind string, line []byte) error {
	rec := c.Record
	rec.Kind = kind
	_, err := c.w.Write(ctx, rec, line)
	return err
}

// cancel cancels the call. If the process does not end in time the worker ends it.
func (c *caller) cancel(ctx context.Context) {
	c.Cancelled()
	if c.called == nil {
		c.terminate(ctx)
	}
	if c.ending {
		return
	}
	params := fmt.Appendf(nil, `{"requestId":%s}`, callID)
	line := append(jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, params), '\n')
	c.ops.Go(func() {
		select {
		case <-c.called:
			_ = c.write(ctx, calls.KindCancel, line) // if it fails the worker ends the process in time
		case <-ctx.Done():
		}
	})
	c.timer.Reset(cancelTime)
}

// terminate asks the worker to end the process and all that it has started. It does not
// block; the second call does nothing.
func (c *caller) terminate(ctx context.Context) {
	if c.ending {
		return
	}
	c.ending = true
	// If this fails, the worker is lost, and follow gets that as an event.
	c.ops.Go(func() { _, _ = c.w.Terminate(ctx, c.Grace) })
	c.timer.Reset(giveUp)
}

// readEvent handles one event of the worker. An event from which the next daemon learns
// how the process ended stays with the worker.
func (c *caller) readEvent(ev *supervisor.Event) {
	faultpoint.At("private.event")
	c.last = max(c.last, ev.Seq)
	switch {
	case ev.Kind == supervisor.Output && ev.Stream == process.Stdout:
		c.stdout.Split(lines.Piece{
			Seq: ev.Seq, Data: ev.Data, Span: ev.Span, Sum: ev.Sum, Gap: ev.Dropped > 0, Old: ev.Old,
		})
	case ev.Kind == supervisor.Exited:
		faultpoint.At("private.exited")
		c.end.Exit, c.keep = ev.Exit, min(c.keep, ev.Seq)
	case ev.Kind == supervisor.Lost:
		c.end.Lost = ev.Fault
	}
}

// readLine handles one line of the process's stdout.
func (c *caller) readLine(l *lines.Line) {
	msg, err := jsonrpc.Parse(l.Text)
	switch {
	case l.Event == lines.Lost:
		c.lost = c.lost || l.Many || !dialect.IsNotification(l.Head)
	case l.Event != lines.Whole || err != nil:
	case msg.Kind == jsonrpc.Response && msg.ID.Key() == callID.Key() && msg.Result != nil:
		c.end.Result, c.keep = bytes.Clone(msg.Result), min(c.keep, c.stdout.Begin())
	case msg.Method == mcp.ProgressNote:
		c.Progress(bytes.Clone(msg.Params))
	}
}

// release acknowledges the last event, after which the worker exits, and waits for
// that, at most [leaveTimeout]. A call that has ended thus leaves no process.
func (c *caller) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	c.w.Ack(c.last)
	faultpoint.At("private.letting")
	select {
	case <-c.w.Done():
	case <-ctx.Done():
	}
}
