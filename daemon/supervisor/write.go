package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/supervisor/far"
	"holdline/daemon/supervisor/near"
	"holdline/daemon/waiting"
	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// maxOutstanding bounds the bytes of writes that are not yet in the child's pipe. The
// worker takes no more than that.
const maxOutstanding = workerwire.MaxPayload

// Write records rec with the next write id, then writes data to the child's stdin. It
// returns the id when the bytes are in the child's pipe, or when ctx is done, which does
// not take the write back.
//
// An error is a [*fault.Record]. If [NotDispatched] returns true for it the child has got
// no byte, and the id is 0 since another write may get it. Otherwise the outcome of the
// write is unknown.
func (w *Worker) Write(ctx context.Context, rec calls.Record, data []byte) (int64, error) {
	return w.WriteFunc(ctx, time.Time{}, rec, func(int64) (bulk.Parts, error) { return bulk.Parts{Before: data}, nil })
}

// WriteFunc is [Worker.Write] of the bytes that compose returns in parts for the write id. The
// id is among the bytes: it is the JSON-RPC id of the request. An error of compose is a fault,
// and nothing is written. compose must not write itself. WriteFunc returns at the time until, too,
// as when ctx is done, unless that is zero: each call has such a time, and a context with a
// deadline takes long to make.
//
// A connection to another machine breaks while the worker lives. If the worker has not taken the
// write then, compose is called again, for the id that the write has on the next connection. The
// id before is void, and may be that of another write by then.
func (w *Worker) WriteFunc(
	ctx context.Context, until time.Time, rec calls.Record, compose func(id int64) (bulk.Parts, error),
) (int64, error) {
	for {
		id, err := w.writeOnce(ctx, until, rec, compose)
		if void, ok := errors.AsType[notDispatchedError](err); !ok || !errors.Is(void.why, errLost) || w.spec.Far == nil {
			return id, err
		}
	}
}

// writeOnce is [Worker.WriteFunc] with one id.
func (w *Worker) writeOnce(
	ctx context.Context, until time.Time, rec calls.Record, compose func(id int64) (bulk.Parts, error),
) (int64, error) {
	if err := w.awaitTurn(ctx, until, w.slots); err != nil {
		return 0, err
	}
	defer func() { <-w.slots }()
	wr, ch, err := w.queueWrite(ctx, until, rec, compose)
	if err != nil {
		return 0, err
	}
	if wr.leads != nil {
		w.commit(wr.leads)
	}
	faultpoint.At("write.sent")
	if faultpoint.Broken("record.first") {
		_ = w.journal.Append(wr.rec)
	}
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outstanding -= wr.size
		delete(w.inFlight, wr)
	}()
	for {
		var why error
		select {
		case f, ok := <-ch:
			switch {
			case ok:
				return settled(wr, w.written(&f))
			case wr.err != nil:
				return settled(wr, wr.err)
			}
		case <-late:
			why = context.DeadlineExceeded
		case <-ctx.Done():
			why = context.Cause(ctx)
		}
		if why != nil {
			select {
			case _, ok := <-ch: // it may have been refused at the same time
				if !ok && wr.err != nil {
					return settled(wr, wr.err)
				}
			default:
			}
			return wr.id, w.unknown(why)
		}
		// The connection broke. On the next one the worker reports which writes
		// it has taken. If it is sent one of these again, it answers with the outcome.
		limited, cancel := withUntil(ctx, until)
		ch, err = w.repeatWrite(limited, wr)
		cancel()
		if err != nil {
			return settled(wr, err)
		}
	}
}

// awaitTurn puts a token into turns, which the caller must take out again. It returns the fault of
// a write that was not dispatched if the worker is gone, ctx is done, or until has come before.
func (w *Worker) awaitTurn(ctx context.Context, until time.Time, turns chan struct{}) error {
	select {
	case turns <- struct{}{}:
		return nil
	default:
	}
	ctx, cancel := withUntil(ctx, until)
	defer cancel()
	select {
	case turns <- struct{}{}:
		return nil
	case <-w.gone:
		return w.writeFault(fault.TransportFailure, errGone)
	case <-ctx.Done():
		return w.writeFault(fault.Cancelled, context.Cause(ctx))
	}
}

