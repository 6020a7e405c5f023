package worker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"time"

	"holdline/daemon/worker/gate"
	"holdline/protocol"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/rawio"
	"holdline/protocol/socket"
	"holdline/protocol/workerwire"
)

// Limits of a connection.
const (
	maxConns    = 16
	maxRequests = 1024             // unanswered requests
	maxFrames   = 2 * maxRequests  // answers not yet sent
	answerDelay = time.Millisecond // how long an answer waits for output that it can be sent with
)

// conn is the connection of one peer. Two goroutines run for it: serve handles its requests
// in order, and push sends its answers and events. w.mu guards all fields below w.
type conn struct {
	nc     rawio.Socket
	stream *rawio.Stream // over nc
	w      *worker

	answers  []workerwire.Frame // in the order of the answers, not yet taken by push or sendNow
	taken    []workerwire.Frame // what push or sendNow has taken last
	due      bool               // push must send the answers now
	soon     *time.Timer        // sets due; nil before it was first needed
	inFlight int                // requests that are not answered
	version  int                // of the protocol, that both sides speak; 0 before initialize
	state    connState
	rest     net.Buffers // of frames that sendNow has begun: push writes it before anything else
	pushing  bool        // push is writing to stream, and nothing else may
	sent     int64       // with the connection attached: last number pushed
	loaded   loaded      // the next event, if the spool has it and push has read it
	out      gate.Gate   // of what was pushed and not acked
}

// connState is what is sent to a peer. It only goes forward, in dropLocked and closeLocked.
//
//	connOpen              -> connClosing: the worker leaves: the answers are sent, and no events
//	connOpen, connClosing -> connDropped: the connection broke, or another one was attached
type connState int

const (
	connOpen connState = iota
	connClosing
	connDropped
)

// closeLocked stops an open connection from reading requests and sending events. push, which the
// caller must wake, sends the answers that wait, within limit, and drops it. w.mu must be held.
func (c *conn) closeLocked(limit time.Duration) {
	if c.state == connOpen {
		c.state = connClosing
		_ = c.nc.SetWriteDeadline(time.Now().Add(limit))
		_ = c.nc.CloseRead()
	}
}

// accept serves peers until w.left and then ln are closed, and returns after their goroutines have
// ended. It refuses peers of other users, and those beyond maxConns. After an error of ln it waits
// up to a second and tries again: the process may be out of descriptors. It takes w.mu.
func (w *worker) accept(ln *net.UnixListener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wait := time.Millisecond
	for {
		unix, err := ln.AcceptUnix()
		if err != nil {
			select {
			case <-w.left:
				return
			case <-time.After(wait):
				wait = min(2*wait, time.Second)
				continue
			}
		}
		wait = time.Millisecond
		if _, err := socket.CheckPeer(unix); err != nil {
			_ = unix.Close()
			continue
		}
		nc := rawio.Quiet(unix)
		c := &conn{nc: nc, stream: rawio.New(nc), w: w}
		w.mu.Lock()
		if len(w.conns) >= maxConns || w.attendance == leaving {
			w.mu.Unlock()
			_ = nc.Close()
			continue
		}
		w.conns[c] = struct{}{}
		w.mu.Unlock()
		wg.Go(c.serve)
		wg.Go(c.push)
	}
}

// serve reads and handles requests until the connection breaks or a request breaks the protocol.
// Then it drops the connection and removes it from the worker. It takes w.mu.
func (c *conn) serve() {
	defer func() {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.dropLocked()
		delete(c.w.conns, c)
	}()
	r := workerwire.Reader{R: bufio.NewReaderSize(c.stream, 4<<10), Buf: make([]byte, 0, maxShort)}
	for {
		f, err := r.Next()
		if err != nil {
			return
		}
		// Without its bytes a write cannot be taken: the daemon makes it again at the next attach.
		b, err := c.w.openInput(&f)
		if err != nil {
			c.w.logf("open the bytes of write %d: %v", f.N, err)
			return
		}
		faultpoint.At("worker.read")
		if !c.handle(&f, b) {
			b.close()
			return
		}
	}
}

// dropLocked closes the connection, drops its answers and its waiting requests, and wakes push,
// which returns. A frame that serve has read but not handled is not handled. If c was the attached
// connection, none is attached now. A second call does nothing. The caller must hold w.mu.
func (c *conn) dropLocked() {
	if c.state == connDropped {
		return
	}
	c.state = connDropped
	c.answers = nil
	_ = c.nc.Close()
	w := c.w
	own := func(q waiter) bool { return q.c == c }
	w.in.waiting, w.ending = slices.DeleteFunc(w.in.waiting, own), slices.DeleteFunc(w.ending, own)
	if w.attached == c {
		w.attached = nil
		w.detachedAt = time.Now()
		w.wakeConduct()
	}
	w.cond.Broadcast()
}

