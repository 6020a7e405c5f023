package hosted

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/lines"
	"holdline/daemon/masked"
	"holdline/daemon/standing"
	"holdline/daemon/supervisor"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// An upstream is one process of a server, as this daemon sees it. Its worker outlives
// the daemon. Fields that are not atomic, and not marked as the reader's, are guarded
// by the manager's mutex.
//
// The reader is the goroutine of [upstream.run]. It alone acknowledges output, so it
// decides what the next daemon will read again.
type upstream struct {
	m     *Manager
	inst  *instance
	dir   string
	id    string
	owner process.Owner
	log   *slog.Logger

	w          *supervisor.Worker // nil while it is being taken up
	era        string
	result     json.RawMessage // of the handshake
	logs       bool            // by that it can send log messages
	state      processState
	endedBy    ender         // once it is exited
	suspect    bool          // a call had no answer, and it is asked for a sign of life
	condemned  *fault.Record // why Holdline ends it: it hangs, or Holdline itself failed; nil if neither is so
	death      *fault.Record
	exited     latch         // state is exited
	readEnded  latch         // its events are not read any more
	caughtUp   latch         // all was read that it said before this daemon attached, or it has exited
	unsure     chan struct{} // closed when it is known which writes of an earlier daemon were made, and nil then
	calls      map[int64]*call
	internal   map[int64]inquiry // the daemon's own requests
	standing   *standing.Requests
	told       map[string]struct{} // requests of the server that an earlier daemon has answered, by relayed id
	responds   []calls.Record      // of such answers, and of what stands, before it is known which were made
	ran        []int64             // writes of answers to its requests, in order
	open       int                 // its requests that wait for a client
	askBytes   int                 // of these
	askFiles   []string            // those whose files are not needed any more, by relayed id
	kept       []keptAsk           // those that an earlier daemon has written down, until they are taken up
	early      map[string]early    // answers of its client to requests that are not read again yet
	restored   bool                // an earlier daemon has started it
	generation int64
	extended   map[int64]time.Time // until when calls may take, by write, that is not on record yet
	forget     []int64             // records that are not needed any more
	files      []int64             // spooled answers that are not needed any more
	noise      int64               // lines that were no messages

	writes  backgroundWrites
	secrets atomic.Pointer[masked.Secrets] // what must not be shown of what it says
	poke    chan struct{}                  // holds a token while something may be settled
	heard   atomic.Int64                   // messages that were read of it
	clock   atomic.Pointer[startClock]     // of its start; nil once that is over

	// The reader's alone.
	stdout *lines.Splitter
	last   int64  // highest number received
	marks  []mark // lines that are not settled, in order
	until  int64  // output below it was said before this daemon attached
}

// A mark is a line of output that the worker must still keep: the answer to a call,
// or a request of the server. Exactly one of c and ask is set.
type mark struct {
	seq int64 // of the output in which it begins
	c   *call // one of the two is set
	ask *ask
	at  time.Time
}

func newUpstream(inst *instance, dir string, owner process.Owner) *upstream {
	id := filepath.Base(dir)
	u := &upstream{
		m: inst.m, inst: inst, dir: dir, id: id, owner: owner,
		log:    inst.m.log.With("worker", id, "server", inst.key.server),
		exited: newLatch(), readEnded: newLatch(), caughtUp: newLatch(),
		calls: map[int64]*call{}, internal: map[int64]inquiry{},
		writes: newBackgroundWrites(), poke: make(chan struct{}, 1),
	}
	u.standing = standing.New(u, u.log)
	u.stdout = lines.New(dir, dialect.LineEnds, u.log, u.readLine)
	return u
}

// attachLocked gives the process its worker and starts its three goroutines. They
// belong to the manager, which waits for them in [Manager.Close].
func (u *upstream) attachLocked(w *supervisor.Worker) {
	u.w, u.generation = w, w.Generation()
	u.m.wg.Go(u.run)
	u.m.wg.Go(func() { u.contain("told something to a process", u.makeBackgroundWrites) })
	u.m.wg.Go(func() { u.contain("told a process what sessions want of it", func() { u.standing.Run(u.m.life) }) })
}

// worker returns the worker, or nil if this daemon is not attached to it yet. The
// caller must not hold the manager's mutex.
func (u *upstream) worker() *supervisor.Worker {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	return u.w
}

// letGo detaches from the worker. The process lives on for the next daemon.
func (u *upstream) letGo() {
	if w := u.worker(); w != nil {
		w.Close()
	}
}

// status returns the state of the process and, if it has exited, what made it
// exit.
func (u *upstream) status() (processState, ender) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	return u.state, u.endedBy
}

// nudge wakes the reader, so that it acknowledges output and drops records that are
// not needed any more. It never blocks.
func (u *upstream) nudge() {
	select {
	case u.poke <- struct{}{}:
	default:
	}
}

