package worker

import (
	"bufio"
	"encoding/json"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
	"holdline/protocol/rawio"
	"holdline/protocol/socket"
)

// Limits of a connection.
const (
	maxConns    = 16
	maxRequests = 1024             // unanswered requests
	maxFrames   = 2 * maxRequests  // answers not yet sent
	maxRead     = 4 << 20          // bytes in the answer to a read
	defaultRead = 1 << 20          //
	maxChunks   = 256              // in the answer to a read, whose header is bounded
	maxWait     = time.Minute      // of a read
	writeLimit  = 10 * time.Second // for a last answer to a peer that does not read
	answerDelay = time.Millisecond // of an answer that nobody is held up by
)

// conn is one peer. Its requests are handled in order by serve, each at once;
// its answers and events are sent by push. All fields below w are guarded by
// w.mu.
type conn struct {
	nc     *net.UnixConn
	stream *rawio.Stream // over nc
	w      *worker

	answers  []process.Frame
	due      bool        // the answers are to be sent now
	soon     *time.Timer // sets due; nil before it was first needed
	inFlight int
	hello    bool
	reading  bool  // a read is waiting
	closing  bool  // send the answers, then close
	dead     bool  // send nothing more
	sent     int64 // with the connection attached: last number pushed
	out      gate  // of what was pushed and not acked
}

