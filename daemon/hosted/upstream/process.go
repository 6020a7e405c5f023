package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/output"
	"holdline/daemon/hosted/question"
	"holdline/daemon/hosted/records"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/lines"
	"holdline/daemon/masked"
	"holdline/daemon/supervisor"
	"holdline/daemon/waiting"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// A Process is one process of a server, as this daemon sees it. Its worker outlives the daemon.
//
// The reader is the goroutine of [Process.run]. It alone acknowledges output, so it
// decides what the next daemon will read again.
type Process struct {
	// These never change, or need no lock.
	hub         *Hub
	Instance    Instance
	Dir         string // of the worker
	ID          string // of the worker
	Server      string // its name
	Owner       process.Owner
	Tokens      dialect.Tokens   // of its calls; set before it is attached
	Login       entry.LoginStamp // of the login's files before its start; zero if an earlier daemon has started it
	Log         *slog.Logger
	wake        chan struct{}                  // holds a token if the reconcile loop has to look again
	standing    *standing                      // guarded by the hub\'s mutex
	takesLevels atomic.Bool                    // it is asked for a level of log messages
	Exited      chan struct{}                  // closed when state is exited
	readEnded   chan struct{}                  // closed when its events are not read any more
	caughtUp    chan struct{}                  // closed when all from before the attach was read, or it has exited
	writes      *background.Queue              // to it, which belong to no call
	Secrets     atomic.Pointer[masked.Secrets] // what must not be shown of what it says
	OnStderr    atomic.Pointer[func()]         // called at each output to stderr; nil calls nothing
	heard       atomic.Int64                   // messages that were read of it
	heardAt     atomic.Int64                   // when the last one was, since programBegun
	listening   atomic.Bool                    // each message puts a token into sign
	sign        chan struct{}                  // holds a token if a message was read
	ask         asker                          // [Process.inquire]; tests replace it
	poke        chan struct{}                  // holds a token while something may be settled
	asking      sync.Mutex                     // orders the writes of files of requests, and guards nothing else
	Restored    bool                           // an earlier daemon has started it; set before it is attached
	Damage      error                          // why its records cannot be believed; nil if they can; set before it is attached

	Guarded
	output output.Output // the reader's
}

// Guarded is the state of a process that the hub's mutex guards: it is used between Lock and
// Unlock of [Hub.Mu], and in functions whose names end in Locked. Other packages only read it.
type Guarded struct {
	State      stage.State
	Generation int64           // of the worker
	Result     json.RawMessage // of the handshake
	Calls      map[int64]*Call // by write
	Suspect    bool            // a call had no answer, and it is asked for a sign of life
	Noise      int64           // lines that were no messages
	Printed    []string        // the first of them, for people: see PrintedLocked
	Condemned  *fault.Record   // why Holdline ends it: it hangs, or Holdline itself failed; nil if neither is so
	Death      *fault.Record   // why it has exited; nil until then
	EndedBy    Ender           // once it is exited

	hearing   hearing            // whether it answers
	reach     reach              // of a remote server
	prompt    string             // in a start, the beginning of a line to stdout without an end
	attached  *supervisor.Worker // nil while it is being taken up
	era       string             // of the server
	logs      bool               // by the result of the handshake it can send log messages
	unsure    chan struct{}      // closed when it is known which writes of an earlier daemon were made, and nil then
	internal  map[int64]*inquiry // the daemon's own requests
	records   records.Records    // which of them are not needed any more
	questions question.Set       // its requests to its client
	lostAsks  []string           // names of the files of those that are lost, as long as calls are doubtful for them
}