// withUntil returns ctx with the deadline until, unless that is zero. The caller must call the
// returned function.
func withUntil(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	if until.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, until)
}

// settled returns the results of Write for a write that ended with err. The id of a write
// that was not dispatched is 0: another write may get it.
func settled(wr *write, err error) (int64, error) {
	if NotDispatched(err) {
		return 0, err
	}
	return wr.id, err
}

// write is a write that has no outcome yet.
type write struct {
	id   int64 // of the write; the worker takes ids without gaps
	size int   // bytes
	void bool  // it was not taken, and another write may have its id; guarded by the worker's mu

	rec   calls.Record
	frame workerwire.Frame // until it is queued
	link  string           // path of a file in the worker's directory that the frame names; "" if none
	leads *client          // must be committed by the goroutine of this write; nil if another does so
	err   error            // why it was not recorded; set before its channel is closed
}

// notDispatchedError marks the fault of a write of which the child has got no byte.
type notDispatchedError struct {
	*fault.Record
	why error // what happened
}

// Unwrap returns the fault.
func (e notDispatchedError) Unwrap() error { return e.Record }

// errStdinClosed says that the child has closed its stdin, or that the worker has, to end
// the child: either way it ends soon.
var errStdinClosed = errors.New("it does not take input any more")

// NotDispatched reports whether the err of a write means that the child has got no byte
// of it.
func NotDispatched(err error) bool {
	_, ok := errors.AsType[notDispatchedError](err)
	return ok
}

// writeFault returns the error of a write that was not dispatched.
func (w *Worker) writeFault(code fault.Code, err error) error {
	r := fault.New(code, fault.Worker, "write:"+w.spec.Name, "%s was not told: %v", w.spec.Name, err)
	if own := far.FaultOf(err, "write:"+w.spec.Name); own != nil {
		r = own
	}
	if own := fault.Exhausted("write:"+w.spec.Name, err); own != nil {
		r = own
	}
	r.Fault.Generation = w.spec.Generation
	return notDispatchedError{r, err}
}

// unknown returns the error of a write whose outcome is not known.
func (w *Worker) unknown(err error) error {
	r := fault.New(fault.OutcomeUnknown, fault.Worker, "write:"+w.spec.Name,
		"%s may have been told: %v", w.spec.Name, err)
	r.Fault.Generation = w.spec.Generation
	return r
}

// queueWrite gives out the next id and queues the record and the bytes. On an error nothing is
// queued, and the id is given out again. The caller must commit wr.leads: several writes are
// recorded and sent as one then, in the order of their ids.
func (w *Worker) queueWrite(
	ctx context.Context, until time.Time, rec calls.Record, compose func(int64) (bulk.Parts, error),
) (*write, <-chan workerwire.Frame, error) {
	if err := w.awaitTurn(ctx, until, w.writes); err != nil {
		return nil, nil, err
	}
	defer func() { <-w.writes }()
	wr := &write{rec: rec}
	var c *client
	if rec.Kind == calls.KindCall {
		patient, cancel := w.patient(ctx)
		defer cancel()
		ctx = patient
	}
	// If the connection breaks after this, the client takes no more requests.
	// The next attach then sets w.next again and voids writes that were not taken.
	err := w.wait(ctx, until, func() bool {
		if c = w.c; c == nil {
			return false
		}
		wr.id = w.next
		w.next++
		w.inFlight[wr] = struct{}{}
		return true
	})
	if err != nil {
		return nil, nil, w.writeFault(fault.TransportFailure, err)
	}
	ch, err := w.dispatch(ctx, until, c, wr, compose)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		delete(w.inFlight, wr)
		w.outstanding -= wr.size
		if w.next == wr.id+1 {
			w.next = wr.id // a record that was written is void
		}
		return nil, nil, err
	}
	w.changed.Broadcast() // see readOn
	return wr, ch, nil
}

