package consult

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

const (
	// giveUp bounds the wait for a terminated worker to report that all processes are gone.
	giveUp = 60 * time.Second
	// cancelTime is how long an engine process may take to end after a
	// cancellation; then its worker ends it.
	cancelTime = 2200 * time.Millisecond
	// spareTime is added to what a run can take by its own ladder. A process that
	// takes longer is stuck, and its worker ends it.
	spareTime = 30 * time.Second
	// leaveTimeout bounds the wait for a worker to exit after its last event.
	leaveTimeout = 5 * time.Second
	// startTimeout bounds the start of a worker.
	startTimeout = 30 * time.Second
	// maxOutcome bounds outcome.json, in bytes.
	maxOutcome = 128 << 20
)

// callID is the id of the one request to an engine process, and its progress token.
var callID = jsonrpc.IntID(1)

// driver makes the one call of a job's engine process and waits for its outcome. One
// goroutine owns it; the goroutines of ops use only proc and their arguments.
type driver struct {
	m    *Manager
	j    *job
	proc Process
	call []byte  // the line that calls the tool
	cap  float64 // what the run may cost; 0 for no limit

	sent   bool           // the call is queued in writes, or the worker has it
	gone   bool           // the job is left to the next daemon
	timer  *time.Timer    // when it fires, the worker is to end the process
	ending bool           // terminate was called
	writes chan write     // to be made in order
	ops    sync.WaitGroup // goroutines whose calls to proc may block

	rest    []byte          // of stdout behind the last newline
	line    *engine.Outcome // of the result line; nil until that came
	exit    process.Exit    // of the engine process
	over    bool            // Closed has come: the worker has no more events
	lost    *fault.Record   // the worker itself died
	failed  error           // the call could not be written
	lastSeq int64
	sign    time.Time // when a worker that was dead already last wrote a file
}

// write is one write to an engine process.
type write struct {
	kind string // of the record
	data []byte
}

// result is what a driver returns of a run.
type result struct {
	out    engine.Outcome
	maxUSD float64
	end    time.Time // zero is now
	left   bool      // the run goes on, and the next daemon gets its outcome
}

// drive runs the job from its slot to the end of its process. The caller calls
// done afterwards, once the answer is on disk.
func (m *Manager) drive(ctx context.Context, j *job) (res result, done func()) {
	d := &driver{m: m, j: j}
	if j.adopted {
		switch err := d.attach(ctx); {
		case errors.Is(err, errLeft):
			return result{left: true}, func() {}
		case err != nil:
			return result{out: engine.Outcome{Fault: unknown(err)}, end: d.sign}, func() {}
		}
	} else if err := d.start(ctx); err != nil {
		return result{out: engine.Outcome{Fault: fault.From(err, fault.Worker, operation)}, maxUSD: d.cap}, func() {}
	}
	faultpoint.At("consult.started")
	d.follow(ctx)
	faultpoint.At("consult.followed")
	if d.gone {
		return result{left: true}, d.proc.Close
	}
	out := d.outcome()
	return result{out: out, maxUSD: d.cap, end: d.end(out.EndedUnixMS)}, d.release
}

// end returns when the run ended. An adopted run may have ended long before this daemon
// saw it, so end takes the best record of that: the time in the outcome (unixMS), that
// of the exit, or that of the last file. It returns now for a run of this daemon, and
// if the time makes no sense since a clock was set.
func (d *driver) end(unixMS int64) time.Time {
	now := time.Now()
	at := d.sign
	switch {
	case unixMS > 0:
		at = time.UnixMilli(unixMS)
	case d.exit.UnixMS > 0:
		at = time.UnixMilli(d.exit.UnixMS)
	}
	if !d.j.adopted || at.IsZero() || at.After(now) || at.Before(d.j.created) { // clocks are set
		return now
	}
	return at
}

// release acknowledges the last event, after which the worker exits, and waits for
// that, at most [leaveTimeout]. A job that has ended thus leaves no process. Call it
// only after the answer is on disk: the acknowledged output may be its only other copy.
func (d *driver) release() {
	defer d.proc.Close()
	if !d.over {
		return
	}
	d.proc.Ack(d.lastSeq)
	faultpoint.At("consult.letting")
	t := time.NewTimer(leaveTimeout)
	defer t.Stop()
	select {
	case <-d.proc.Done():
	case <-t.C:
	case <-d.m.abandoned:
	}
}

