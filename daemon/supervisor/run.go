package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"holdline/daemon/supervisor/far"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/supervisor/near"
	"holdline/daemon/waiting"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// errDead is returned by connect if the worker's lock is free and its whole tree was
// killed. Only then may a call be reported as lost.
var errDead = errors.New("the worker is dead")

// errSilent is the error of a worker that lives and does not answer in time.
var errSilent = errors.New("the worker does not answer")

// spoolChunk is the size of an event made from a spool, in bytes.
const spoolChunk = 64 << 10

// keepConnected receives events on c, and connects again when the connection breaks, until
// the worker is over or detached. A nil c means that the worker is dead already. For a dead
// worker it queues the last events from its files. It runs in a goroutine of its own.
func (w *Worker) keepConnected(ctx context.Context, c *client) {
	defer w.cancel()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endLocked()
	}()
	log := w.sup.log.With("worker", w.spec.ID, "name", w.spec.Name)
	var err error
	for c != nil {
		if c.session != nil {
			current := c // which is another one once the goroutine runs
			w.sup.wg.Go(func() { w.keepAlive(current) })
		}
		err = w.receive(c)
		c.fail()
		w.mu.Lock()
		w.c, w.downSince = nil, time.Now()
		w.moveLocked(Recovering)
		w.changed.Broadcast()
		over := w.closed > 0
		w.mu.Unlock()
		if w.isDetached() {
			return
		}
		// A worker elsewhere may not know yet that its last event is acknowledged.
		if over && c.session == nil {
			break
		}
		if !over {
			log.WarnContext(ctx, "connection to worker lost", "err", err)
		}
		if c, err = w.connectAgain(ctx); err != nil && !errors.Is(err, errDead) {
			if ctx.Err() == nil && !errors.Is(err, ErrClosed) { // another daemon is in this one's place
				log.ErrorContext(ctx, "worker given up", "err", err)
			}
			w.Close()
			return
		}
	}
	w.mu.Lock()
	w.moveLocked(Stopping)
	over := w.closed > 0
	w.mu.Unlock()
	if over {
		if err := w.sup.WaitDead(ctx, w.dir); err != nil {
			log.WarnContext(ctx, "worker is slow to leave", "err", err)
		}
		log.InfoContext(ctx, "worker ended")
		return
	}
	w.aftermath(ctx)
}

// connectPause is the pause between attempts of [Worker.connectAgain].
const connectPause = time.Second

// connectAgain is [Worker.connect] for a worker to which this daemon was attached. What may pass is no
// reason to leave calls in flight without anybody who waits for their answers.
func (w *Worker) connectAgain(ctx context.Context) (*client, error) {
	for {
		c, err := w.connect(ctx)
		over := errors.Is(err, errDead) || errors.Is(err, ErrClosed) || errors.Is(err, errDisowned)
		if err == nil || over || ctx.Err() != nil {
			return c, err
		}
		w.sup.log.WarnContext(ctx, "worker cannot be reached for now", "worker", w.spec.ID, "err", err)
		if err := waiting.Pause(ctx, connectPause); err != nil {
			return nil, err
		}
	}
}

// connect attaches to the worker, wherever it runs, and tries again as long as it lives. It
// returns [errDead] once nothing of it is left.
func (w *Worker) connect(ctx context.Context) (*client, error) {
	return w.sup.placeOf(w.dir).connect(ctx, w)
}

// connectHere is connect for a worker on this machine. It kills a worker that lives and does not
// answer in time.
func (w *Worker) connectHere(ctx context.Context) (*client, error) {
	for {
		c, err := w.connectOnce(ctx)
		if !errors.Is(err, errSilent) || ctx.Err() != nil {
			return c, err
		}
		// A full queue of connections, EAGAIN, is the worker's own doing.
		if fault.Exhausted("", err) == nil || errors.Is(err, syscall.EAGAIN) {
			return nil, w.giveUp(ctx, err)
		}
		w.sup.log.WarnContext(ctx, "worker cannot be reached for now", "worker", w.spec.ID, "err", err)
	}
}