// NewProcess returns a process in the state [stage.Starting], whose worker has the directory dir.
// The caller starts the worker, or attaches to it, and registers the process with the hub.
func (h *Hub) NewProcess(inst Instance, dir, server string, owner process.Owner) *Process {
	id := filepath.Base(dir)
	u := &Process{
		hub: h, Instance: inst, Dir: dir, ID: id, Server: server, Owner: owner,
		Log:    h.Log.With("worker", id, "server", server),
		Exited: make(chan struct{}), readEnded: make(chan struct{}), caughtUp: make(chan struct{}),
		poke: make(chan struct{}, 1), wake: make(chan struct{}, 1), sign: make(chan struct{}, 1),
		standing: &standing{subs: map[string]*watch{}, changed: make(chan struct{})},
		Guarded: Guarded{
			Calls: map[int64]*Call{}, internal: map[int64]*inquiry{}, questions: question.NewSet(id),
		},
	}
	u.writes, u.ask = background.NewQueue(u.Log), u.inquire
	u.heardAt.Store(int64(time.Since(programBegun)))
	split := lines.New(dir, dialect.LineEnds, u.Log, u.readLine)
	split.Stop = h.Life.Done()
	u.output = output.New(split)
	return u
}

// AttachLocked records w as the worker and starts the three goroutines. hub.Mu must be held.
func (u *Process) AttachLocked(w *supervisor.Worker) {
	u.attached, u.Generation = w, w.Generation()
	u.hub.WG.Go(u.run)
	u.hub.WG.Go(func() { u.Contain("told something to a process", u.makeBackgroundWrites) })
	u.hub.WG.Go(func() { u.Contain("told a process what sessions want of it", func() { u.reconcile() }) })
}

// Worker returns the worker, or nil if this daemon is not attached to it yet. It takes hub.Mu.
func (u *Process) Worker() *supervisor.Worker {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.attached
}

// LimitsHeldByLocked returns, for people, what enforces the limits of the process; "" if it has no
// limits, or if this daemon is not attached to it yet. The caller must hold hub.Mu.
func (u *Process) LimitsHeldByLocked() string {
	if u.attached == nil {
		return ""
	}
	return u.attached.HeldBy()
}

// Detach closes the connection to the worker, which ends the reader. It takes hub.Mu.
func (u *Process) Detach() {
	if w := u.Worker(); w != nil {
		w.Close()
	}
}

// Status returns the state and, if it is [stage.Exited], what made it exit. It takes hub.Mu.
func (u *Process) Status() (stage.State, Ender) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.State, u.EndedBy
}

// nudge wakes the reader, which then calls [Process.settle]. It never blocks, and needs no lock.
func (u *Process) nudge() {
	select {
	case u.poke <- struct{}{}:
	default:
	}
}

// endGrace is how long a process that is being ended may take for each step of its
// termination, unless its spec wants more.
const endGrace = time.Second

// EndLocked makes the state [stage.Ending] and has the worker end the process, unless it is ending
// or has exited; u.Exited is closed when nothing is left. The caller must hold hub.Mu.
func (u *Process) EndLocked() {
	if u.ChangeLocked(stage.Terminate) {
		u.TerminateLocked()
	}
}

// DrainLocked makes the state [stage.Draining], unless it is a later one: the process gets no more
// calls, and the reader ends it once its calls' clients have their answers. hub.Mu must be held.
func (u *Process) DrainLocked() {
	u.ChangeLocked(stage.Drain)
	u.nudge()
}

// TerminateLocked has a goroutine of the hub tell the worker to end the process tree. If this
// daemon is not attached yet, or is closing, the next attach does it. The caller must hold hub.Mu.
func (u *Process) TerminateLocked() {
	w := u.attached
	if w == nil || u.hub.Closed {
		return
	}
	// if it fails the worker is lost, and that will be told
	u.hub.WG.Go(func() { _, _ = w.Terminate(u.hub.Life, endGrace) })
}