// start starts the job's worker with the engine process. It composes the call but does
// not send it: [driver.follow] does that.
func (d *driver) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	opt := &d.m.opt
	eng, err := d.m.engine(d.j.rec.Engine)
	if err != nil {
		return err
	}
	params, err := d.params(ctx, eng)
	if err != nil {
		return err
	}
	temp := filepath.Join(d.j.dir, dirTemp)
	if err := os.Mkdir(temp, 0o700); err != nil && !errors.Is(err, os.ErrExist) { // an earlier daemon got that far
		return fmt.Errorf("making the run's temporary directory: %w", err)
	}
	if params.TempDir, err = d.m.shortTemp(temp, d.j.rec.ID, params.Level); err != nil {
		return err
	}
	d.call = callLine(params)
	hard := time.Now().Add(d.j.timeout + opt.Ladder.Whole() + spareTime)
	faultpoint.At("consult.starting")
	environ, _ := eng.Environ()
	d.proc, err = opt.Starter.Start(ctx, d.j.dir, d.j.spec(opt.Exe, opt.SocketDir, hard), environ)
	return err
}

// params returns the arguments of the call as of now. Since the consult was asked for,
// other consults may have spent the budget, and the program may have been updated; so
// it checks both again. The error is a fault.
func (d *driver) params(ctx context.Context, eng engine.Engine) (*engine.Params, error) {
	info, err := eng.Check(ctx)
	if err != nil {
		return nil, err
	}
	req := d.j.rec.Request
	if err := permit(&req, &info); err != nil { // it was permitted when it was asked for
		return nil, err
	}
	if req.MaxUSD, err = d.m.afford(d.m.settings.Load(), d.j.rec.Identity, d.j.rec.Session, eng, req, d.j); err != nil {
		return nil, err
	}
	d.cap = req.MaxUSD
	if err := d.j.setLevel(eng.Command(req, info), info.Version); err != nil {
		return nil, err
	}
	_, configured := eng.Environ()
	return &engine.Params{
		Version: engine.Version, Request: req, TimeoutMS: d.j.timeout.Milliseconds(), Program: &info, Dir: d.j.dir,
		Mask: configured, Ladder: &d.m.opt.Ladder,
	}, nil
}

// callLine returns the line that calls the tool.
func callLine(params *engine.Params) []byte {
	return append(jsonrpc.AppendRequest(nil, callID, mcp.ToolsCall, engine.JSON(map[string]any{
		"name": engine.Tool, "arguments": params,
		"_meta": map[string]any{
			mcp.MetaVersion: mcp.Modern, mcp.MetaCapabilities: map[string]any{},
			mcp.MetaProgress: json.RawMessage(callID),
		},
	})), '\n')
}

// cancelLine returns the line that cancels the call.
func cancelLine() []byte {
	return append(jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote,
		engine.JSON(map[string]any{"requestId": json.RawMessage(callID)})), '\n')
}

// follow sends the call and handles events until the process and its worker are gone,
// or until the daemon leaves the job to the next one (d.gone). It returns only after
// all goroutines of ops have ended.
func (d *driver) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer d.ops.Wait()
	defer cancel() // runs before Wait
	errs := make(chan error, 1)
	d.writes = make(chan write, 2)
	d.ops.Go(func() { d.writeLoop(ctx, errs) })
	limit := d.j.timeout + d.m.opt.Ladder.Whole() + spareTime
	if d.j.adopted {
		limit = max(time.Until(d.j.deadline)+d.m.opt.Ladder.Whole()+spareTime, spareTime)
	}
	d.timer = time.NewTimer(limit)
	defer d.timer.Stop()
	if !d.sent && !d.j.ending() && d.call != nil { // a client that has cancelled meanwhile does not pay for it
		d.sent = true
		d.writes <- write{kind: calls.KindCall, data: d.call}
		d.call = nil
		d.j.setNote("started")
	}
	if d.failed != nil {
		d.terminate(ctx)
	}
	stop, detached := d.j.stop, d.m.detached
	for {
		select {
		case ev, ok := <-d.proc.Events():
			if !ok || d.event(ev) {
				return
			}
		case <-stop:
			stop = nil
			d.cancel(ctx)
		case <-d.timer.C:
			// The worker has not reported in time either: outcome takes what there is.
			if d.ending {
				return
			}
			d.terminate(ctx)
		case err := <-errs:
			errs = nil
			d.failed = err
			d.terminate(ctx)
		case <-detached:
			detached = nil
			if !d.ending && !d.j.ending() {
				d.gone = true
				return
			}
		case <-d.m.abandoned:
			d.gone = isClosed(d.m.detached)
			return
		}
	}
}

