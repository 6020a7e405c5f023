package supervisor

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync"

	"holdline/daemon/calls"
	"holdline/protocol/fault"
	"holdline/protocol/lockcheck"
	"holdline/protocol/process"
)

// Kind says what an [Event] is.
type Kind int

// The kinds of events.
const (
	Output Kind = iota + 1 // the child wrote something
	Exited                 // it ended; output may still come
	Closed                 // nothing of it is left and all output was told; the last event
	Lost                   // the worker itself died and nothing of its tree is left; the last event
)

// Event is one thing that happened to a worker's child.
type Event struct {
	Kind    Kind
	Seq     int64  // to be acked; 0 for output that comes from the files of a worker that has left
	At      int64  // of such output: how many bytes of stdout came before it; -1 if that is not known
	Stream  string // of Output: process.Stdout or process.Stderr
	Data    []byte
	Dropped int64         // of Output: so many bytes of it were dropped or lost in this place
	Old     bool          // it happened before this daemon attached
	Exit    process.Exit  // of Exited; of Closed and Lost, if known
	Fault   *fault.Record // of Lost
}

// maxWaiting is how many bytes of events wait for a slow user before the
// connection is not read any more, unless an answer is due on it: the worker
// sends no more than it may retain.
const maxWaiting = 1 << 20

// stderrTail is how much of stderr is kept for faults, in bytes.
const stderrTail = 4 << 10

// maxInFlight bounds the requests on one connection; the worker closes one
// that has more.
const maxInFlight = 512

// Worker is a worker process seen from this daemon. Its methods may be called
// from any goroutine.
type Worker struct {
	sup    *Supervisor
	dir    string
	spec   process.Spec
	events chan Event    // see Events
	ready  chan struct{} // see Ready
	gone   chan struct{} // closed when the worker is over or let go
	letGo  chan struct{} // closed by Close
	done   chan struct{} // closed when nothing runs for it any more
	slots  chan struct{} // one for each write in flight
	writes chan struct{} // of capacity 1: who holds it gives out write ids

	mu       lockcheck.Mutex
	changed  *sync.Cond // on mu
	c        *client    // nil while there is no connection
	pid      int
	child    int
	state    workerState   // changed by moveLocked alone
	lost     *fault.Record // of the Lost event, once that is queued; nil before
	killedBy error         // why this daemon has killed the worker, or is about to; nil if it has not
	queue    []Event
	queued   int // bytes in queue
	delivery delivery
	last     int64 // highest number received
	old      int64 // numbers below are from before the attach
	begun    int64 // numbers up to it were acked before the attach
	acked    int64
	held     []held        // stdout received that the worker may still keep
	exit     *process.Exit // nil until an Exited event was queued
	closed   int64         // number of the closed event, 0 until it was received
	tail     []byte
	secrets  []string // that the worker has told; guarded by mu

	next        int64 // write id
	inFlight    map[*write]struct{}
	outstanding int // bytes of writes in flight
	backlog     int // bytes that the worker had taken from an earlier daemon

	journal *calls.Journal // used by who holds writes, but for Forget
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
// how. From then on the channel letGo is closed. The channel gone is closed then, too,
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
func (w *Worker) isDetached() bool { return isClosed(w.letGo) }

// isClosed reports whether a channel on which nothing is sent is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// delivery is how events reach the user.
//
//	byTake   -> byEvents:  Events was called: the goroutine of deliverEvents empties the queue
//	byTake   -> delivered: Take has returned the last event
type delivery int

const (
	byTake delivery = iota
	byEvents
	delivered
)

// held is a received piece of stdout: what to leave out of a spool that begins
// before it.
type held struct {
	seq  int64
	size int
}

func newWorker(s *Supervisor, dir string, spec process.Spec) *Worker {
	w := &Worker{
		sup: s, dir: dir, spec: spec, state: Starting,
		events: make(chan Event, 16), ready: make(chan struct{}, 1), gone: make(chan struct{}),
		letGo: make(chan struct{}), done: make(chan struct{}), inFlight: make(map[*write]struct{}),
		slots: make(chan struct{}, maxInFlight), writes: make(chan struct{}, 1),
	}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// ID is the worker's id.
func (w *Worker) ID() string { return w.spec.ID }

// Spec is what the worker runs.
func (w *Worker) Spec() process.Spec { return w.spec }

// Dir is the worker's directory.
func (w *Worker) Dir() string { return w.dir }

// Generation is the number of this start of a worker.
func (w *Worker) Generation() int64 { return w.spec.Generation }

// LastWrite is the id of the last write that was taken or is on its way; after
// [Supervisor.Attach] that is the last one that any daemon has made.
func (w *Worker) LastWrite() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next - 1
}

// Old is what was made before the attach, as far as it is told again: output
// with a number above acked and below until. Both are 0 for a worker that was
// found dead.
func (w *Worker) Old() (acked, until int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun, w.old
}

// Status is how the worker is now.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Status{
		ID: w.spec.ID, Kind: w.spec.Kind, Name: w.spec.Name, PID: w.pid, ChildPID: w.child,
		Generation: w.spec.Generation, State: string(w.state), Attached: w.c != nil,
	}
}

