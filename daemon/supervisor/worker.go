package supervisor

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/limits"
	"holdline/daemon/supervisor/far"
	"holdline/daemon/supervisor/near"
	"holdline/daemon/telling"
	"holdline/daemon/waiting"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/lockcheck"
	"holdline/protocol/process"
)

// Kind says what an [Event] is.
type Kind int

// The kinds of events.
const (
	Output Kind = iota + 1 // the child wrote something
	Exited                 // the child ended; output may still come
	Closed                 // nothing of the child is left and all output came before; the last event
	Lost                   // the worker itself died and nothing of its tree is left; the last event
)

// Event is one thing that happened to a worker's child.
type Event struct {
	Kind    Kind
	Seq     int64  // for Ack; 0 for output from the files of a worker that has left
	Stream  string // of Output: process.Stdout or process.Stderr
	Data    []byte
	Span    protocol.Span // of Output that lies in a file, instead of Data; File is relative to the worker's directory
	Sum     uint32        // of the bytes that Span names: see package bulk
	Dropped int64         // of Output: bytes that were dropped or lost in this place
	Old     bool          // it happened before this daemon attached
	Exit    process.Exit  // of Exited; of Closed and Lost, if known
	Fault   *fault.Record // of Lost
}

// maxWaiting bounds the events that wait for a slow user, in bytes. While more wait the
// connection is not read, unless an answer is due on it: the worker sends no more than
// it may retain.
const maxWaiting = 1 << 20

// stderrTail is how much of stderr is kept for faults, in bytes.
const stderrTail = 4 << 10

// maxInFlight bounds the requests on one connection; the worker closes one
// that has more.
const maxInFlight = 512

// Worker is a worker process seen from this daemon. Its methods may be called
// from any goroutine.
//
// The goroutine of keepConnected reads its connection and queues events for [Worker.Take].
// The fields up to writes do not change, group and heldBy from the end of begin on.
type Worker struct {
	sup      *Supervisor
	dir      string        // the worker's directory
	spec     process.Spec  // what the worker runs
	ready    chan struct{} // see Ready
	gone     chan struct{} // closed when the worker is over or detached
	detached chan struct{} // closed by Close
	done     chan struct{} // closed when nothing runs for it any more
	slots    chan struct{} // one for each write in flight
	writes   chan struct{} // holds a token while a goroutine gives out a write id, or records writes
	group    *limits.Group // that holds the worker to the limits of its spec; nil if it is in none
	heldBy   string        // by what those are held, for people; "" without limits

	mu       lockcheck.Mutex
	changed  *sync.Cond    // on mu
	c        *client       // nil while there is no connection
	pid      int           // 0 until the first attach
	child    int           // pid of the child; 0 if unknown or ended
	state    workerState   // changed by moveLocked alone
	lost     *fault.Record // of the Lost event, once that is queued; nil before
	killedBy error         // why this daemon has killed the worker, or is about to; nil if it has not
	queue    []Event       // received, not yet taken by the user
	queued   int           // bytes of these
	last     int64         // highest number received
	old      int64         // numbers below are from before the attach
	begun    int64         // numbers up to it were acked before the attach
	acked    int64         // the user has acknowledged all numbers up to this one
	held     []held        // stdout received that the worker may still keep
	exit     *process.Exit // nil until an Exited event was queued
	closed   int64         // number of the closed event, 0 until it was received
	tail     []byte        // of stderr, for faults
	secrets  []string      // that the worker has sent with its AttachResult

	next        int64               // write id
	inFlight    map[*write]struct{} // writes whose outcome is not known
	outstanding int                 // bytes of writes in flight
	backlog     int                 // bytes that the worker had taken from an earlier daemon

	session   *far.Session // that has started it elsewhere; for the goroutine that attaches first
	downSince time.Time    // when the last connection was lost; zero before

	journal *calls.Journal // used with the token of writes, but for Forget
	mark    *process.Taken // of the last write to a worker elsewhere; nil for one here; guarded by mu once it begins
	records []calls.Record // of the writes before, to be filled again by record; used with that token
	cancel  context.CancelFunc
}