// connectOnce tries to connect for [answerTimeout]. If the worker lives and has not
// answered by then, it returns errSilent, joined with the last failure. It returns at once
// if the worker is dead, and if it answers but refuses this daemon.
func (w *Worker) connectOnce(ctx context.Context) (*client, error) {
	limit, cancel := context.WithTimeoutCause(ctx, answerTimeout, errSilent)
	defer cancel()
	for {
		alive, err := finding.Alive(w.dir)
		if err == nil && !alive || errors.Is(err, os.ErrNotExist) {
			return nil, w.bury(ctx)
		}
		if w.isOverdue() {
			return nil, w.giveUp(ctx, errOverdue)
		}
		if err == nil {
			var c *client
			c, err = w.attach(limit)
			if err == nil || errors.Is(err, ErrClosed) { // detached
				return c, err
			}
		}
		switch judge(err) {
		case disowned:
			return nil, err
		case permanent:
			return nil, w.giveUp(ctx, err)
		case passes:
		}
		if perr := near.Pause(limit); perr != nil {
			if ctx.Err() != nil {
				return nil, errors.Join(context.Cause(ctx), err)
			}
			return nil, errors.Join(err, errSilent)
		}
	}
}

// isOverdue reports whether this daemon has given up waiting for the worker to end its
// child.
func (w *Worker) isOverdue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Is(w.killedBy, errOverdue)
}

// giveUp kills a worker that lives and cannot be used, unless another daemon is in this one's place. It
// records the reason why, which the fault of the Lost event names. It returns [errDead] once the worker's
// tree is gone.
func (w *Worker) giveUp(ctx context.Context, why error) error {
	if !w.sup.Still() {
		return errDisowned
	}
	w.recordKill(ctx, why)
	return w.bury(ctx)
}

// recordKill records why this daemon kills the worker, or takes it for dead.
func (w *Worker) recordKill(ctx context.Context, why error) {
	w.sup.log.ErrorContext(ctx, "worker killed since it cannot be spoken to", "worker", w.spec.ID, "err", why)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killedBy = why
}

// foreign reports whether the worker's files say nothing that can be believed: they were written by a
// program whose version is not known here, or its spec is damaged.
func (w *Worker) foreign() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Is(w.killedBy, process.ErrVersion) || errors.Is(w.killedBy, errDamaged)
}

// unendedError says that a worker could not be ended: nothing more can be found out of it.
type unendedError struct {
	dir string
	why error
}

// Error returns what is known, and where a person can look.
func (e *unendedError) Error() string {
	return fmt.Sprintf("its worker can be neither reached nor ended (%v). See holdline doctor, and the directory %s",
		e.why, e.dir)
}

// bury kills what is left of the worker and its tree. It returns [errDead] once all of that is gone, or if
// it cannot be ended, for another reason than one that may pass: to wait for it any longer helps nobody.
func (w *Worker) bury(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, near.DeathTimeout)
	defer cancel()
	err := w.sup.Destroy(limit, w.dir, false)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return errDead
	}
	if ctx.Err() != nil || mayPass(err) {
		return err
	}
	w.sup.log.ErrorContext(ctx, "worker taken for dead, since it cannot be ended",
		"worker", w.spec.ID, "dir", w.dir, "err", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killedBy = &unendedError{w.dir, err}
	return errDead
}

// attach dials the worker, and makes the new connection the only one that may write. It
// asks for the events behind the last one that was received. It returns [ErrClosed] if the
// worker was detached meanwhile.
func (w *Worker) attach(ctx context.Context) (*client, error) {
	c, hello, err := dial(ctx, w.spec.Socket, w.spec.Version)
	if err != nil {
		return nil, err
	}
	return w.attachOn(ctx, c, &hello)
}

// attachOn is [Worker.attach] on a connection that was just opened.
func (w *Worker) attachOn(ctx context.Context, c *client, hello *workerwire.InitializeResult) (*client, error) {
	if hello.ID != w.spec.ID {
		c.closeConn()
		return nil, workerwire.Errorf(workerwire.CodeInvalid,
			"worker %s answers at the socket of %s", hello.ID, w.spec.ID)
	}
	w.mu.Lock()
	after := w.last
	w.mu.Unlock()
	c.onAck = w.ackTaken
	var a workerwire.AttachResult
	for raised := false; ; raised = true {
		params := workerwire.AttachParams{Epoch: w.sup.epoch.Load(), AfterSeq: after}
		err := c.exchange(ctx, workerwire.Attach, params, &a)
		if err == nil {
			break
		}
		if e, ok := errors.AsType[*workerwire.Error](err); ok && e.Code == workerwire.CodeStaleEpoch && !raised {
			if err = w.sup.raiseEpoch(ctx, e); err == nil {
				continue
			}
		}
		c.closeConn()
		return nil, err
	}
	w.removeInputs() // no frame of the connection before is taken any more
	faultpoint.At("attach.fenced")
	acked, ok := w.attached(c, hello, &a)
	if !ok {
		c.closeConn()
		return nil, ErrClosed
	}
	if acked > a.Acked {
		c.ack(acked)
	}
	return c, nil
}