// reply queues result as the answer to request id; none is wanted for 0. w.mu must be held.
func (c *conn) reply(id int64, result any) {
	c.answer(workerwire.Answer(id, result), false)
}

// fail queues e as the answer to request id, as [conn.reply] does. The caller must hold w.mu.
func (c *conn) fail(id int64, e *workerwire.Error) {
	c.answer(workerwire.Frame{Kind: workerwire.Failure, ID: id, Body: jsonrpc.Encode(e)}, false)
}

// confirm queues an answer without a result to request id: it was done. The caller must hold w.mu.
func (c *conn) confirm(id int64) { c.answer(workerwire.Frame{Kind: workerwire.Result, ID: id}, false) }

// replyWrite queues status as the answer to the write request id. WriteAccepted waits up to
// [answerDelay] for output to go with: so a peer is woken once. The caller must hold w.mu.
func (c *conn) replyWrite(id int64, status workerwire.WriteStatus) {
	f := workerwire.Frame{Kind: workerwire.Result, ID: id, N: int64(status)}
	c.answer(f, status == workerwire.WriteAccepted)
}

// answer queues the frame f as the answer to request f.ID, unless that is 0. It wakes push at once,
// or after [answerDelay] if canWait is true. If maxFrames answers wait already, the peer does not
// read, and answer drops the connection. The caller must hold w.mu.
func (c *conn) answer(f workerwire.Frame, canWait bool) {
	if c.state == connDropped || f.ID == 0 {
		return
	}
	c.inFlight--
	if len(c.answers) >= maxFrames {
		c.dropLocked()
		return
	}
	c.answers = append(c.answers, f)
	switch {
	case !canWait:
		c.due = true
		c.w.cond.Broadcast()
	case len(c.answers) > 1: // push was woken, or the timer runs
	case c.soon == nil:
		c.soon = time.AfterFunc(answerDelay, c.hasten)
	default:
		c.soon.Reset(answerDelay)
	}
}

// hasten wakes push to send the answers that wait. It takes w.mu.
func (c *conn) hasten() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.due = true
	c.w.cond.Broadcast()
}

// handle handles the request f, whose bytes are b if it is a Write. It returns false if the
// connection must end and the caller must close b: it was dropped, or has more than maxRequests
// unanswered. It waits neither for the child nor for a peer, so that no request delays a
// Terminate. Only the attached connection may change the child or its output; that is checked for
// each request, under w.mu, which it takes: another daemon may have attached meanwhile.
func (c *conn) handle(f *workerwire.Frame, b inputWrite) bool {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.state == connDropped && !faultpoint.Broken("worker.fence") {
		return false
	}
	if f.ID > 0 {
		if c.inFlight++; c.inFlight > maxRequests {
			return false
		}
	}
	if c.version == 0 && f.Kind != workerwire.Initialize {
		c.fail(f.ID, workerwire.Errorf(workerwire.CodeInvalid, "initialize comes first"))
		w.closeLaterLocked(b)
		return true
	}
	switch f.Kind {
	case workerwire.Initialize:
		var p workerwire.InitializeParams
		if c.parse(f, &p) {
			c.initializeLocked(f.ID, p)
		}
		return true
	case workerwire.Attach:
		var p workerwire.AttachParams
		if c.parse(f, &p) {
			c.attachLocked(f.ID, p)
		}
		return true
	case workerwire.Write, workerwire.Terminate, workerwire.Ack:
	default:
		c.fail(f.ID, workerwire.Errorf(workerwire.CodeUnknownMethod, "unknown kind %d of a request", f.Kind))
		return true
	}
	if w.attached != c && !faultpoint.Broken("worker.fence") {
		c.fail(f.ID, workerwire.Errorf(workerwire.CodeNotAttached, "this connection is not the attached one"))
		w.closeLaterLocked(b)
		return true
	}
	switch f.Kind { //nolint:exhaustive // the others were answered above
	case workerwire.Write:
		if !w.takeLocked(c, f, b) {
			w.closeLaterLocked(b)
		}
	case workerwire.Terminate:
		var p workerwire.TerminateParams
		if c.parse(f, &p) {
			w.ending = append(w.ending, waiter{c: c, id: f.ID})
			w.terminateLocked(time.Duration(p.GraceMS) * time.Millisecond)
		}
	case workerwire.Ack:
		if w.attendance == leaving {
			// state.json already records which output is acknowledged. An
			// acknowledgement beyond that would be lost, and the next daemon
			// would read that output from the spool once more.
			c.fail(f.ID, workerwire.Errorf(workerwire.CodeNotAttached, "the worker is leaving"))
			return true
		}
		w.ackLocked(f.N)
		c.confirm(f.ID)
	}
	return true
}

