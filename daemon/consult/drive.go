package consult

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// phase is a rung of the ladder by which a run goes from its prompt to its
// end.
type phase int

const (
	working      phase = iota // on the prompt
	interrupting              // the deadline has come, the turn is told to end
	best                      // the best answer was asked for
	cancelling                // the turn is told to end, and nothing is asked
	leaving                   // it has answered and may go
	ending                    // it is being ended
)

// giveUp is how long an ended worker may take to say that all is gone.
const giveUp = 60 * time.Second

// driver drives one run. It belongs to one goroutine.
type driver struct {
	m    *Manager
	j    *job
	run  engine.Run
	proc Process
	cmd  engine.Command
	cap  float64 // what the run may cost; 0 for no limit

	prompted bool // the program has its prompt
	begun    bool // it has that, or will
	asked    bool // the program may have been told something; the writer's until it has ended
	gone     bool // the job is left to the next daemon
	phase    phase
	timer    *time.Timer
	writes   chan write
	ops      sync.WaitGroup // of the calls to proc that may take long
	why      engine.Why

	rest     []byte // of standard output behind the last newline
	total    int    // bytes of standard output, from the program's first on
	unacked  int    // bytes of output since the last ack
	noise    int    // of them, in lines that are none of the program's
	turns    int    // that the program has ended
	answered bool   // the last of them, by an answer
	skip     int    // ends of turns that were acted upon by an earlier daemon
	stderr   []string
	errRest  []byte
	exit     engine.Exit
	raw      process.Exit
	over     bool          // the worker has told everything
	lost     *fault.Record // the worker itself died
	failed   error         // writing the prompt failed
	lastSeq  int64
	sign     time.Time // if the worker was dead already: the last that it did
	shown    time.Time // when the text so far was last shown
	active   time.Time // when the program last made progress
}

type write struct {
	kind  string // of the record
	data  []byte
	close bool // close standard input instead
}

// result is what a driver hands over.
type result struct {
	out  engine.Outcome
	cmd  engine.Command
	exit string
	took time.Duration

	maxUSD float64
	end    time.Time // zero is now
	left   bool      // there is none: the next daemon goes on
}

// drive runs the job from its slot to the end of its process. The caller
// calls done afterwards, once the answer is on disk.
func (m *Manager) drive(ctx context.Context, j *job) (res result, done func()) {
	begin := time.Now()
	d := &driver{m: m, j: j}
	fail := func(err error) (result, func()) {
		return result{out: engine.Outcome{Fault: fault.From(err, fault.Worker, operation)}, cmd: d.cmd, took: time.Since(begin), maxUSD: d.cap}, func() {}
	}
	if j.adopted {
		begin = j.began
		switch err := d.attach(ctx); {
		case errors.Is(err, errLeft):
			return result{left: true}, func() {}
		case err != nil:
			return result{out: engine.Outcome{Fault: unknown(err)}, end: d.sign}, func() {}
		}
	} else if err := d.start(ctx); err != nil {
		return fail(err)
	}
	faultpoint.At("consult.started")
	d.follow(ctx)
	faultpoint.At("consult.followed")
	if d.gone {
		return result{left: true}, d.proc.Close
	}
	res = result{out: d.outcome(), cmd: d.cmd, end: d.end(), maxUSD: d.cap}
	res.took = res.end.Sub(begin)
	if d.exit.Known {
		res.exit = d.raw.String()
	}
	return res, d.release
}

// end is when the program ended: for an adopted run that may have been long
// before anybody saw it.
func (d *driver) end() time.Time {
	now := time.Now()
	at := d.sign
	if d.raw.UnixMS > 0 {
		at = time.UnixMilli(d.raw.UnixMS)
	}
	if !d.j.adopted || at.IsZero() || at.After(now) || at.Before(d.j.created) { // clocks are set
		return now
	}
	return at
}

// release gives the worker up. Once its last event is acked it leaves, and
// that is waited for, so that a job that has ended has left no process.
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
	case <-d.m.abandon:
	}
}

// maxUnacked is what a program may print before what was read of it is written
// down and acked, in bytes; the worker retains some times more.
const maxUnacked = 1 << 20

// leaveTimeout bounds the wait for a worker that has nothing more to do.
const leaveTimeout = 5 * time.Second