// End has the worker end the process tree, and waits until the reader has returned. It returns the
// worker's error, or the cause of ctx if that ends first. The caller must not hold hub.Mu.
func (u *Process) End(ctx context.Context) error {
	w := u.Worker()
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

// Finish ends the process and waits until it has exited, or the daemon stops. It takes hub.Mu.
func (u *Process) Finish() {
	u.hub.Mu.Lock()
	u.EndLocked()
	u.hub.Mu.Unlock()
	_ = AwaitExits(u.hub.Life, []*Process{u})
}

// run is the reader. It reads the worker's events until their end, or until the worker is detached,
// and calls [Process.settle] when it is woken or that is due. At the end it closes u.readEnded.
func (u *Process) run() {
	defer close(u.readEnded)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	w := u.Worker()
	deaf := !u.Contain("took up the output of a process", func() {
		if u.Restored {
			u.output.MarkTorn()
		}
		u.output.Resume(w.Old())
		u.reopen(w)
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
		u.Contain("acknowledged the output of a process", func() { next = u.settle(w) })
		timer.Reset(next)
	}
}

// readEvent handles one event, and takes hub.Mu. If that panics, it condemns the process and sets
// deaf: then only the end is handled. After the end it waits for outlive and returns false.
func (u *Process) readEvent(w *supervisor.Worker, ev *supervisor.Event, deaf *bool) bool {
	u.output.Receive(ev.Seq)
	if u.Restored {
		u.hub.o.Touch(u.Dir)
	}
	*deaf = *deaf || !u.Contain("read the output of a process", func() { u.event(ev) })
	if ev.Kind != supervisor.Closed && ev.Kind != supervisor.Lost {
		return true
	}
	u.Contain("noted the end of a process", func() { u.die(w, ev) })
	u.ensureDead()
	if ended := u.hub.o.Ended; ended != nil {
		u.Contain("kept the log of a process", func() { ended(u) })
	}
	u.Contain("kept what a process has left", func() { u.outlive(w) })
	return false
}

// ensureDead marks the process as exited if die has panicked before that. It takes hub.Mu.
func (u *Process) ensureDead() {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if u.State != stage.Exited {
		u.exitLocked(u.Condemned, EndedByHoldline)
	}
}

// event handles one event; at the end, a last line without newline, too. hub.Mu must not be held.
func (u *Process) event(ev *supervisor.Event) {
	switch ev.Kind {
	case supervisor.Output:
		if ev.Stream == process.Stdout {
			u.output.Split(lines.Piece{
				Seq: ev.Seq, Data: ev.Data, Span: ev.Span, Sum: ev.Sum, Gap: ev.Dropped > 0, Old: ev.Old,
			})
			if rest := u.output.Rest(); len(rest) > 0 && u.OnStderr.Load() != nil {
				u.hub.Mu.Lock()
				u.prompt = printable(rest) // a program that asks a person writes no newline
				u.hub.Mu.Unlock()
			}
		} else if call := u.OnStderr.Load(); call != nil {
			(*call)()
		}
	case supervisor.Exited:
		u.Log.Info("server ended", "exit", ev.Exit.String())
	case supervisor.Closed, supervisor.Lost:
		u.output.End(ev.Seq, ev.Old, func(text []byte) bool {
			_, err := jsonrpc.Parse(text)
			return err == nil
		})
		return
	}
	u.caught()
}

// caught calls caughtLocked if all output from before the attach was read. It takes hub.Mu.
func (u *Process) caught() {
	if u.output.IsCaughtUp() {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.caughtLocked()
	}
}

// caughtLocked closes u.caughtUp: all output from before the attach was read, or the process has
// exited. From now on a missing answer means that the server has not answered, and clients may be
// asked what it asks. Calls that no client wants are settled, and early answers without a request
// dropped. The caller must hold hub.Mu.
func (u *Process) caughtLocked() {
	if u.hasCaughtUp() {
		return
	}
	close(u.caughtUp)
	for _, c := range u.Calls {
		if !c.Claim().Wanted() {
			u.hub.ReviewLocked(c, calls.Resumed(nil))
		}
	}
	u.dropEarlyLocked()
	u.questions.ForgetUnread()
	for _, c := range u.Calls {
		if u.questions.HasShown(c.Call) {
			c.interrupt() // the client of a task may have answered an earlier daemon
		}
	}
	u.InterruptLocked()
	u.lookAfterLocked()
}

// hasCaughtUp reports whether [Process.caughtLocked] was called. It needs no lock.
func (u *Process) hasCaughtUp() bool { return waiting.IsClosed(u.caughtUp) }

// readLine handles one line of the server's stdout, or the report that one is too long: then its
// call fails, or the process is ended if the line never ends; or the report that output is lost:
// see [Process.lose]. The caller must not hold hub.Mu.
func (u *Process) readLine(l *lines.Line) {
	switch l.Event {
	case lines.Skipping:
		u.failSkipped(l)
	case lines.Endless:
		u.condemnEndless()
	case lines.Skipped:
		u.noisy("longer than a message may be", l.Head)
		u.failSkipped(l)
	case lines.Lost:
		u.lose(l)
	case lines.Whole:
		u.readMessage(l)
	}
}

// readMessage handles a line that should be a message, or a list of messages. One that is none is
// counted, unless it is blank or torn; if it is certainly the answer to a call, that fails. hub.Mu must
// not be held.
func (u *Process) readMessage(l *lines.Line) {
	if rest, marked := bytes.CutPrefix(l.Text, []byte("\xef\xbb\xbf")); marked && !l.InFile() { // a byte order mark
		line := *l
		line.Text, l = rest, &line
	}
	text := bytes.TrimSpace(l.Text)
	if len(text) == 0 {
		return
	}
	if parts := dialect.Batch(text); parts != nil {
		for i, part := range parts {
			u.readMessage(l.Part(i, part))
		}
		return
	}
	msg, err := jsonrpc.Parse(l.Text)
	if err != nil {
		if !l.Torn {
			u.noisy(err.Error(), l.Text)
			if id := dialect.BrokenAnswerID(l.Text, err); id != nil {
				u.failAnswer(id, dialect.Unreadable(l.Text, err, u.Secrets.Load().Text))
			}
		}
		return
	}
	u.hear()
	switch msg.Kind {
	case jsonrpc.Response:
		faultpoint.At("hosted.answered")
		u.answered(msg, l)
	case jsonrpc.Notification:
		if err := mcp.ParamsObject.Check(msg.Params); err != nil {
			u.noisy("params of "+fault.Quote([]byte(msg.Method))+": "+err.Error(), nil)
			return
		}
		switch {
		case msg.Method == mcp.CancelledNote:
			u.withdrawn(msg)
		case msg.Method == mcp.ProgressNote:
			u.progressed(msg, l.Old)
		case msg.Method == mcp.ResourceUpdated:
			u.updated(msg, l)
		case !l.Old:
			u.notified(msg)
		}
	case jsonrpc.Request:
		u.asked(msg, question.ID(u.ID, l.Seq, int64(l.Nth)), false)
	}
}

// maxPrinted bounds the lines to stdout that were no messages and are kept for people, and maxPrintedLine
// one of them, in bytes.
const (
	maxPrinted     = 5
	maxPrintedLine = 200
)

// noisy counts a line that is no message, keeps it for people if it is one of the first, and logs the
// first one with the reason why. Such lines are never fatal: many servers print a banner. It takes hub.Mu.
func (u *Process) noisy(why string, line []byte) {
	text := u.Secrets.Load().Text(printable(line))
	u.hub.Mu.Lock()
	u.Noise++
	first := u.Noise == 1
	if text != "" && len(u.Printed) < maxPrinted {
		u.Printed = append(u.Printed, text)
	}
	u.hub.Mu.Unlock()
	if first {
		u.Log.Warn("server writes lines to stdout that are no messages; they are skipped", "err", why, "line", text)
	}
}

// printable returns what of a line is kept for people, before secrets are removed from it.
func printable(line []byte) string {
	line = bytes.TrimSpace(line)
	return strings.ToValidUTF8(string(line[:min(len(line), 8*maxPrintedLine)]), "\uFFFD")
}

// PrintedLocked returns the first lines to stdout that were no messages, without secrets, and what has
// followed without an end. The caller must hold hub.Mu.
func (u *Process) PrintedLocked() []string {
	all := slices.Clone(u.Printed)
	if rest := u.Secrets.Load().Text(u.prompt); rest != "" && len(all) < maxPrinted {
		all = append(all, rest)
	}
	for i, line := range all {
		if len(line) > maxPrintedLine {
			all[i] = strings.ToValidUTF8(line[:maxPrintedLine], "") + "…"
		}
	}
	return all
}

// answered delivers msg, an answer that was parsed from l, to the call or the daemon's own request
// that it is for. A second answer, or one to an unknown call, is dropped; a malformed one fails its
// call. answered takes hub.Mu, and unlocks it while it moves a large answer to a file.
func (u *Process) answered(msg jsonrpc.Message, l *lines.Line) {
	if own, ok := u.takeInquiry(dialect.Number(msg.ID)); ok {
		own.take(owned(msg, l))
		return
	}
	asks, bad := dialect.CheckAnswer(&msg) // it may be large: nothing else waits meanwhile
	large := l.InFile() && len(msg.Result) >= bulk.Min && !asks
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	c := u.namedLocked(dialect.ID, msg.ID)
	if c == nil || c.Phase() == calls.Answered {
		return // it was cancelled, or is known
	}
	if bad != nil {
		u.failLocked(c, dialect.Unreadable(l.Text, bad, u.Secrets.Load().Text))
		return
	}
	if large && u.fileLocked(c, &msg, l) {
		return
	}
	msg = owned(msg, l)
	c.Answer = calls.Answer{Result: msg.Result, Error: msg.Error}
	u.settledLocked(c)
}

// takeInquiry removes and returns the daemon's own request of that write, if any. It takes hub.Mu.
func (u *Process) takeInquiry(write int64) (own inquiry, ok bool) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	kept := u.internal[write]
	if kept == nil {
		return own, false
	}
	own = *kept
	delete(u.internal, write)
	if !own.stays {
		u.records.Forget(write)
	}
	return own, true
}

// owned returns msg, which was parsed from l, in memory that the splitter does not use again.
func owned(msg jsonrpc.Message, l *lines.Line) jsonrpc.Message {
	if l.Owned {
		return msg
	}
	return msg.Clone()
}

// progressed passes the progress of an open call to its client, and restarts the call's time.
// Progress from before the attach (old) may have reached the client already, so it only restarts
// the time. progressed takes hub.Mu, but not while it calls the client's func.
func (u *Process) progressed(msg jsonrpc.Message, old bool) {
	u.hub.Mu.Lock()
	c := u.namedLocked(dialect.Token, jsonrpc.Field(msg.Params, mcp.MetaProgress))
	var tell func(json.RawMessage)
	if c != nil && c.Phase() == calls.Open && c.Up == u {
		tell = c.OnProgress
		u.restartClockLocked(c)
	}
	u.hub.Mu.Unlock()
	if tell != nil && !old {
		tell(bytes.Clone(msg.Params))
	}
}

// notified passes a notification of the server to the sessions that want it, or has the instance
// read changed lists again. The caller must not hold hub.Mu.
func (u *Process) notified(msg jsonrpc.Message) {
	switch msg.Method {
	case mcp.Acknowledged:
		id := jsonrpc.Field(jsonrpc.Field(msg.Params, "_meta"), mcp.MetaSubscription)
		u.acknowledged(msg.Params, dialect.Number(id))
	case mcp.LogMessage:
		u.logged(msg)
	case mcp.ToolsChanged, mcp.PromptsChanged, mcp.ResourcesChanged:
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		if u.State <= stage.Serving && !u.hub.Closed {
			u.Instance.ListsChanged()
		}
	default:
		u.remarked(msg)
	}
}

// ChangeLocked changes u.State by an event, and reports whether it is another one now. It does
// nothing else: see [Process.EndLocked]. The caller must hold hub.Mu.
func (u *Process) ChangeLocked(e stage.Event) bool {
	before := u.State
	u.State = before.After(e)
	return u.State != before
}