// parse decodes f's body into v. If it cannot, it answers so and returns false. w.mu must be held.
func (c *conn) parse(f *workerwire.Frame, v any) bool {
	if len(f.Body) == 0 {
		return true
	}
	err := json.Unmarshal(f.Body, v)
	if err != nil {
		c.fail(f.ID, workerwire.Errorf(workerwire.CodeInvalid, "request %d: %v", f.Kind, err))
	}
	return err == nil
}

// initializeLocked answers an Initialize and records the version, or answers with CodeVersion if it
// does not speak that. The caller must hold w.mu.
func (c *conn) initializeLocked(id int64, p workerwire.InitializeParams) {
	if err := process.CheckVersion(p.Version); err != nil {
		c.fail(id, workerwire.Errorf(workerwire.CodeVersion, "%v", err))
		return
	}
	w := c.w
	c.version = p.Version
	c.reply(id, workerwire.InitializeResult{
		Version: p.Version, ID: w.spec.ID,
		PID: w.self.PID, ChildPID: w.child.PID, NextSeq: w.out.next, Acked: w.out.acked,
	})
}

// attachLocked makes c the attached connection, drops the one before, and answers which write was
// taken last: the daemon decides by it which calls the child got. Events follow from the one after
// p.AfterSeq on. It wakes push and conduct. If a later daemon was attached before, or p.AfterSeq
// was not given yet, it only answers with an error. The caller must hold w.mu.
func (c *conn) attachLocked(id int64, p workerwire.AttachParams) {
	w := c.w
	if p.Epoch < w.epoch {
		stale := workerwire.Errorf(workerwire.CodeStaleEpoch, "epoch %d was here, this is %d", w.epoch, p.Epoch)
		stale.Epoch = w.epoch
		c.fail(id, stale)
		return
	}
	if p.AfterSeq < 0 || p.AfterSeq >= w.out.next {
		c.fail(id, workerwire.Errorf(workerwire.CodeInvalid, "afterSeq %d, and %d is next", p.AfterSeq, w.out.next))
		return
	}
	faultpoint.At("worker.attached")
	w.epoch = p.Epoch
	if old := w.attached; old != nil && old != c && !faultpoint.Broken("worker.fence") {
		w.attached = nil
		old.dropLocked()
	}
	w.attached = c
	w.attendLocked(attended)
	c.sent = max(p.AfterSeq, w.out.acked)
	c.out = gate.Gate{Limit: w.spec.Limits.Retain, LineMax: w.spec.Limits.Line}
	w.out.seen = max(w.out.seen, c.sent)
	c.reply(id, workerwire.AttachResult{
		LastWrite: w.in.taken, Queued: int64(w.in.bytes), Acked: w.out.acked, NextSeq: w.out.next,
		Secrets: w.secrets,
	})
	w.cond.Broadcast()
	w.wakeConduct()
}

// push sends answers and events until the connection is dropped, which it does itself after an
// error. The rest of a frame that sendNow has begun goes first, then answers, then events. It takes
// w.mu, but not while it writes or reads the spool: c.pushing keeps sendNow from writing then.
func (c *conn) push() {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for c.state == connOpen && !c.due && len(c.rest) == 0 && !c.pendingLocked() {
			w.cond.Wait()
		}
		if c.state == connClosing && len(c.answers) == 0 && len(c.rest) == 0 {
			c.dropLocked()
		}
		if c.state == connDropped {
			return
		}
		rest, frames := c.rest, c.takeFramesLocked()
		c.rest, c.pushing = nil, true
		w.mu.Unlock()
		if len(rest) == 0 && len(frames) == 0 {
			c.loadEvent()
		}
		var err error
		if len(rest) > 0 {
			_, err = c.stream.Gather(&rest)
		}
		if err == nil && len(frames) > 0 {
			err = workerwire.WriteFrames(c.stream, frames...)
		}
		w.mu.Lock()
		if c.pushing = false; err != nil {
			c.dropLocked()
		}
	}
}

