// Package outbox holds the lines that wait for one connection of a client. Many
// goroutines queue lines, one writes them. Everything in it is bounded, and it
// decides when a client is too slow to be kept.
package outbox

import (
	"context"
	"errors"
	"net"
	"time"

	"holdline/protocol"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
)

// The queue's limits: whichever is reached first. One line of the greatest size
// always fits.
const (
	MaxLines = 1024
	MaxBytes = jsonrpc.MaxFrame + 1<<20
)

// softBytes is how much may wait before [Outbox.AwaitRoom] blocks.
const softBytes = 8 << 20

// maxUnconfirmed bounds the answers that a client has not acknowledged, in bytes:
// one that its proxy copies, and those that wait in the queue.
const maxUnconfirmed = 3 * MaxBytes

// Reasons to end a client, and to leave an answer out.
var (
	ErrSlow      = errors.New("the client takes no more bytes")
	ErrHoarder   = errors.New("the client confirms none of its answers")
	ErrCancelled = errors.New("cancelled by the client")
)

// Answer is an answer for a client.
type Answer struct {
	N       int64  // number of the client's line that asked; 0 for a line that is never asked for again
	Confirm bool   // an executor waits for the client's confirmation
	Stored  bool   // an executor has it in a file, and gives it again when it is asked
	Line    []byte // with its newline
	at      int64  // its place among the connection's lines, control lines not counted
}

// state is what an outbox still does.
//
//	open     -> draining: Close. What is queued is written.
//	open     -> parting:  Last. One line replaces all that is queued, and is written.
//	open     -> aborted:  Abort. Nothing more is written.
//	draining -> aborted:  Abort.
type state int

const (
	open state = iota
	draining
	parting
	aborted
)

// confirming is what is known of how a client acknowledges answers.
type confirming int

const (
	never    confirming = iota // it cannot resume: an answer that is queued counts as held
	unproven                   // it has acknowledged nothing yet
	proven                     // it has acknowledged at least once
)

// Outbox is the queue of lines to one connection. It is safe for concurrent use,
// but for [Outbox.Run], which one goroutine calls.
//
// It also keeps each answer until the client has acknowledged it. Acknowledgements count
// the lines of the connection, without control lines. confirm is always called after the
// lock is released: executors take locks of their own.
type Outbox struct {
	conn    net.Conn
	confirm func(n int64) // says that the client holds the answer to its line n; called without the lock

	mu          lockcheck.Mutex // guards all below
	state       state
	confirming  confirming
	lines       [][]byte
	bytes       int           // of lines, and of what is being written
	writing     bool          // a goroutine writes to conn; only that one takes lines
	waiting     int           // goroutines that wait for room
	count       int64         // lines queued so far, control lines not counted
	unconfirmed []Answer      // in the order of the queue
	held        int           // bytes of unconfirmed
	settled     []int64       // lines whose answers the client holds, before confirm has said so
	acked       time.Time     // when the client has last acknowledged anything
	ready       chan struct{} // holds a token while there may be lines, or after Close
	room        chan struct{} // closed and replaced when lines were written
}

// New makes the outbox of a connection. A client that confirms acknowledges its
// answers: they are kept until then, and confirm, which may be nil, is called.
func New(conn net.Conn, confirms bool, confirm func(n int64)) *Outbox {
	o := &Outbox{conn: conn, confirm: confirm, ready: make(chan struct{}, 1), room: make(chan struct{})}
	if confirms {
		o.confirming = unproven
	}
	return o
}

// Put queues an answer, whose line is owned by the outbox from then on. It blocks
// while the queue is full, until ctx is done. It returns [ErrCancelled], and queues
// nothing, once allowed returns false; allowed, which may be nil, is called under
// the lock. If nothing else is queued, Put writes what the connection takes at once.
func (o *Outbox) Put(ctx context.Context, a Answer, allowed func() bool) error {
	err := o.await(ctx, func() bool { return o.fitsLocked(len(a.Line)) }, func() error {
		if allowed != nil && !allowed() {
			return ErrCancelled
		}
		return nil
	}, func() { o.answerLocked(a) })
	if err == nil {
		o.writeNow()
	}
	return err
}

// AwaitRoom blocks while more than softBytes wait to be written. It returns the cause of
// ctx once that is done, and [net.ErrClosed] once the outbox takes nothing more.
func (o *Outbox) AwaitRoom(ctx context.Context) error {
	return o.await(ctx, func() bool { return o.bytes <= softBytes }, nil, nil)
}