// attached records a connection and what the worker has answered on it. Writes in flight
// that the worker has not taken are void: the worker will never take them, since only the
// new connection may write. It returns the number up to which events were acknowledged, or
// false if the worker was detached meanwhile.
func (w *Worker) attached(c *client, hello *workerwire.InitializeResult, a *workerwire.AttachResult) (
	acked int64, ok bool,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDetached() {
		return 0, false
	}
	if w.pid == 0 { // the first attach
		w.old, w.begun, w.backlog = a.NextSeq, a.Acked, int(a.Queued)
	}
	w.c, w.pid, w.child, w.secrets = c, hello.PID, hello.ChildPID, a.Secrets
	w.last = max(w.last, a.Acked)
	w.next = a.LastWrite + 1
	w.mark.Set(a.LastWrite)
	for wr := range w.inFlight {
		wr.void = wr.void || wr.id > a.LastWrite
	}
	faultpoint.At("attach.voided")
	w.moveLocked(Ready)
	w.changed.Broadcast()
	return w.acked, true
}

// receive reads answers and events until the connection breaks or an event is missing. It
// stops reading while too many events wait for the user, unless a request on c is not
// answered: its answer stands behind the events. It returns why it ended.
func (w *Worker) receive(c *client) error {
	for {
		w.mu.Lock()
		for w.queued > maxWaiting && !w.isDetached() && !c.busy() {
			w.changed.Wait()
		}
		w.mu.Unlock()
		f, err := c.r.Next()
		if err != nil {
			return err
		}
		if f.ID > 0 {
			c.answered(f)
			continue
		}
		faultpoint.At("attach.received")
		w.keepStderr(c, &f)
		if err := w.queueEvent(&f); err != nil {
			w.sup.log.Error("bad event from worker", "worker", w.spec.ID, "err", err)
			return err
		}
	}
}