// accept serves peers until the listener is closed, then waits for them.
func (w *worker) accept(ln *net.UnixListener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wait := time.Millisecond
	for {
		nc, err := ln.AcceptUnix()
		if err != nil {
			select {
			case <-w.leaving:
				return
			case <-time.After(wait): // out of descriptors, say
				wait = min(2*wait, time.Second)
				continue
			}
		}
		wait = time.Millisecond
		if _, err := socket.CheckPeer(nc); err != nil {
			_ = nc.Close()
			continue
		}
		c := &conn{nc: nc, stream: rawio.New(nc), w: w}
		w.mu.Lock()
		if len(w.conns) >= maxConns || w.left {
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

// serve reads requests until the connection ends.
func (c *conn) serve() {
	defer func() {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.dropLocked()
		delete(c.w.conns, c)
	}()
	r := bufio.NewReaderSize(c.stream, 4<<10)
	for {
		f, err := process.ReadFrame(r)
		if err != nil {
			return
		}
		faultpoint.At("worker.read")
		if !c.handle(&f) {
			return
		}
	}
}

// dropLocked ends the connection: nothing of it is taken afterwards. Frames
// that were read before wait for the lock and find it not attached.
func (c *conn) dropLocked() {
	if c.dead {
		return
	}
	c.dead = true
	c.answers = nil
	_ = c.nc.Close()
	w := c.w
	w.forgetLocked(c)
	for i := 0; i < len(w.ending); i++ {
		if w.ending[i].c == c {
			w.ending = append(w.ending[:i], w.ending[i+1:]...)
			i--
		}
	}
	if w.attached == c {
		w.attached = nil
		w.detachedAt = time.Now()
		w.poke()
	}
	w.cond.Broadcast()
}

// reply and fail answer request id, unless it wanted no answer. They hold the
// lock.
func (c *conn) reply(id int64, result any) {
	c.answer(process.Frame{ID: id, Result: process.Encode(result)})
}

func (c *conn) fail(id int64, e *process.Error) { c.answer(process.Frame{ID: id, Error: e}) }

func (c *conn) answer(f process.Frame) {
	if c.dead || f.ID == 0 {
		return
	}
	c.inFlight--
	if len(c.answers) >= maxFrames { // it asks and does not read
		c.dropLocked()
		return
	}
	c.answers = append(c.answers, f)
	c.due = true
	c.w.cond.Broadcast()
}

// made answers a write that was made. The answer goes with the child's next
// output, if that comes soon: a peer that waits for both is woken once.
func (c *conn) made(id int64) {
	if c.due || c.dead || id == 0 || len(c.answers) >= maxFrames {
		c.reply(id, process.WriteResult{Status: process.WriteAccepted})
		return
	}
	c.inFlight--
	c.answers = append(c.answers, process.Frame{ID: id, Result: process.Accepted})
	switch {
	case len(c.answers) > 1: // the timer runs
	case c.soon == nil:
		c.soon = time.AfterFunc(answerDelay, c.hasten)
	default:
		c.soon.Reset(answerDelay)
	}
}

// hasten has the answers sent.
func (c *conn) hasten() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.due = true
	c.w.cond.Broadcast()
}

// handle deals with one request; false ends the connection. Nothing in it
// waits for the child or for a peer.
func (c *conn) handle(f *process.Frame) bool {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.dead && !faultpoint.Broken("worker.fence") {
		return false
	}
	if f.ID > 0 {
		if c.inFlight++; c.inFlight > maxRequests {
			return false
		}
	}
	if !c.hello && f.Method != process.MethodInitialize {
		c.fail(f.ID, process.Errorf(process.CodeInvalid, "initialize comes first"))
		return true
	}
	switch f.Method {
	case process.MethodInitialize:
		var p process.InitializeParams
		if c.parse(f, &p) {
			c.initializeLocked(f.ID, p)
		}
		return true
	case process.MethodAttach:
		var p process.AttachParams
		if c.parse(f, &p) {
			c.attachLocked(f.ID, p)
		}
		return true
	case process.MethodRead:
		var p process.ReadParams
		if c.parse(f, &p) {
			c.readLocked(f.ID, p)
		}
		return true
	case process.MethodWrite, process.MethodCloseStdin, process.MethodSignal, process.MethodTerminate, process.MethodAck:
	default:
		c.fail(f.ID, process.Errorf(process.CodeUnknownMethod, "unknown method %q", f.Method))
		return true
	}
	if w.attached != c && !faultpoint.Broken("worker.fence") {
		c.fail(f.ID, process.Errorf(process.CodeNotAttached, "this connection is not the attached one"))
		return true
	}
	switch f.Method {
	case process.MethodWrite:
		if p, err := process.ParseWrite(f.Params); c.parsed(f, err) {
			w.takeLocked(c, f, p.WriteID)
		}
	case process.MethodCloseStdin:
		w.closeStdinLocked()
		c.reply(f.ID, struct{}{})
	case process.MethodSignal:
		var p process.SignalParams
		if !c.parse(f, &p) {
			return true
		}
		sig := unix.SignalNum(p.Signal)
		if sig == 0 {
			c.fail(f.ID, process.Errorf(process.CodeInvalid, "unknown signal %q", p.Signal))
			return true
		}
		w.signalGroupLocked(sig)
		c.reply(f.ID, struct{}{})
	case process.MethodTerminate:
		var p process.TerminateParams
		if c.parse(f, &p) {
			w.ending = append(w.ending, waiter{c: c, id: f.ID})
			w.terminateLocked(time.Duration(p.GraceMS) * time.Millisecond)
		}
	case process.MethodAck:
		var p process.AckParams
		switch {
		case !c.parse(f, &p):
		case w.left:
			// state.json says by now which output is acknowledged. If the daemon
			// forgot more than that, it would read it from the spool once more.
			c.fail(f.ID, process.Errorf(process.CodeNotAttached, "the worker is leaving"))
		default:
			w.ackLocked(p.Seq)
			c.reply(f.ID, struct{}{})
		}
	}
	return true
}

func (c *conn) parse(f *process.Frame, v any) bool {
	if len(f.Params) == 0 {
		return true
	}
	return c.parsed(f, json.Unmarshal(f.Params, v))
}

// parsed refuses a request whose params could not be read for err.
func (c *conn) parsed(f *process.Frame, err error) bool {
	if err != nil {
		c.fail(f.ID, process.Errorf(process.CodeInvalid, "%s: %v", f.Method, err))
	}
	return err == nil
}

func (c *conn) initializeLocked(id int64, p process.InitializeParams) {
	if err := process.CheckVersion(p.Version); err != nil {
		c.fail(id, process.Errorf(process.CodeVersion, "%v", err))
		return
	}
	w := c.w
	c.hello = true
	c.reply(id, process.InitializeResult{
		Version: p.Version, Program: w.spec.Versions.Program, ID: w.spec.ID,
		PID: w.self.PID, ChildPID: w.child.PID, State: w.phaseLocked(),
		FirstSeq: w.out.firstSeq(), NextSeq: w.out.next, Acked: w.out.acked,
	})
}

// attachLocked is the fence: behind it no frame of the older connection is
// taken.
func (c *conn) attachLocked(id int64, p process.AttachParams) {
	w := c.w
	if p.Epoch < w.epoch {
		c.fail(id, process.Errorf(process.CodeStaleEpoch, "epoch %d was here, this is %d", w.epoch, p.Epoch))
		return
	}
	if p.AfterSeq < 0 || p.AfterSeq >= w.out.next {
		c.fail(id, process.Errorf(process.CodeInvalid, "afterSeq %d, and %d is next", p.AfterSeq, w.out.next))
		return
	}
	faultpoint.At("worker.attached")
	w.epoch = p.Epoch
	if old := w.attached; old != nil && old != c && !faultpoint.Broken("worker.fence") {
		w.attached = nil
		old.dropLocked()
	}
	w.attached = c
	w.alone, w.spooling = false, false
	c.sent = max(p.AfterSeq, w.out.acked)
	c.out = gate{limit: w.spec.Limits.Retain, lineMax: w.spec.Limits.Line}
	w.out.seen = max(w.out.seen, c.sent)
	c.reply(id, process.AttachResult{
		LastWrite: w.in.taken, Queued: int64(w.in.bytes), Acked: w.out.acked, NextSeq: w.out.next,
		StdinClosed: w.in.closing, Secrets: w.secrets,
	})
	w.cond.Broadcast()
	w.poke()
}

func (w *worker) ackLocked(seq int64) {
	c := w.attached
	faultpoint.At("worker.acked")
	w.out.ack(seq, func(e *entry) {
		if e.kind == stdout && e.seq <= c.sent {
			c.out.free(min(e.size, c.out.bytes), min(1, c.out.count))
		}
	})
	w.cond.Broadcast()
	w.poke()
}

// push sends answers first, then events, until the connection is dead.
func (c *conn) push() {
	w := c.w
	for {
		w.mu.Lock()
		for !c.dead && !c.closing && !c.due && !c.pendingLocked() {
			w.cond.Wait()
		}
		if c.closing && len(c.answers) == 0 {
			c.dropLocked()
		}
		if c.dead {
			w.mu.Unlock()
			return
		}
		frames := c.answers
		if len(frames) > 0 && c.soon != nil {
			c.soon.Stop()
		}
		c.answers, c.due = nil, false
		if !c.closing && c.pendingLocked() {
			frames = append(frames, c.eventLocked())
		}
		w.mu.Unlock()
		if err := process.WriteFrames(c.stream, frames...); err != nil {
			w.mu.Lock()
			c.dropLocked()
			w.mu.Unlock()
			return
		}
	}
}

// pendingLocked reports whether an event may be sent now. Once the child was
// reaped the gate is lifted: little more can come, and a daemon that cannot
// acknowledge what was said before must still be told of the end.
func (c *conn) pendingLocked() bool {
	w := c.w
	return w.attached == c && c.sent < w.out.next-1 && (c.out.open() || w.ended) && w.out.after(c.sent) < len(w.out.entries)
}

// eventLocked is the next event for the attached connection.
func (c *conn) eventLocked() process.Frame {
	w := c.w
	e := &w.out.entries[w.out.after(c.sent)]
	f := process.Frame{Method: process.EventOutput}
	switch e.kind {
	case exited:
		f.Method = process.EventExited
		f.Params = process.Encode(process.ExitedParams{Seq: e.seq, Exit: w.exit})
	case closed:
		f.Method = process.EventClosed
		f.Params = process.Encode(process.ClosedParams{Seq: e.seq})
	case stdout, stderr:
		data, err := w.bytesOf(e)
		if err != nil { // the spool cannot be read; the bytes are lost, and that is said
			w.logf("read spool: %v", err)
			p := e.params()
			p.Dropped = int64(e.size)
			f.Params = process.Encode(p)
			break
		}
		f.Params, f.Payload = process.EncodeOutput(e.params()), data
		if e.kind == stdout {
			c.out.add(data, true)
		}
	}
	c.sent = e.seq
	w.out.seen = max(w.out.seen, e.seq)
	return f
}

// readLocked answers a read, at once or from a goroutine that waits.
func (c *conn) readLocked(id int64, p process.ReadParams) {
	w := c.w
	if p.MaxBytes <= 0 || p.MaxBytes > maxRead {
		p.MaxBytes = defaultRead
	}
	wait := min(time.Duration(p.WaitMS)*time.Millisecond, maxWait)
	if wait <= 0 || w.newsLocked(p.AfterSeq) {
		c.answer(w.chunksLocked(id, p))
		return
	}
	if c.reading {
		c.fail(id, process.Errorf(process.CodeBusy, "a read is waiting already"))
		return
	}
	c.reading = true
	w.readers.Go(func() {
		over := false
		t := time.AfterFunc(wait, func() {
			w.mu.Lock()
			over = true
			w.mu.Unlock()
			w.cond.Broadcast()
		})
		defer t.Stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		for !over && !c.dead && !c.closing && !w.newsLocked(p.AfterSeq) {
			w.cond.Wait()
		}
		c.reading = false
		c.answer(w.chunksLocked(id, p))
	})
}

// newsLocked tells whether there is anything behind seq, or never will be.
func (w *worker) newsLocked(seq int64) bool {
	return w.out.after(seq) < len(w.out.entries) || w.closedSeq > 0
}

func (w *worker) chunksLocked(id int64, p process.ReadParams) process.Frame {
	r := process.ReadResult{Chunks: []process.Chunk{}, NextSeq: max(p.AfterSeq, w.out.acked) + 1}
	var payload []byte
	for i := w.out.after(p.AfterSeq); i < len(w.out.entries); i++ {
		e := &w.out.entries[i]
		if len(r.Chunks) >= maxChunks || (len(r.Chunks) > 0 && len(payload)+e.size > p.MaxBytes) {
			break
		}
		if e.kind == stdout || e.kind == stderr {
			data, err := w.bytesOf(e)
			if err != nil {
				break
			}
			payload = append(payload, data...)
			r.Chunks = append(r.Chunks, process.Chunk{OutputParams: e.params(), Size: len(data)})
		}
		r.NextSeq = e.seq + 1
		w.out.seen = max(w.out.seen, e.seq)
	}
	if r.NextSeq > w.out.next {
		r.NextSeq = w.out.next
	}
	r.Exited = w.exitedSeq > 0 && r.NextSeq > w.exitedSeq
	if r.Exited {
		r.Exit = w.exit
	}
	r.Closed = w.closedSeq > 0 && r.NextSeq > w.closedSeq
	return process.Frame{ID: id, Result: process.Encode(r), Payload: payload}
}