// await blocks until there is room, and then calls then. It returns
// [net.ErrClosed] once the outbox takes nothing more, and the error of check, which
// it calls before. All three are called under the lock; check and then may be nil.
func (o *Outbox) await(ctx context.Context, room func() bool, check func() error, then func()) error {
	for {
		o.mu.Lock()
		var err error
		if o.state != open {
			err = net.ErrClosed
		} else if check != nil {
			err = check()
		}
		if err != nil {
			o.mu.Unlock()
			return err
		}
		if room() {
			if then != nil {
				then()
			}
			o.unlock()
			return nil
		}
		changed := o.room
		o.waiting++
		o.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		o.mu.Lock()
		o.waiting--
		o.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// Requeue queues answers that were queued for an earlier connection, whatever room
// there is: they are in memory in any case.
func (o *Outbox) Requeue(answers []Answer) {
	o.mu.Lock()
	defer o.unlock()
	for _, a := range answers {
		o.answerLocked(a)
	}
}

// Offer queues a line that is no answer if there is room, and if allowed, which may
// be nil, returns true. It calls allowed under the lock.
func (o *Outbox) Offer(line []byte, allowed func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open && o.fitsLocked(len(line)) && (allowed == nil || allowed()) {
		o.count++
		o.addLocked(line)
	}
}

// Ask queues a server's request if there is room for its bytes, however many lines wait.
// A dropped request would leave the server waiting: the daemon sends it again only on the
// next connection.
func (o *Outbox) Ask(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open && o.roomLocked(len(line)) {
		o.count++
		o.addLocked(line)
	}
}

// Control queues a control line if there is room, or if the line is a bye: a client that
// misses that waits in vain for this daemon.
func (o *Outbox) Control(v any) {
	line := protocol.Append(nil, v)
	c, ok := v.(protocol.Control)
	bye := ok && c.Bye != ""
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open && (bye || o.fitsLocked(len(line))) {
		o.addLocked(line)
	}
}

// Acknowledge records that the client has received the first k lines of the connection
// completely, control lines not counted. Their answers are dropped and confirmed.
func (o *Outbox) Acknowledge(k int64) {
	o.mu.Lock()
	defer o.unlock()
	o.acked = time.Now()
	if o.confirming == unproven {
		o.confirming = proven
	}
	faultpoint.At("session.acked")
	i := 0
	for i < len(o.unconfirmed) && o.unconfirmed[i].at <= k {
		o.held -= len(o.unconfirmed[i].Line)
		o.settleLocked(&o.unconfirmed[i])
		i++
	}
	clear(o.unconfirmed[:i]) // else the array would keep their lines in memory
	if o.unconfirmed = o.unconfirmed[i:]; len(o.unconfirmed) == 0 {
		o.unconfirmed = nil
	}
}

// Abort drops what is queued, but for the line of [Outbox.Last], ends all waits,
// and returns the answers that are not confirmed.
func (o *Outbox) Abort() []Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != parting {
		o.moveLocked(aborted)
		o.lines = nil
	}
	left := o.unconfirmed
	o.unconfirmed, o.held = nil, 0
	return left
}

// Close makes [Outbox.Run] return after all queued lines are written. Later lines are not
// taken.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open {
		o.moveLocked(draining)
	}
}

// Last drops what is queued, but for a line that is being written, queues a control
// line in its place and takes nothing more.
func (o *Outbox) Last(v any) {
	line := protocol.Append(nil, v)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open {
		o.moveLocked(parting)
		o.lines = nil
		o.addLocked(line)
	}
}

// Empty reports whether nothing is queued, or being written.
func (o *Outbox) Empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes == 0
}

// moveLocked changes the state, and wakes all that wait for room or for lines.
func (o *Outbox) moveLocked(to state) {
	o.state = to
	close(o.room)
	o.room = make(chan struct{})
	o.wakeLocked()
}

// answerLocked queues an answer, and keeps it until it is confirmed.
func (o *Outbox) answerLocked(a Answer) {
	o.count++
	if o.confirming != never && a.N > 0 {
		a.at = o.count
		o.unconfirmed = append(o.unconfirmed, a)
		o.held += len(a.Line)
	} else {
		o.settleLocked(&a)
	}
	o.addLocked(a.Line)
}

// settleLocked marks an answer as confirmed: the client holds it, or cannot ask for it
// again. [Outbox.unlock] reports that. The caller must hold o.mu.
func (o *Outbox) settleLocked(a *Answer) {
	if a.Confirm && o.confirm != nil {
		o.settled = append(o.settled, a.N)
	}
}

// unlock unlocks o.mu, and then calls confirm for the answers that were settled under it.
func (o *Outbox) unlock() {
	settled := o.settled
	o.settled = nil
	o.mu.Unlock()
	for _, n := range settled {
		o.confirm(n)
	}
}

// hoards reports whether more is unconfirmed than may be. A client that has never
// acknowledged anything does not know how, and cannot resume.
func (o *Outbox) hoards() bool {
	o.mu.Lock()
	defer o.unlock()
	if o.held <= maxUnconfirmed || o.confirming == proven {
		return o.held > maxUnconfirmed
	}
	for i := range o.unconfirmed {
		o.settleLocked(&o.unconfirmed[i])
	}
	o.confirming, o.unconfirmed, o.held = never, nil, 0
	return false
}

// fitsLocked reports whether a line of n bytes is within both limits.
func (o *Outbox) fitsLocked(n int) bool { return len(o.lines) < MaxLines && o.roomLocked(n) }

// roomLocked reports whether a line of n bytes is within the limit of bytes. An empty
// outbox takes a line of any length.
func (o *Outbox) roomLocked(n int) bool { return o.bytes == 0 || o.bytes+n <= MaxBytes }

// addLocked queues a line, whatever room there is, and wakes the writer.
func (o *Outbox) addLocked(line []byte) {
	o.lines = append(o.lines, line)
	o.bytes += len(line)
	o.wakeLocked()
}

// wakeLocked makes [Outbox.Run] look for lines. It does not block.
func (o *Outbox) wakeLocked() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// isFull reports whether a goroutine that queues a line has to wait, or might.
func (o *Outbox) isFull() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lines) >= MaxLines || o.bytes >= jsonrpc.MaxFrame || o.waiting > 0
}