// start makes the worker.
func (d *driver) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	opt := &d.m.opt
	eng, err := d.m.engine(d.j.rec.Engine)
	if err != nil {
		return err
	}
	info, err := eng.Check(ctx)
	if err != nil {
		return err
	}
	req := d.j.rec.Request
	if err := permit(&req, &info); err != nil { // it was permitted when it was asked for
		return err
	}
	// Others have spent meanwhile.
	if req.MaxUSD, err = d.m.afford(d.m.settings.Load(), d.j.rec.Identity, d.j.rec.Session, eng, req, d.j); err != nil {
		return err
	}
	d.cap = req.MaxUSD
	temp := filepath.Join(d.j.dir, dirTemp)
	if err := os.Mkdir(temp, 0o700); err != nil && !errors.Is(err, os.ErrExist) { // an earlier daemon got that far
		return fmt.Errorf("making the run's temporary directory: %w", err)
	}
	if req.TempDir, err = d.m.shortTemp(temp, d.j.rec.ID, req.Level); err != nil {
		return err
	}
	if len(req.Schema) > 0 {
		req.SchemaFile = filepath.Join(temp, fileSchema)
		if err := statedir.WriteFile(req.SchemaFile, req.Schema); err != nil {
			return err
		}
	}
	d.cmd, d.run = eng.Command(req, info), eng.NewRun(req, info)
	if err := d.j.held(&d.cmd, info.Version); err != nil {
		return err
	}
	if err := makeDirs(&d.cmd); err != nil {
		return err
	}
	hard := time.Now().Add(d.j.timeout + opt.Ladder.Whole())
	faultpoint.At("consult.starting")
	d.proc, err = opt.Starter.Start(ctx, d.j.dir, d.j.spec(d.cmd, opt.SocketDir, hard), d.cmd.Env)
	return err
}

// startTimeout bounds the start of a worker.
const startTimeout = 30 * time.Second

// follow drives the ladder until the process is gone.
func (d *driver) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer d.ops.Wait()
	defer cancel() // runs before Wait
	errs := make(chan error, 1)
	d.writes = make(chan write, 8)
	d.ops.Go(func() { d.write(ctx, errs) })
	if d.j.adopted {
		d.timer = time.NewTimer(d.left())
	} else {
		d.timer = time.NewTimer(d.j.timeout)
	}
	defer d.timer.Stop()
	d.active = time.Now()
	stall := time.NewTimer(d.m.opt.Ladder.Stall)
	defer stall.Stop()
	d.begun = d.prompted
	if !d.begun && !d.j.ending() && d.phase == working { // who has cancelled meanwhile does not pay for it
		d.begun = true
		d.send(promptRecord, d.run.Begin())
		d.j.tell("started")
	}
	if d.run.Once() {
		d.shut()
	}
	if d.turnsOver() { // the daemon that read it has ended before it could act
		d.turnOver(ctx, d.answered)
	}
	stop, letGo := d.j.stop, d.m.letGo
	for {
		select {
		case ev, ok := <-d.proc.Events():
			if !ok || d.event(ctx, ev) {
				return
			}
		case <-stop:
			stop = nil
			d.cancel(ctx)
		case <-d.timer.C:
			if d.late(ctx) {
				return
			}
		case <-stall.C:
			stall.Reset(d.stalled(ctx))
		case err := <-errs:
			errs = nil
			d.failed = err
			d.terminate(ctx, d.m.opt.Ladder.Grace)
		case <-letGo:
			letGo = nil
			if d.phase != ending && !d.j.ending() {
				d.gone = true
				return
			}
		case <-d.m.abandon:
			d.gone = d.m.leaves()
			return
		}
	}
}

// write carries out writes, one after the other: a program that does not read
// holds back this goroutine and nothing else.
func (d *driver) write(ctx context.Context, errs chan<- error) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-d.writes:
			if w.close {
				_ = d.proc.CloseStdin(ctx) // if it fails the worker is lost, and that will be told
				continue
			}
			rec := calls.Record{
				N: d.j.rec.N, Session: d.j.rec.Session, Kind: calls.KindPrompt, Name: w.kind, Contract: contractWord,
				Identity: d.j.rec.Identity, DeadlineBootMS: bootclock.AtMS(d.j.created.Add(d.j.timeout)),
			}
			_, err := d.proc.Write(ctx, rec, w.data)
			d.asked = d.asked || !supervisor.NotDispatched(err)
			if err != nil && w.kind == promptRecord && ctx.Err() == nil {
				errs <- err
				return
			}
		}
	}
}