// workerState is where the life of a worker stands.
//
//	Starting   -> Ready:      the first connection is attached
//	Ready      -> Recovering: the connection broke
//	Recovering -> Ready:      another connection is attached
//	any        -> Stopping:   the child is being ended, or the worker is gone; it stays so
//
// [Worker.Close] changes no state: the worker goes on, and this daemon no longer knows
// how. From then on the channel detached is closed. The channel gone is closed then, too,
// or once nothing of the worker is left.
type workerState string

// moveLocked changes the state, if the table of [workerState] has that transition. The caller
// must hold w.mu.
func (w *Worker) moveLocked(to workerState) {
	if w.state != Stopping && (to != Recovering || w.state == Ready) {
		w.state = to
		w.changed.Broadcast()
	}
}

// isDetached reports whether [Worker.Close] was called.
func (w *Worker) isDetached() bool { return waiting.IsClosed(w.detached) }

// held is a piece of stdout that was received: it is left out if a spool that begins
// before it is read.
type held struct {
	seq  int64
	size int
}

// newWorker returns a worker without a connection. [Worker.begin] connects it.
func newWorker(s *Supervisor, dir string, spec process.Spec) *Worker {
	w := &Worker{
		sup: s, dir: dir, spec: spec, state: Starting,
		ready: make(chan struct{}, 1), gone: make(chan struct{}),
		detached: make(chan struct{}), done: make(chan struct{}), inFlight: make(map[*write]struct{}),
		slots: make(chan struct{}, maxInFlight), writes: make(chan struct{}, 1),
	}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// ID returns the worker's id.
func (w *Worker) ID() string { return w.spec.ID }

// Spec returns what the worker runs.
func (w *Worker) Spec() process.Spec { return w.spec }

// Dir returns the worker's directory.
func (w *Worker) Dir() string { return w.dir }

// Generation returns the number of this start of a worker.
func (w *Worker) Generation() int64 { return w.spec.Generation }

// LastWrite returns the id of the last write that was taken or is being sent. After
// [Supervisor.Attach] that is the last one that any daemon has made.
func (w *Worker) LastWrite() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next - 1
}

// Old returns the range of events from before the attach that are delivered again: their
// numbers are above acked and below until. Both are 0 for a worker that was found dead.
func (w *Worker) Old() (acked, until int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun, w.old
}

// Status returns how the worker is now.
func (w *Worker) Status() control.Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := control.Worker{
		ID: w.spec.ID, Kind: w.spec.Kind, Name: w.spec.Name, PID: w.pid, ChildPID: w.child,
		Generation: w.spec.Generation, State: string(w.state), Attached: w.c != nil,
	}
	if at := w.spec.Far; at != nil { // its processes are not those of this machine
		one.PID, one.ChildPID = 0, 0
		one.Host, one.RTTUS = at.Host, w.sup.Hosts().RTT(at.Host).Microseconds()
		if last := w.sup.Hosts().Last(at.Host); last != nil && w.c == nil {
			one.Unreachable = last.Words
		}
	}
	return one
}

// HeldBy returns for people by what the limits of the worker are held; "" if it has none.
func (w *Worker) HeldBy() string { return w.heldBy }

// Ready returns a channel that yields a token when Take may have events to return, or the
// worker was detached.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Take returns the events that have come since the last call, in order, and does
// not block. over reports that none will follow since the worker was detached; the last
// event of one that was not is [Closed] or [Lost].
func (w *Worker) Take() (events []Event, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDetached() {
		return nil, true
	}
	events, w.queue, w.queued = w.queue, nil, 0
	w.changed.Broadcast() // the connection is read again
	return events, false
}

// announce makes Ready yield. It does not block.
func (w *Worker) announce() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Secrets returns the words that must not be shown where the child prints them, as they
// were given to [Supervisor.Start]. It returns false if the worker has not sent them: it
// was dead before this daemon could attach.
func (w *Worker) Secrets() (secrets []string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.secrets, w.pid != 0
}

