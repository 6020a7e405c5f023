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
	Line    []byte // with its newline, and Behind behind it
	Behind  []byte // control lines
	Queued  func() // called under the lock as the line is queued, each time; may be nil
	Work    bool   // a goroutine has worked on it, and may wait with it for the room of a guest
	Room    *int   // room of a guest that was taken for it; nil for none
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
	torn        bool          // a part was written of what is first in lines, or is being written
	waiting     int           // goroutines that wait for room
	count       int64         // lines queued so far, control lines not counted
	unconfirmed []Answer      // in the order of the queue
	held        int           // bytes of unconfirmed
	took        int           // bytes that count as taken since the last acknowledgement; see tookLocked
	settled     []int64       // lines whose answers the client holds, before confirm has said so
	acked       time.Time     // when the client has last acknowledged anything
	ready       chan struct{} // holds a token while there may be lines, or after Close
	room        chan struct{} // closed and replaced when lines were written
	guest       *Guest        // bounds the memory of the lines; nil unless the client is a guest
	taken       int           // of the guest's room
}

// New returns the empty outbox of conn. It starts no goroutine: the caller must call
// [Outbox.Run]. confirms reports whether the client acknowledges its answers: then they are kept
// until it has. confirm, which may be nil, is called with the number of each line whose answer
// the client holds, without the lock.
func New(conn net.Conn, confirms bool, confirm func(n int64)) *Outbox {
	o := &Outbox{conn: conn, confirm: confirm, ready: make(chan struct{}, 1), room: make(chan struct{})}
	if confirms {
		o.confirming = unproven
	}
	return o
}

// Bound makes g, which may be nil, bound the memory of the lines that wait. It takes o.mu.
func (o *Outbox) Bound(g *Guest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.guest = g
	o.accountLocked()
}

// accountLocked makes the guest's room fit the lines: those that are queued are acknowledged later, for
// the most part. The caller must hold o.mu.
func (o *Outbox) accountLocked() { o.guest.Force(&o.taken, max(o.bytes, o.held)) }