func (d *driver) send(kind string, data []byte) {
	select {
	case d.writes <- write{kind: kind, data: data}:
	default: // the program has not read the last eight: it will be ended
	}
}

// event handles one event of the process; it tells whether it was the last.
func (d *driver) event(ctx context.Context, ev supervisor.Event) bool {
	faultpoint.At("consult.event")
	d.lastSeq = max(d.lastSeq, ev.Seq)
	switch ev.Kind {
	case supervisor.Output:
		if ev.Stream == process.Stderr {
			d.keepStderr(ev.Data)
		} else {
			d.total += int(ev.Dropped)
			d.output(ctx, d.fresh(ev))
		}
		// What the answer is made of stays with the worker until it is kept, or
		// what was read of it is written down.
		d.unacked += len(ev.Data)
		if faultpoint.Broken("ack.confirmed") {
			d.proc.Ack(ev.Seq)
		}
		switch {
		case ev.Seq == 0: // it comes from a file
		case d.why == engine.Overflow:
			d.proc.Ack(ev.Seq)
		case d.unacked > maxUnacked && len(d.rest) <= maxRest:
			d.unacked = 0
			if err := d.checkpoint(ev.Seq); err != nil {
				d.m.opt.Log.ErrorContext(ctx, "consult cannot be written down", "consult", d.j.rec.ID, "err", err)
				break // the program waits, and nothing is lost
			}
			faultpoint.At("consult.checkpoint")
			d.proc.Ack(ev.Seq)
			faultpoint.At("consult.acked")
		}
	case supervisor.Exited:
		faultpoint.At("consult.exited")
		d.ended(ev.Exit)
	case supervisor.Closed:
		d.over = true
		return true
	case supervisor.Lost:
		d.lost = ev.Fault
		return true
	}
	return false
}

// ended takes the end of the program.
func (d *driver) ended(exit process.Exit) {
	d.raw = exit
	d.exit = engine.Exit{Known: true, Signal: exit.Signal, SpawnErrno: exit.SpawnErrno}
	if exit.Code != nil {
		d.exit.Code = *exit.Code
	}
}

// turnDone is the end of a turn of the program.
func (d *driver) turnDone(ctx context.Context, answered bool) {
	d.turns++
	d.answered = answered
	if d.skip > 0 {
		d.skip--
		return
	}
	d.turnOver(ctx, answered)
}

// turnOver does what the end of a turn calls for.
func (d *driver) turnOver(ctx context.Context, answered bool) {
	ladder := &d.m.opt.Ladder
	switch d.phase {
	case working, best:
		d.leave(ladder.Leave)
	case interrupting:
		ask := d.run.BestAnswer()
		if answered || ask == nil {
			if answered {
				d.why = engine.Itself // it had ended by itself just then
			}
			d.leave(ladder.Leave)
			return
		}
		d.phase = best
		d.j.tell("time is up, asked for the best answer so far")
		d.send(bestRecord, ask)
		d.timer.Reset(ladder.Best)
	case cancelling:
		d.terminate(ctx, ladder.CancelGrace)
	case leaving, ending:
	}
}

// leave lets the program go: with its standard input closed it ends by
// itself.
func (d *driver) leave(within time.Duration) {
	d.phase = leaving
	d.shut()
	d.timer.Reset(within)
}

// shut closes the program's standard input, behind what it was sent.
func (d *driver) shut() {
	select {
	case d.writes <- write{close: true}:
	default: // see send
	}
}

// cancel begins the short ladder: a word to the program, so that its session
// and its cost are told, then the end.
func (d *driver) cancel(ctx context.Context) {
	ladder := &d.m.opt.Ladder
	interrupt := d.run.Interrupt()
	switch d.phase {
	case working, interrupting, best:
		d.why = engine.Cancelled
		if interrupt == nil || !d.begun {
			d.endUnasked(ctx, ladder.CancelGrace)
			return
		}
		d.phase = cancelling
		d.j.tell("cancelling")
		d.send(cancelRecord, interrupt)
		d.timer.Reset(ladder.Cancel)
	case cancelling:
	case leaving, ending:
		d.terminate(ctx, ladder.CancelGrace)
	}
}