// sendNow sends the next event, with the answers that wait, as far as the peer takes them without
// blocking: so output needs no second goroutine on its way. It sends nothing if push is writing or
// no event is ready in memory. It returns true if all was sent and no other event may be sent now.
// Otherwise the caller must wake push, which sends the rest. The caller must hold w.mu.
func (c *conn) sendNow() bool {
	if c.state != connOpen || c.pushing || len(c.rest) > 0 || !c.hasEventLocked() {
		return false
	}
	if err := workerwire.WriteFrames(tryWriter{c}, c.takeFramesLocked()...); err != nil {
		c.dropLocked()
	}
	return len(c.rest) == 0 && !c.pendingLocked()
}

// tryWriter writes what the peer takes at once, and keeps the rest in the connection.
type tryWriter struct{ *conn }

// Write returns len(p) and no error: push meets the error of the stream when it writes the rest.
// The caller must hold w.mu.
func (c tryWriter) Write(p []byte) (int, error) {
	n := 0
	if len(c.rest) == 0 {
		n = c.stream.TryWrite(p)
	}
	if n < len(p) {
		c.rest = append(c.rest, bytes.Clone(p[n:]))
	}
	return len(p), nil
}

// takeFramesLocked removes and returns the frames to send next: all answers, and one event unless
// the connection is closing or the event's data have not been loaded from the spool file yet. The
// slice is empty if there is nothing to send. It is valid until the next call. The caller must hold
// w.mu, and must send the frames.
func (c *conn) takeFramesLocked() []workerwire.Frame {
	frames := c.answers
	if len(frames) > 0 && c.soon != nil {
		c.soon.Stop()
	}
	if c.state == connOpen && c.hasEventLocked() {
		frames = append(frames, c.eventLocked())
	}
	clear(c.taken) // they were sent
	c.answers, c.taken, c.due = c.taken[:0], frames, false
	return frames
}

// pendingLocked reports whether an event may be sent on c now, wherever its bytes are. After the
// child's end the gate is ignored: little more can come, and a daemon that cannot acknowledge the
// earlier output must still get the events of the end. The caller must hold w.mu.
func (c *conn) pendingLocked() bool {
	w := c.w
	return w.attached == c && c.sent < w.out.next-1 && (c.out.IsOpen() || w.childState >= childEnded) &&
		w.out.after(c.sent) < len(w.out.entries)
}

// nextLocked returns the next event; [conn.pendingLocked] must be true. The caller must hold w.mu.
func (c *conn) nextLocked() *entry { return &c.w.out.entries[c.w.out.after(c.sent)] }

// hasEventLocked reports whether an event can be sent without the spool. w.mu must be held.
func (c *conn) hasEventLocked() bool {
	if !c.pendingLocked() {
		return false
	}
	e := c.nextLocked()
	return !e.spooled || c.loaded.seq == e.seq && (c.loaded.err != nil || len(c.loaded.data) == e.size)
}

// eventLocked returns the next event, which the caller must send. w.mu must be held.
func (c *conn) eventLocked() workerwire.Frame {
	w, e := c.w, c.nextLocked()
	c.sent = e.seq
	w.out.seen = max(w.out.seen, e.seq)
	f := workerwire.Frame{N: e.seq}
	switch e.kind {
	case exited:
		f.Kind, f.Body = workerwire.Exited, jsonrpc.Encode(w.exit)
		return f
	case closed:
		f.Kind = workerwire.Closed
		return f
	case stdout:
		f.Kind = workerwire.Stdout
	case stderr:
		f.Kind = workerwire.Stderr
	}
	dropped := workerwire.Dropped{Bytes: e.dropped}
	f.Payload = e.data
	begun := e.begun
	if e.spooled {
		f.Payload = c.loaded.data
		begun = gate.BegunLine(f.Payload)
		if c.loaded.err != nil { // the spool cannot be read: the event counts its bytes as dropped
			dropped.Bytes = int64(e.size)
		}
		c.loaded = loaded{}
	}
	size := len(f.Payload)
	if e.file != "" {
		size = e.size
		dropped.Span = protocol.Span{File: e.file, Offset: e.off, Size: int64(e.size)}
		dropped.Sum = e.sum
	}
	if e.first != e.seq {
		dropped.First = e.first
	}
	if dropped != (workerwire.Dropped{}) {
		f.Body = jsonrpc.Encode(dropped)
	}
	if e.kind == stdout && size > 0 {
		c.out.Add(size, begun, true)
	}
	return f
}