// dispatch composes the bytes of a write, and queues its record and them on c. On an error nothing
// is queued.
func (w *Worker) dispatch(
	ctx context.Context, until time.Time, c *client, wr *write, compose func(int64) (bulk.Parts, error),
) (<-chan workerwire.Frame, error) {
	parts, err := compose(wr.id)
	if err != nil {
		return nil, w.writeFault(fault.InternalFailure, err)
	}
	size := parts.Size()
	w.mu.Lock()
	waiting := w.outstanding + w.backlog
	if size+waiting > maxOutstanding {
		w.mu.Unlock()
		return nil, w.writeFault(fault.ResourceExhausted,
			fmt.Errorf("%d bytes, and %d wait to be read already", size, waiting))
	}
	wr.size = size
	w.outstanding += wr.size
	w.mu.Unlock()
	wr.rec.Write = wr.id
	wr.frame = w.writeFrame(wr, &parts)
	ch, leads := c.queueWrite(wr)
	if leads {
		wr.leads = c
	}
	if ch == nil {
		wr.removeLink()
		if w.spec.Far != nil { // its next connection, or its end, will tell
			_ = w.wait(ctx, until, func() bool { return w.c != c })
		}
		return nil, w.writeFault(fault.TransportFailure, errLost)
	}
	return ch, nil
}

// commit records the writes on c that wait for that, as one, and sends their frames. Goroutines that
// are about to queue a write get their turn before that. Writes that cannot be recorded are not
// sent, and their goroutines get the error. It does nothing once the connection has broken: a
// record would void those of writes on the next one.
func (w *Worker) commit(c *client) {
	runtime.Gosched()
	if w.recordQueued(c) {
		_ = c.flush() // after an error the connection is broken: the next attach shows what was taken
	}
}

// recordQueued is the part of commit that needs the token of w.writes. If it returns true, the
// caller must call [client.flush].
func (w *Worker) recordQueued(c *client) (leads bool) {
	select {
	case w.writes <- struct{}{}:
		defer func() { <-w.writes }()
	case <-c.lost:
	}
	if waiting.IsClosed(c.lost) {
		return false
	}
	c.queueing.Lock()
	writes := c.unrecorded
	c.unrecorded, c.records = c.recorded[:0], false
	c.queueing.Unlock()
	defer func() {
		clear(writes)
		c.recorded = writes
	}()
	if err := w.record(c, writes); err != nil {
		c.refuse(writes, err)
		return false
	}
	for _, wr := range writes {
		if c.enqueue(wr.frame) {
			leads = true
		}
		wr.frame = workerwire.Frame{}
	}
	return leads
}