// endLocked begins to end the process. It does not wait: u.exited is closed when
// nothing is left of it.
func (u *upstream) endLocked() {
	before := u.state
	if u.state = before.after(terminate); u.state != before {
		u.terminateLocked()
	}
}

// drainLocked gives the process no more calls. The process is ended once the clients
// of its calls have their answers.
func (u *upstream) drainLocked() {
	u.state = u.state.after(drain)
	u.nudge()
}

// terminateLocked tells the worker to end the process tree, in a goroutine. It does
// nothing if this daemon is not attached yet, or is closing; then the next attach
// does it.
func (u *upstream) terminateLocked() {
	w := u.w
	if w == nil || u.m.closed {
		return
	}
	// if it fails the worker is lost, and that will be told
	u.m.wg.Go(func() { _, _ = w.Terminate(u.m.life, endGrace) })
}

// end ends the process, whatever it has still to do, and waits until its events were
// read to the end.
func (u *upstream) end(ctx context.Context) error {
	w := u.worker()
	if w == nil {
		return nil
	}
	_, err := w.Terminate(ctx, endGrace)
	u.nudge()
	select {
	case <-u.readEnded:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish ends the process and waits until it is dead, or the daemon stops.
func (u *upstream) finish() {
	u.m.mu.Lock()
	u.endLocked()
	u.m.mu.Unlock()
	select {
	case <-u.exited:
	case <-u.m.life.Done():
	}
}

// run reads the worker's events until their end, or until the worker is detached.
func (u *upstream) run() {
	defer close(u.readEnded)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	w := u.worker()
	u.last, u.until = w.Old()
	deaf := !u.contain("took up the output of a process", func() {
		if u.restored {
			u.stdout.MarkTorn()
		}
		u.stdout.Resume(u.last)
		u.askKept(w)
		u.caught()
	})
	for {
		select {
		case <-w.Ready():
			events, over := w.Take()
			if over {
				return
			}
			for i := range events {
				if !u.readEvent(w, &events[i], &deaf) {
					return
				}
				events[i] = supervisor.Event{} // its data may be large
			}
		case <-u.poke:
		case <-timer.C:
		}
		next := time.Hour
		u.contain("acknowledged the output of a process", func() { next = u.settle(w) })
		timer.Reset(next)
	}
}

// readEvent handles one event. After an event that panicked, deaf is true and further
// output is skipped. It returns false after the last event, which is the end of the
// process. Before that it waits until clients need nothing of the process's directory
// any more.
func (u *upstream) readEvent(w *supervisor.Worker, ev *supervisor.Event, deaf *bool) bool {
	u.last = max(u.last, ev.Seq)
	if u.restored {
		u.m.touch(u.dir)
	}
	*deaf = *deaf || !u.contain("read the output of a process", func() { u.event(ev) })
	if ev.Kind != supervisor.Closed && ev.Kind != supervisor.Lost {
		return true
	}
	u.contain("noted the end of a process", func() { u.die(w, ev) })
	u.ensureDead()
	u.contain("kept what a process has left", func() { u.outlive(w) })
	return false
}

// ensureDead marks the process as exited if die has panicked before it could: callers
// wait for that.
func (u *upstream) ensureDead() {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if u.state != exited {
		u.exitLocked(u.condemned, endedByHoldline)
	}
}

// event handles one event of the worker: output, or the end of the process. Output to
// stderr counts as progress of a start.
func (u *upstream) event(ev *supervisor.Event) {
	switch ev.Kind {
	case supervisor.Output:
		if ev.Stream == process.Stdout {
			u.stdout.Split(lines.Piece{Seq: ev.Seq, Data: ev.Data, Gap: ev.Dropped > 0, Old: ev.Old})
		} else if c := u.clock.Load(); c != nil {
			c.progress()
		}
	case supervisor.Exited:
		u.log.Info("server ended", "exit", ev.Exit.String())
	case supervisor.Closed, supervisor.Lost:
		u.stdout.End(ev.Seq, ev.Old, func(text []byte) bool {
			_, err := jsonrpc.Parse(text)
			return err == nil
		})
		return
	}
	u.caught()
}

// caught notes when all output from before the attach was read. Calls for which no
// client waits by then are cancelled.
func (u *upstream) caught() {
	if u.last < u.until-1 {
		return
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	u.caughtLocked()
}

// caughtLocked notes that this daemon has read all output from before the attach, or
// that the process has exited. From now on a missing answer means that the server has
// not answered, so calls that no client wants are settled, and clients may be asked
// what the server asks.
func (u *upstream) caughtLocked() {
	if u.caughtUp.isSet() {
		return
	}
	close(u.caughtUp)
	for _, c := range u.calls {
		if !c.Claim().Wanted() {
			u.m.reviewLocked(c, calls.Resumed(nil))
		}
	}
	u.dropEarlyLocked()
	u.interruptLocked()
}

// readLine handles one line of the server's stdout, or the report that a line is too
// long to be a message.
func (u *upstream) readLine(l *lines.Line) {
	switch l.Event {
	case lines.Skipping:
		u.failSkipped(l)
	case lines.Endless:
		u.condemnEndless()
	case lines.Skipped:
		u.noisy("longer than a message may be")
		u.failSkipped(l)
	case lines.Whole:
		u.readMessage(l)
	}
}

// readMessage handles a line that should be a message. A line that is none is
// counted. If it looks like the answer to a call, the call fails; otherwise its
// client would wait in vain.
func (u *upstream) readMessage(l *lines.Line) {
	if len(bytes.TrimSpace(l.Text)) == 0 {
		return
	}
	msg, err := jsonrpc.Parse(l.Text)
	if err != nil {
		if !l.Torn {
			u.noisy(err.Error())
			if id := dialect.BrokenAnswerID(l.Text, err); id != nil {
				u.failAnswer(id, u.unreadable(l.Text, err))
			}
		}
		return
	}
	u.heard.Add(1)
	switch msg.Kind {
	case jsonrpc.Response:
		faultpoint.At("hosted.answered")
		u.answered(msg, l)
	case jsonrpc.Notification:
		switch {
		case msg.Method == mcp.CancelledNote:
			u.withdrawn(msg)
		case msg.Method == mcp.ProgressNote:
			u.progressed(msg, l.Old)
		case !l.Old:
			u.notified(msg)
		}
	case jsonrpc.Request:
		u.asked(msg, u.askID(l.Seq, int64(l.Nth)), false)
	}
}

// noisy counts a line that is no message, and logs the first one. Such lines are
// never fatal: many servers print a banner.
func (u *upstream) noisy(why string) {
	u.m.mu.Lock()
	u.noise++
	first := u.noise == 1
	u.m.mu.Unlock()
	if first {
		u.log.Warn("server writes lines to stdout that are no messages; they are skipped", "err", why)
	}
}

// answered delivers an answer of the server to the call, or to the daemon's own
// request, that it is for. l is the line that msg was parsed from. Answers to unknown
// calls are dropped.
func (u *upstream) answered(msg jsonrpc.Message, l *lines.Line) {
	if own, ok := u.takeInquiry(dialect.Number(msg.ID)); ok {
		own.take(owned(msg, l))
		return
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	c := u.answeredLocked(msg.ID)
	if c == nil || c.Phase() == calls.Answered {
		return // it was cancelled, or is known
	}
	if err := dialect.CheckAnswer(&msg); err != nil {
		u.failLocked(c, u.unreadable(l.Text, err))
		return
	}
	msg = owned(msg, l)
	c.Answer = calls.Answer{Result: msg.Result, Error: msg.Error}
	u.settledLocked(c)
}

// takeInquiry removes and returns the daemon's own request with that write number. It
// returns false if there is none.
func (u *upstream) takeInquiry(write int64) (own inquiry, ok bool) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if own, ok = u.internal[write]; !ok {
		return own, false
	}
	delete(u.internal, write)
	if !own.stays {
		u.forget = append(u.forget, write)
	}
	return own, true
}

// owned returns msg, which was parsed from l, in memory of its own. The splitter
// reuses the memory of a line that is not owned.
func owned(msg jsonrpc.Message, l *lines.Line) jsonrpc.Message {
	if l.Owned {
		return msg
	}
	return clone(msg)
}

// clone returns m with copies of its result and error.
func clone(m jsonrpc.Message) jsonrpc.Message {
	m.Result, m.Error = bytes.Clone(m.Result), bytes.Clone(m.Error)
	return m
}

// progressed passes the progress of a call to its client, and restarts the call's
// time. Progress from before the attach (old) may have reached the client already, so
// it only restarts the time.
func (u *upstream) progressed(msg jsonrpc.Message, old bool) {
	u.m.mu.Lock()
	c := u.progressedLocked(jsonrpc.Field(msg.Params, mcp.MetaProgress))
	var tell func(json.RawMessage)
	if c != nil && c.Phase() == calls.Open {
		tell = c.progress
		u.restartClockLocked(c)
	}
	u.m.mu.Unlock()
	if tell != nil && !old {
		tell(bytes.Clone(msg.Params))
	}
}

// notified handles a notification of the server.
func (u *upstream) notified(msg jsonrpc.Message) {
	switch msg.Method {
	case mcp.Acknowledged:
		id := jsonrpc.Field(jsonrpc.Field(msg.Params, "_meta"), mcp.MetaSubscription)
		u.standing.Acknowledged(msg.Params, dialect.Number(id))
	case mcp.ResourceUpdated:
		u.updated(msg)
	case mcp.LogMessage:
		u.logged(msg)
	case mcp.ToolsChanged, mcp.PromptsChanged, mcp.ResourcesChanged:
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		if u.state == serving && !u.m.closed {
			u.inst.relistLocked()
		}
	default:
		u.remarked(msg)
	}
}