// Put queues an answer, whose line is owned by the outbox from then on. It blocks while the queue
// is full. It queues nothing, and returns an error, in three cases: the cause of ctx, if that is
// done while it waits; [ErrCancelled], once allowed returns false; [net.ErrClosed], once the
// outbox takes nothing more. allowed, which may be nil, is called under o.mu. If nothing else is
// being written, Put writes what the connection takes at once. It takes o.mu, and may call
// confirm after that.
func (o *Outbox) Put(ctx context.Context, a Answer, allowed func() bool) error {
	size := len(a.Line)
	if !a.Work || a.Room != nil && *a.Room > 0 {
		size = 0
	}
	err := o.await(ctx, size, func() bool { return o.fitsLocked(len(a.Line)) }, func() error {
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

// AwaitRoom blocks while more than softBytes wait to be written. It returns nil then, the cause
// of ctx once that is done, and [net.ErrClosed] once the outbox takes nothing more. It takes
// o.mu.
func (o *Outbox) AwaitRoom(ctx context.Context) error {
	return o.await(ctx, 0, func() bool { return o.bytes <= softBytes }, nil, nil)
}

// await blocks until room returns true and the guest, if the client is one, has room for size bytes, and
// then calls then and returns nil. It returns
// [net.ErrClosed] once the outbox takes nothing more, the error of check, which it calls before
// each call of room, and the cause of ctx if that is done while it waits. It takes o.mu, and
// calls all three functions under it; check and then may be nil. Answers that then settles are
// confirmed after o.mu is released.
func (o *Outbox) await(ctx context.Context, size int, room func() bool, check func() error, then func()) error {
	for {
		o.mu.Lock()
		guest := o.guest
		if size == 0 {
			guest = nil
		}
		freed, patience := guest.waits()
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
		if room() && guest.Take(&o.taken, max(o.bytes, o.held)+size) {
			if then != nil {
				then()
			}
			o.accountLocked()
			o.unlock()
			return nil
		}
		changed := o.room
		o.waiting++
		o.mu.Unlock()
		select {
		case <-changed:
		case <-freed:
		case <-patience:
			guest.makeRoom(size)
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

// Requeue queues answers that were queued for an earlier connection, whatever room there is: they
// are in memory in any case. It does not block. It takes o.mu, and may call confirm after that.
func (o *Outbox) Requeue(answers []Answer) {
	o.mu.Lock()
	defer o.unlock()
	for _, a := range answers {
		o.answerLocked(a)
	}
	o.accountLocked()
	o.wakeLocked()
}

// Offer queues a line that is no answer. It drops the line, and returns false, if there is no room, if
// the outbox takes nothing more, or if allowed, which may be nil, returns false. It does not block. It
// takes o.mu, and calls allowed under it.
func (o *Outbox) Offer(line []byte, allowed func() bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open && o.fitsLocked(len(line)) && (allowed == nil || allowed()) &&
		o.guest.Take(&o.taken, max(o.bytes, o.held)+len(line)) {
		o.count++
		o.addLocked(line)
		return true
	}
	return false
}

// Ask queues a server's request if there is room for its bytes, however many lines wait; else it
// drops the line. It does not block. A dropped request would leave the server waiting: the daemon
// sends it again only on the next connection. It takes o.mu.
func (o *Outbox) Ask(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open && o.roomLocked(len(line)) {
		o.count++
		o.addLocked(line)
	}
}

// Control queues v as a control line if there is room, or if it is a bye: a client that misses
// that waits in vain for this daemon. Else it drops the line, as it does once the outbox takes
// nothing more. It does not block. It takes o.mu.
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
// completely, control lines not counted. The outbox drops their answers, and calls confirm for
// those of which an executor waits for that. It takes o.mu, and calls confirm after that.
func (o *Outbox) Acknowledge(k int64) {
	o.mu.Lock()
	defer o.unlock()
	o.acked = time.Now()
	if o.confirming == unproven {
		o.confirming = proven
	}
	faultpoint.At("session.acked")
	i, before := 0, o.held
	for i < len(o.unconfirmed) && o.unconfirmed[i].at <= k {
		o.held -= len(o.unconfirmed[i].Line)
		o.settleLocked(&o.unconfirmed[i])
		i++
	}
	clear(o.unconfirmed[:i]) // else the array would keep their lines in memory
	if o.unconfirmed = o.unconfirmed[i:]; len(o.unconfirmed) == 0 {
		o.unconfirmed = nil
	}
	if i > 0 {
		o.took = 0
	}
	o.guest.Took(before - o.held)
	o.accountLocked()
}

// tookLocked records that the connection has taken n bytes. A guest may need long for one answer, and
// acknowledges none meanwhile. But between two acknowledgements no more counts than the first answer has
// that is not acknowledged: else a guest that leaves long ones unacknowledged could go on by short ones.
// The caller must hold o.mu.
func (o *Outbox) tookLocked(n int) {
	if len(o.unconfirmed) > 0 {
		n = max(min(n, len(o.unconfirmed[0].Line)-o.took), 0)
		o.took += n
	}
	o.guest.Took(n)
}

// Abort drops what is queued, but for the line of [Outbox.Last]. It ends all waits for room,
// which return [net.ErrClosed], and [Outbox.Run], which returns after the write that is under
// way. Abort does not wait for that. It returns the answers that the client has not confirmed,
// and keeps them no longer. If the client is a guest, and room is not nil, what room says is taken
// grows by these answers before the outbox gives its room back. It takes o.mu.
func (o *Outbox) Abort(room *int) []Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != parting {
		o.moveLocked(aborted)
		o.lines = nil
	}
	if room != nil {
		o.guest.Force(room, *room+o.held)
	}
	left := o.unconfirmed
	o.unconfirmed, o.held = nil, 0
	o.guest.Force(&o.taken, 0)
	o.guest = nil
	return left
}

// Close makes [Outbox.Run] return after all queued lines are written. It does not wait for that.
// Later lines are not taken, and waits for room return [net.ErrClosed]. It takes o.mu.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open {
		o.moveLocked(draining)
	}
}

// Last queues the control line v in place of all that is queued, but for a line that is being
// written, or of which a part was written. The outbox takes nothing more, waits for room return
// [net.ErrClosed], and [Outbox.Run] returns after it has written the line. Last does nothing after
// Abort, Close or another Last. It takes o.mu.
func (o *Outbox) Last(v any) {
	line := protocol.Append(nil, v)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == open {
		o.moveLocked(parting)
		begun := 0
		if o.torn && !o.writing {
			begun = 1
		}
		o.dropLocked(o.lines[begun:])
		o.lines = o.lines[:begun:begun]
		o.addLocked(line)
	}
}

// dropLocked counts lines as not queued any more. The caller must hold o.mu.
func (o *Outbox) dropLocked(lines [][]byte) {
	for _, line := range lines {
		o.bytes -= len(line)
	}
}

// Empty reports whether nothing is queued, or being written. After Abort has dropped lines it
// remains false. It takes o.mu.
func (o *Outbox) Empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes == 0
}

// moveLocked changes the state, and wakes all that wait for room or for lines. The caller must
// hold o.mu.
func (o *Outbox) moveLocked(to state) {
	o.state = to
	o.wakeWaitingLocked()
	o.wakeLocked()
}

// answerLocked queues an answer, whatever room there is. It does not wake the writer. It keeps
// the answer until the client acknowledges it; one that the client cannot ask for again counts
// as confirmed at once. The caller must hold o.mu, and release it with [Outbox.unlock].
func (o *Outbox) answerLocked(a Answer) {
	o.count++
	if o.confirming != never && a.N > 0 {
		a.at = o.count
		kept := a
		kept.Room = nil
		o.unconfirmed = append(o.unconfirmed, kept)
		o.held += len(a.Line)
	} else {
		o.settleLocked(&a)
	}
	o.queueLocked(a.Line)
	if a.Room != nil {
		o.taken += *a.Room
		*a.Room = 0
	}
	if a.Queued != nil {
		a.Queued()
	}
}

// settleLocked marks an answer as confirmed: the client holds it, or cannot ask for it again.
// [Outbox.unlock] reports that. The caller must hold o.mu.
func (o *Outbox) settleLocked(a *Answer) {
	if a.Confirm && o.confirm != nil {
		o.settled = append(o.settled, a.N)
	}
}

// unlock releases o.mu, which the caller must hold, and then calls confirm for the answers that
// were settled under it.
func (o *Outbox) unlock() {
	settled := o.settled
	o.settled = nil
	o.mu.Unlock()
	for _, n := range settled {
		o.confirm(n)
	}
}

// hoards reports whether the client leaves more than maxUnconfirmed bytes of answers
// unacknowledged. If it has never acknowledged anything it does not know how, and cannot resume:
// then hoards returns false, counts all its answers as confirmed, and keeps none from then on. It
// takes o.mu, and may call confirm after that.
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

// fitsLocked reports whether a line of n bytes is within both limits, of lines and of bytes. The
// caller must hold o.mu.
func (o *Outbox) fitsLocked(n int) bool { return len(o.lines) < MaxLines && o.roomLocked(n) }

// roomLocked reports whether a line of n bytes is within the limit of bytes. An empty outbox
// takes a line of any length. The caller must hold o.mu.
func (o *Outbox) roomLocked(n int) bool { return o.bytes == 0 || o.bytes+n <= MaxBytes }

// addLocked queues a line, whatever room there is, and wakes the writer. The caller must hold
// o.mu.
func (o *Outbox) addLocked(line []byte) {
	o.queueLocked(line)
	o.wakeLocked()
}

// queueLocked queues a line, whatever room there is. The caller must hold o.mu.
func (o *Outbox) queueLocked(line []byte) {
	o.lines = append(o.lines, line)
	o.bytes += len(line)
}

// wakeWaitingLocked wakes all that wait for room. The caller must hold o.mu.
func (o *Outbox) wakeWaitingLocked() {
	if o.waiting > 0 {
		close(o.room)
		o.room = make(chan struct{})
	}
}

// wakeLocked makes [Outbox.Run] look for lines. It does not block. The caller must hold o.mu.
func (o *Outbox) wakeLocked() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// isFull reports whether the queue is full, or a goroutine waits for room in it. It takes o.mu.
func (o *Outbox) isFull() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lines) >= MaxLines || o.bytes >= jsonrpc.MaxFrame || o.waiting > 0
}