// late is the end of a rung's time; it tells whether to give up.
func (d *driver) late(ctx context.Context) bool {
	ladder := &d.m.opt.Ladder
	switch d.phase {
	case working:
		d.interrupt(ctx, engine.Deadline, "time is up")
	case interrupting, best, leaving:
		d.terminate(ctx, ladder.Grace)
	case cancelling:
		d.terminate(ctx, ladder.CancelGrace)
	case ending:
		return true
	}
	return false
}

// interrupt begins the long ladder: the program is to give its best answer.
func (d *driver) interrupt(ctx context.Context, why engine.Why, note string) {
	ladder := &d.m.opt.Ladder
	d.why = why
	interrupt := d.run.Interrupt()
	if interrupt == nil {
		d.endUnasked(ctx, ladder.Grace)
		return
	}
	d.phase = interrupting
	d.j.tell("%s", note)
	d.send(interruptRecord, interrupt)
	d.timer.Reset(ladder.Interrupt)
}

// stalled ends a program that has made no progress for too long, and says when
// to look again.
func (d *driver) stalled(ctx context.Context) time.Duration {
	stall := d.m.opt.Ladder.Stall
	if quiet := time.Since(d.active); quiet < stall {
		return stall - quiet
	}
	if d.phase == working {
		d.interrupt(ctx, engine.Stalled, "no progress for "+stall.String())
	}
	return stall
}

// endUnasked ends a program that was not asked to end its turn first: why it
// ends is written down before.
func (d *driver) endUnasked(ctx context.Context, grace time.Duration) {
	if err := d.j.endsBy(d.why); err != nil {
		d.m.opt.Log.ErrorContext(ctx, "consult cannot be written down", "consult", d.j.rec.ID, "err", err)
	}
	d.terminate(ctx, grace)
}

// terminate ends the program and its tree. It does not wait.
func (d *driver) terminate(ctx context.Context, grace time.Duration) {
	d.phase = ending
	d.ops.Go(func() { _, _ = d.proc.Terminate(ctx, grace) }) // if it fails the worker is lost, and that will be told
	d.timer.Reset(giveUp)
}

// outcome reads the end of the run.
func (d *driver) outcome() engine.Outcome {
	d.run.Torn(d.rest)
	d.stderrLine(d.errRest)
	d.exit.Stderr = d.stderr
	out := d.run.Outcome(d.exit, d.why)
	switch {
	case out.Fault == nil:
	case d.raw.SpawnErrno != "" && d.raw.SpawnOp == "chdir":
		out.Fault = invalid("cwd: %s is not there any more (%s)", d.j.rec.Request.Cwd, d.raw.SpawnErrno)
	case d.raw.SpawnErrno != "" && d.raw.SpawnOp == process.OpConfine:
		out.Fault = fault.New(fault.Denied, fault.Worker, operation,
			"level %s cannot be enforced on this machine: Landlock refused to confine the program (%s)", d.cmd.Level, d.raw.SpawnErrno)
	case d.lost != nil && !d.prompted && !d.asked:
		out.Fault = fault.New(fault.ProcessFailure, fault.Worker, operation, "the consult's worker was lost before its program was told anything")
		out.Fault.Fault.Generation, out.Fault.Cause = d.lost.Fault.Generation, d.lost.Cause
	case d.failed != nil && d.exit.Signal != "":
		// It was ended because it could not be told the prompt.
		out.Fault = fault.From(fmt.Errorf("telling the program its prompt: %w", d.failed), fault.Worker, operation)
	case d.lost != nil && out.Fault.Fault.Code == fault.OutcomeUnknown:
		out.Fault.Fault.Generation, out.Fault.Cause = d.lost.Fault.Generation, d.lost.Cause
		out.Fault.Fault.Detail += ": " + d.lost.Fault.Detail
	}
	judge(&out, d.j.rec.Request.Schema)
	if out.Fault != nil && out.Fault.Fault.Generation == 0 {
		out.Fault.Fault.Generation = d.proc.Generation()
	}
	return out
}