// StderrTail returns the last lines that the child wrote to stderr, at most 20. What npm has
// downloaded before is none of them, since that says nothing of how the child ended.
func (w *Worker) StderrTail() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for line := range bytes.Lines(w.tail) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 && !telling.IsDownload(string(line)) {
			lines = append(lines, string(bytes.ToValidUTF8(line, []byte("\uFFFD"))))
		}
	}
	return lines[max(0, len(lines)-20):]
}

// ExitFault returns the fault of a child that ended by itself while a call waited for it.
func (w *Worker) ExitFault(operation string, exit process.Exit) *fault.Record {
	return near.ExitFault(&w.spec, operation, exit, w.StderrTail())
}

// begin opens the call journal, connects for the first time, and starts the worker's
// goroutine. A dead worker is no error: its events come from its files. On an error no
// goroutine runs and the journal is closed. The goroutine outlives ctx.
func (w *Worker) begin(ctx context.Context) error {
	journal, err := calls.OpenJournal(w.dir)
	if err != nil {
		return err
	}
	if w.spec.Far != nil && journal.Damage() == nil { // one here is marked by the worker itself
		if w.mark, err = process.OpenTaken(w.dir, journal.Covers()); err != nil {
			w.sup.log.WarnContext(ctx, "the last write to a worker elsewhere cannot be marked", "worker", w.spec.ID, "err", err)
		}
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.mu.Lock()
	w.journal = journal
	w.next = journal.Last() + 1 // replaced by what the worker says, if it lives
	w.cancel = cancel
	w.mu.Unlock()
	c, err := w.connect(ctx)
	if b := w.spec.Bounds; b != nil && err == nil {
		w.group = limits.GroupOf(w.Status().PID, w.spec.ID)
		w.heldBy = w.group.Held(b).String()
	}
	w.voidUnmade()
	taken := w.LastWrite()
	if c == nil && w.spec.Far == nil {
		taken, _ = process.ReadTaken(w.dir) // 0 after an error
	}
	w.journal.Compare(taken)
	s := w.sup
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && (err == nil || errors.Is(err, errDead)) {
		if c != nil {
			c.closeConn()
		}
		err = ErrClosed
	}
	if err != nil && !errors.Is(err, errDead) {
		cancel()
		_ = journal.Close()
		w.mark.Close()
		return err
	}
	s.wg.Go(func() {
		w.keepConnected(life, c)
		w.writes <- struct{}{} // the journal has no user any more
		_ = journal.Close()
		w.mark.Close()
		s.unregister(w)
		close(w.done)
	})
	return nil
}

// Close detaches the worker: its process lives on, and this daemon no longer writes to it.
// It ends the events. It does not block, and may be called again.
func (w *Worker) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDetached() {
		return
	}
	close(w.detached)
	w.announce()
	w.endLocked()
	if w.c != nil {
		w.c.closeConn()
	}
	if w.cancel != nil {
		w.cancel()
	}
}

// Done returns a channel that is closed when nothing runs for the worker any more: it
// was detached, or it is over, its lock is free and its last event is queued.
func (w *Worker) Done() <-chan struct{} { return w.done }

// endLocked ends all waits for the worker. The caller must hold w.mu.
func (w *Worker) endLocked() {
	if !waiting.IsClosed(w.gone) {
		close(w.gone)
	}
	w.changed.Broadcast()
}

// Ack acknowledges all events up to seq, so that the worker drops them. Call it only when
// what they say is recorded: no daemon gets them again. It does not block.
func (w *Worker) Ack(seq int64) {
	w.mu.Lock()
	seq = min(seq, w.last)
	if seq <= w.acked {
		w.mu.Unlock()
		return
	}
	w.acked = seq
	c := w.c
	w.mu.Unlock()
	if c != nil { // else the next attach sends it
		c.ack(seq)
	}
}

// ackTaken forgets the output up to seq: the worker has dropped it, so a spool written from
// now on begins behind it.
func (w *Worker) ackTaken(seq int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n < len(w.held) && w.held[n].seq <= seq {
		n++
	}
	w.held = append(w.held[:0], w.held[n:]...)
}