// writeLoop makes the writes in their order until ctx is done. A write blocks while the
// process does not read; it must not block the goroutine that handles events. It sends
// an error only if the call itself could not be written.
func (d *driver) writeLoop(ctx context.Context, errs chan<- error) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-d.writes:
			rec := calls.Record{
				N: d.j.rec.N, Session: d.j.rec.Session, Kind: w.kind, Name: engine.Tool, Contract: contractWord,
				Identity: d.j.rec.Identity, DeadlineBootMS: bootclock.AtMS(d.j.created.Add(d.j.timeout)),
			}
			_, err := d.proc.Write(ctx, rec, w.data)
			if w.kind != calls.KindCall {
				continue // if it fails the worker ends the process in time
			}
			faultpoint.At("consult.called")
			if err != nil && ctx.Err() == nil {
				errs <- err
				return
			}
		}
	}
}

// event handles one event of the process and reports whether it was the last.
func (d *driver) event(ev supervisor.Event) bool {
	faultpoint.At("consult.event")
	d.lastSeq = max(d.lastSeq, ev.Seq)
	switch ev.Kind {
	case supervisor.Output:
		if ev.Stream != process.Stderr {
			d.readOutput(ev.Data)
		}
		// The result line stays with the worker until the answer is kept: it may
		// be the only copy.
		if ev.Seq > 0 && len(d.rest) == 0 && d.line == nil || faultpoint.Broken("ack.confirmed") {
			d.proc.Ack(ev.Seq)
		}
	case supervisor.Exited:
		faultpoint.At("consult.exited")
		d.exit = ev.Exit
	case supervisor.Closed:
		d.over = true
		return true
	case supervisor.Lost:
		d.lost = ev.Fault
		return true
	}
	return false
}

// readOutput takes a piece of stdout apart into lines.
func (d *driver) readOutput(data []byte) {
	for {
		before, after, ok := bytes.Cut(data, []byte{'\n'})
		if !ok {
			break
		}
		line := append(d.rest, before...)
		d.rest, data = nil, after
		if m, err := jsonrpc.Parse(line); err == nil {
			d.readMessage(&m)
		}
	}
	d.rest = append(d.rest, data...)
}

// readMessage handles one message of the engine process.
func (d *driver) readMessage(m *jsonrpc.Message) {
	switch {
	case m.Kind == jsonrpc.Response && m.ID.Key() == callID.Key():
		var out engine.Outcome
		if json.Unmarshal(jsonrpc.Field(m.Result, "structuredContent"), &out) == nil && out.Version == engine.Version {
			d.line = &out
		}
	case m.Method == mcp.ProgressNote:
		var p struct {
			Message string                     `json:"message"`
			Meta    map[string]engine.Progress `json:"_meta"`
		}
		if json.Unmarshal(m.Params, &p) == nil {
			d.m.hear(p.Meta[engine.MetaProgress].Window)
			d.j.progress(p.Message, p.Meta[engine.MetaProgress])
		}
	}
}

// cancel cancels the call. If the process does not end in time the worker ends
// it.
func (d *driver) cancel(ctx context.Context) {
	if err := d.j.setEnding(); err != nil {
		d.m.opt.Log.ErrorContext(ctx, "cancellation of a consult cannot be written", "consult", d.j.rec.ID, "err", err)
	}
	if !d.sent {
		d.terminate(ctx)
		return
	}
	if d.ending {
		return
	}
	d.j.setNote("cancelling")
	select {
	case d.writes <- write{kind: calls.KindCancel, data: cancelLine()}:
	default: // the call itself is not written yet: it will be ended
	}
	d.timer.Reset(cancelTime)
}