// queueEvent queues the event f. It drops an event that was received before: after each
// attach the worker sends what was not acknowledged again. It returns an error if an event
// is missing before f: the user must get the events without gaps.
func (w *Worker) queueEvent(f *workerwire.Frame) error {
	var dropped workerwire.Dropped
	var exit process.Exit
	var err error
	switch {
	case len(f.Body) == 0:
	case f.Kind == workerwire.Exited:
		err = json.Unmarshal(f.Body, &exit)
	default:
		err = json.Unmarshal(f.Body, &dropped)
	}
	if err != nil {
		return fmt.Errorf("event %d: %w", f.N, err)
	}
	if f.Kind == workerwire.Exited && exit.Failed() {
		exit.Limit = w.group.Reached(w.spec.Bounds)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.N <= w.last {
		return nil
	}
	if first := max(dropped.First, 0); first == 0 && f.N > w.last+1 || first > w.last+1 {
		return fmt.Errorf("event %d: the one after %d is missing", f.N, w.last)
	}
	w.last = f.N
	e := Event{Seq: f.N, Old: f.N < w.old}
	switch f.Kind {
	case workerwire.Stdout:
		e.Kind, e.Stream, e.Data, e.Dropped = Output, process.Stdout, f.Payload, dropped.Bytes
		e.Span, e.Sum = dropped.Span, dropped.Sum
		w.held = append(w.held, held{f.N, len(e.Data) + int(e.Span.Size+e.Dropped)})
	case workerwire.Stderr:
		e.Kind, e.Stream, e.Data, e.Dropped = Output, process.Stderr, f.Payload, dropped.Bytes
		if w.tail = append(w.tail, e.Data...); len(w.tail) > stderrTail {
			w.tail = append(w.tail[:0], w.tail[len(w.tail)-stderrTail:]...)
		}
	case workerwire.Exited:
		e.Kind, e.Exit = Exited, exit
		w.exit = &exit
		w.child = 0
	case workerwire.Closed:
		e.Kind, e.Exit = Closed, w.exitLocked()
		w.closed = f.N
		w.moveLocked(Stopping)
	default:
		return nil // a kind that only newer workers send
	}
	w.putLocked(e)
	return nil
}

// exitLocked returns how the child has ended, as far as that is known. The caller must
// hold w.mu.
func (w *Worker) exitLocked() process.Exit {
	if w.exit == nil {
		return process.Exit{}
	}
	return *w.exit
}

// putLocked queues an event. The caller must hold w.mu.
func (w *Worker) putLocked(e Event) {
	w.queue = append(w.queue, e)
	w.queued += len(e.Data)
	w.announce()
	w.changed.Broadcast()
}

// aftermath queues the last events of a dead worker. If it left in order, its files have
// them; else the last event is [Lost], with a fault that says why. The worker's tree must
// have been killed before.
func (w *Worker) aftermath(ctx context.Context) {
	log := w.sup.log.With("worker", w.spec.ID, "name", w.spec.Name)
	st, err := process.ReadState(w.dir)
	if err == nil && st.Phase == process.PhaseExited && st.Exit != nil && !w.foreign() {
		if err = w.fromFiles(&st); err == nil {
			log.InfoContext(ctx, "worker had ended by itself")
			return
		}
	}
	detail := "its worker was killed"
	if err != nil {
		detail = "its worker is gone: " + err.Error()
	}
	if limit := w.group.Reached(w.spec.Bounds); limit != "" {
		detail += ", after its " + limit + " was reached"
	}
	tail := w.StderrTail()
	w.mu.Lock()
	defer w.mu.Unlock()
	if u, ok := errors.AsType[*far.UnreachableError](w.killedBy); ok {
		detail = u.Error()
	} else if u, ok := errors.AsType[*unendedError](w.killedBy); ok {
		detail = u.Error()
	} else if w.killedBy != nil {
		detail = "its worker was killed, since it cannot be spoken to: " + w.killedBy.Error()
	}
	r := fault.New(fault.ProcessFailure, fault.Worker, "run:"+w.spec.Name, "%s is gone, %s", w.spec.Name, detail)
	r.Fault.Generation = w.spec.Generation
	r.Cause = &fault.Cause{StderrTail: tail}
	faultpoint.At("attach.lost")
	w.lost = r
	log.WarnContext(ctx, "worker lost", "err", err)
	w.putLocked(Event{Kind: Lost, Exit: w.exitLocked(), Fault: r})
}

// fromFiles queues the events in the files of a worker that left in order, up to [Closed].
// On an error some output may be queued already: a Lost follows.
func (w *Worker) fromFiles(st *process.State) error {
	if st.Spool != nil {
		if err := w.fromSpool(st.Spool, st.Acked); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.closed = max(w.last, st.NextSeq-1), st.NextSeq-1
	if w.exit == nil {
		w.putLocked(Event{Kind: Exited, Exit: *st.Exit, Old: true})
	}
	w.exit = st.Exit
	w.putLocked(Event{Kind: Closed, Seq: w.closed, Exit: *st.Exit, Old: true})
	return nil
}

// fromSpool queues the part of the spool that this daemon has not received. acked is the
// number up to which the worker knew its output to be acknowledged: its spool begins behind
// that, so the output that was received since is skipped. It blocks while too many events
// wait for the user.
func (w *Worker) fromSpool(s *process.Spool, acked int64) error {
	f, err := ownfile.Open(filepath.Join(w.dir, process.FileSpool))
	if errors.Is(err, os.ErrNotExist) && s.Bytes == 0 {
		err = nil
	} else if err == nil {
		defer func() { _ = f.Close() }()
	}
	if err != nil {
		return fmt.Errorf("read spool: %w", err)
	}
	skip := s.Acked
	w.mu.Lock()
	for _, h := range w.held {
		if h.seq > acked {
			skip += int64(h.size)
		}
	}
	w.mu.Unlock()
	for off := skip; off < s.Bytes; {
		b := make([]byte, min(spoolChunk, s.Bytes-off))
		n, err := f.ReadAt(b, off)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read spool: %w", err)
		}
		w.mu.Lock()
		for w.queued > maxWaiting && !w.isDetached() {
			w.changed.Wait()
		}
		w.putLocked(Event{Kind: Output, Stream: process.Stdout, Data: b[:n], Old: true})
		w.mu.Unlock()
		off += int64(n)
		if w.isDetached() {
			return nil
		}
	}
	if s.Lost > 0 {
		w.mu.Lock()
		w.putLocked(Event{Kind: Output, Stream: process.Stdout, Dropped: s.Lost, Old: true})
		w.mu.Unlock()
	}
	return nil
}