// Events is the stream of events, in order. It is closed after [Closed] or
// [Lost], or by [Worker.Close]. What is received must be acked, or the child
// is held up at some time; who does not receive holds up only this child.
//
// [Worker.Take] does the same without a goroutine between: use either.
func (w *Worker) Events() <-chan Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delivery = byEvents
	w.changed.Broadcast()
	return w.events
}

// Ready returns a channel that yields when Take has something to return.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Take returns the events that have come since the last call, in order, and does
// not block. over reports that none will follow since the worker was let go; the
// last event of one that was not is [Closed] or [Lost].
func (w *Worker) Take() (events []Event, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDetached() {
		return nil, true
	}
	events, w.queue, w.queued = w.queue, nil, 0
	if n := len(events); n > 0 {
		if last := events[n-1].Kind; last == Closed || last == Lost {
			w.delivery = delivered
		}
		w.changed.Broadcast() // the connection is read again
	}
	return events, false
}

// announce makes Ready yield. It does not block.
func (w *Worker) announce() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Secrets returns what must not be shown of what the child says, as it was given
// to [Supervisor.Start]. It reports whether the worker has told that: one that was
// dead before it was spoken to has not.
func (w *Worker) Secrets() (secrets []string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.secrets, w.pid != 0
}

// StderrTail is the last lines that the child wrote to stderr.
func (w *Worker) StderrTail() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for line := range bytes.Lines(w.tail) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			lines = append(lines, string(bytes.ToValidUTF8(line, []byte("\uFFFD"))))
		}
	}
	return lines[max(0, len(lines)-20):]
}

// begin connects for the first time and starts the worker's goroutines.
func (w *Worker) begin(ctx context.Context, afterSeq int64) error {
	journal, err := calls.OpenJournal(filepath.Join(w.dir, calls.File))
	if err != nil {
		return err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.mu.Lock()
	w.journal = journal
	w.next = journal.Last() + 1 // replaced by what the worker says, if it lives
	w.last = afterSeq
	w.cancel = cancel
	w.mu.Unlock()
	c, err := w.connect(ctx)
	w.voidUnmade()
	s := w.sup
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && err == nil {
		c.close()
		err = ErrClosed
	}
	if err != nil && !errors.Is(err, errDead) {
		cancel()
		_ = journal.Close()
		return err
	}
	s.wg.Go(func() {
		var running sync.WaitGroup
		running.Go(func() { w.run(life, c) })
		w.pump()
		running.Wait()
		w.writes <- struct{}{} // nobody writes any more, nor ever will
		_ = journal.Close()
		s.remove(w)
		close(w.done)
	})
	return nil
}

// Close lets go of the worker, which lives on alone if it lives. It ends the
// events.
func (w *Worker) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDetached() {
		return
	}
	close(w.letGo)
	w.announce()
	w.endLocked()
	if w.c != nil {
		w.c.close()
	}
	if w.cancel != nil {
		w.cancel()
	}
}

// Done is closed when nothing runs for the worker any more: it was let go, or
// it is over, its lock is free and its last event was received.
func (w *Worker) Done() <-chan struct{} { return w.done }

// endLocked ends all waits for the worker. The caller must hold w.mu.
func (w *Worker) endLocked() {
	if !isClosed(w.gone) {
		close(w.gone)
	}
	w.changed.Broadcast()
}

// Ack says that all events up to seq are done with and need not be told to
// anybody again. It waits for nothing.
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
	if c != nil { // else it is told after the next attach
		c.ack(seq)
	}
}

// ackTaken is called once the worker keeps nothing up to seq any more: should
// it leave a spool, that begins behind it.
func (w *Worker) ackTaken(seq int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n < len(w.held) && w.held[n].seq <= seq {
		n++
	}
	w.held = append(w.held[:0], w.held[n:]...)
}