// record writes the records of writes that are to be sent on c, all or none. They come first: a
// call that the child may see must be known to the next daemon. On an error, which is that of each
// write, their ids are given out again. It must be called with the token of w.writes.
func (w *Worker) record(c *client, writes []*write) (err error) {
	if faultpoint.Broken("record.first") {
		return nil
	}
	records := w.records[:0]
	for _, wr := range writes {
		records = append(records, wr.rec)
	}
	defer func() {
		clear(records)
		w.records = records
	}()
	if !w.sup.Still() {
		err = w.writeFault(fault.TransportFailure, errDisowned)
	} else if err = w.journal.Append(records...); err != nil {
		err = w.writeFault(fault.ResourceExhausted, err)
	}
	faultpoint.At("write.recorded")
	if err == nil {
		w.markSent(c, writes[len(writes)-1].id)
		return nil
	}
	for _, wr := range writes {
		wr.removeLink()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == c { // else the next attach sets it
		w.next = writes[0].id
	}
	return err
}

// markSent marks the last write that is about to be sent on c to a worker elsewhere, so that its record is missed if it
// is lost: should that worker die, its own mark is lost with it.
func (w *Worker) markSent(c *client, id int64) {
	if w.mark == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c == c { // else the next attach says what was taken
		w.mark.Set(id)
	}
}

// errDisowned is the reason of writes that a daemon no longer makes, since another may be at work.
var errDisowned = errors.New("clients no longer reach this daemon")

// Disowned reports whether a write was not dispatched since clients no longer reach this daemon.
func Disowned(err error) bool {
	void, ok := errors.AsType[notDispatchedError](err)
	return ok && errors.Is(void.why, errDisowned)
}

// removeLink removes the name of the file of a write that is not sent.
func (wr *write) removeLink() {
	if wr.link != "" {
		_ = os.Remove(wr.link)
	}
}

// writeFrame returns the frame of a write. If the long part lies in a file, the worker copies it
// from there to the child: wr.link is then the name that the file has in the worker's directory.
func (w *Worker) writeFrame(wr *write, p *bulk.Parts) workerwire.Frame {
	frame := workerwire.Frame{Kind: workerwire.Write, N: wr.id, Payload: p.Before}
	if p.File != nil && w.spec.Far == nil {
		link := filepath.Join(w.dir, process.FileInput+rand.Text())
		if err := os.Link(p.File.Path, link); err == nil {
			wr.link = link
			span := protocol.Span{File: filepath.Base(link), Offset: p.File.Offset, Size: p.File.Size}
			frame.Body = jsonrpc.Encode(workerwire.Filed{Before: len(p.Before), Span: span})
			frame.Payload = slices.Concat(p.Before, p.After)
			return frame
		}
	}
	if p.Long != nil {
		frame.Payload = slices.Concat(p.Before, p.Long, p.After)
	}
	return frame
}

// removeInputs removes the files of writes that the worker will never open: those of an
// earlier connection.
func (w *Worker) removeInputs() { near.RemoveFiles(w.dir, process.FileInput) }

// repeatWrite asks on the next connection for the outcome of a write. It sends the id
// without bytes: the worker has taken that id, or the write is void. A void write was not
// dispatched. On any other error the outcome is unknown.
func (w *Worker) repeatWrite(ctx context.Context, wr *write) (<-chan workerwire.Frame, error) {
	for {
		var c *client
		void := false
		err := w.wait(ctx, time.Time{}, func() bool {
			c, void = w.c, wr.void
			return c != nil
		})
		switch {
		case err != nil:
			return nil, w.unknown(err)
		case void:
			return nil, w.writeFault(fault.TransportFailure, errLost)
		}
		// A connection after this one might void the write only if the worker
		// forgot what it took, which it does not.
		if ch, _ := c.request(workerwire.Frame{Kind: workerwire.Write, N: wr.id}); ch != nil {
			w.readOn()
			return ch, nil
		}
		if err := w.reconnected(ctx, c); !errors.Is(err, errLost) {
			return nil, w.unknown(err)
		}
	}
}

// written returns nil if the answer f reports that a write was made, else the write's fault.
func (w *Worker) written(f *workerwire.Frame) error {
	if err := f.Err(); err != nil {
		if e, ok := errors.AsType[*workerwire.Error](err); ok && e.Code == workerwire.CodeExhausted {
			return w.writeFault(fault.ResourceExhausted, err)
		}
		return w.writeFault(fault.TransportFailure, err)
	}
	w.mu.Lock()
	w.backlog = 0 // writes are made in order
	w.mu.Unlock()
	faultpoint.At("write.made")
	switch workerwire.WriteStatus(f.N) {
	case workerwire.WriteAccepted:
		return nil
	case workerwire.WriteStdinClosed:
		return w.writeFault(fault.ProcessFailure, errStdinClosed)
	case workerwire.WriteTorn: // a part of it was written: no later write can be made
	}
	r := fault.New(fault.ProcessFailure, fault.Worker, "write:"+w.spec.Name,
		"%s does not take input any more", w.spec.Name)
	r.Fault.Generation = w.spec.Generation
	return r
}