// terminate asks the worker to end the process and all that it has started. It does not
// block; the second call does nothing.
func (d *driver) terminate(ctx context.Context) {
	if d.ending {
		return
	}
	d.ending = true
	// If this fails, the worker is lost, and follow gets that as an event.
	d.ops.Go(func() { _, _ = d.proc.Terminate(ctx, d.m.opt.Ladder.CancelGrace) })
	d.timer.Reset(giveUp)
}

// outcome returns what came of the run: the file that the engine process wrote, else
// its result line, else what transcript and worker say. The process and its worker are
// gone by now, so none of these can change any more.
func (d *driver) outcome() engine.Outcome {
	out, err := readOutcome(d.j.dir)
	switch {
	case err == nil:
	case d.line != nil:
		out = *d.line
	default:
		if !errors.Is(err, fs.ErrNotExist) {
			d.m.opt.Log.Error("outcome of a consult cannot be read", "consult", d.j.rec.ID, "err", err)
		}
		out = d.reconstruct()
	}
	judge(&out, d.j.rec.Request.Schema)
	if out.Fault != nil && out.Fault.Fault.Generation == 0 {
		out.Fault.Fault.Generation = d.proc.Generation()
	}
	return out
}

// readOutcome reads outcome.json of a job's directory.
func readOutcome(dir string) (engine.Outcome, error) {
	var out engine.Outcome
	b, err := ownfile.Read(filepath.Join(dir, engine.FileOutcome), maxOutcome)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err == nil && out.Version != engine.Version {
		err = fmt.Errorf("%s is of version %d, which this program does not know",
			filepath.Join(dir, engine.FileOutcome), out.Version)
	}
	return out, err
}

// reconstruct returns the outcome of a run whose engine process died without
// one. What the model had said, the session and the cost come from the
// transcript. The call is never made again.
func (d *driver) reconstruct() engine.Outcome {
	said, err := engine.ReadTranscript(d.j.dir)
	if err != nil {
		d.m.opt.Log.Error("transcript of a consult cannot be read", "consult", d.j.rec.ID, "err", err)
	}
	out := engine.Outcome{
		Answer: said.Text, Partial: said.Text != "", Session: said.Session, CostUSD: said.CostUSD, Turns: said.Turns,
		Level: said.Start.Level, EnforcedBy: said.Start.EnforcedBy, Notes: said.Start.Notes, Argv: said.Start.Argv,
	}
	if said.Model != "" {
		out.Models = []string{said.Model}
	}
	failed := func(code fault.Code, stage fault.Stage, format string, args ...any) *fault.Record {
		return d.explain(fault.New(code, stage, operation, format, args...))
	}
	switch {
	case d.j.ending():
		out.Fault = failed(fault.Cancelled, fault.Engine, "the consult was cancelled")
	case d.exit.SpawnErrno != "":
		out.Fault = failed(fault.SpawnFailure, fault.Worker, "the engine process cannot be started: %s", d.exit)
	case d.failed != nil && !said.Began:
		out.Fault = fault.From(fmt.Errorf("calling the engine process: %w", d.failed), fault.Worker, operation)
	case !said.Began && err == nil:
		out.Fault = failed(fault.ProcessFailure, fault.Worker,
			"the consult's worker or engine process was lost before its program was told anything")
	case d.lost != nil || d.exit == process.Exit{}:
		detail := ""
		if d.lost != nil {
			detail = ": " + d.lost.Fault.Detail
		}
		out.Fault = failed(fault.OutcomeUnknown, fault.Worker,
			"the consult's worker was lost, and what it did is unknown; it is not run again by itself%s", detail)
	default:
		out.Fault = failed(fault.ProcessFailure, fault.Engine,
			"the engine process ended (%s) before there was an answer", d.exit)
	}
	return out
}

// explain adds to a fault what is known of the process or of its lost worker.
func (d *driver) explain(f *fault.Record) *fault.Record {
	if d.lost != nil {
		f.Fault.Generation, f.Cause = d.lost.Fault.Generation, d.lost.Cause
		return f
	}
	exit := engine.Exit{Known: d.exit != process.Exit{}, Signal: d.exit.Signal, SpawnErrno: d.exit.SpawnErrno}
	if d.exit.Code != nil {
		exit.Code = *d.exit.Code
	}
	return exit.Explain(fault.Killed, f)
}
