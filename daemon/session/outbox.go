package session

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"holdline/protocol"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
)

// The outgoing queue's limits: whichever is reached first. One line of the
// greatest size always fits.
const (
	maxQueueLines = 1024
	maxQueueBytes = jsonrpc.MaxFrame + 1<<20
)

// maxBatch bounds the lines that are copied together for one write, in bytes.
const maxBatch = 64 << 10

// stallTimeout is how long a client may take no byte while its queue is full.
const stallTimeout = 30 * time.Second

// maxUnsure bounds the answers that a client has not confirmed, those that
// wait in its queue included, in bytes.
const maxUnsure = 2 * maxQueueBytes

// Endings of a client that is a burden.
var (
	errSlow    = errors.New("the client takes no more bytes")
	errHoarder = errors.New("the client confirms none of its answers")
	errFull    = errors.New("more than 64 MiB of answers waited for this client at once")
)

// sent is an answer that was queued for a client.
type sent struct {
	n    int64  // number of the client's line that asked; 0 for a line that is never asked for again
	tell bool   // somebody waits for the client's confirmation
	at   int64  // its place among the connection's lines, control lines not counted
	line []byte // with its newline
}

// outbox is the queue of lines to one connection. Many goroutines put, one
// writes. If it is to, it keeps each answer until the client has confirmed it.
type outbox struct {
	keep    bool
	confirm func(n int64) // is told that the client holds the answer to its line n; called without the lock

	mu     sync.Mutex
	lines  [][]byte
	bytes  int
	closed bool
	cut    bool          // what was taken before the last line is left out
	ended  bool          // the last line is queued, or sent
	count  int64         // lines queued so far, control lines not counted
	unsure []sent        // not confirmed, in order
	held   int           // bytes of them
	firm   []int64       // lines whose answers the client holds, before that was told
	told   bool          // the client confirms
	ready  chan struct{} // holds a token while there may be lines, or after close
	room   chan struct{} // closed and replaced when lines were taken
}

func newOutbox(keep bool, confirm func(n int64)) *outbox {
	return &outbox{keep: keep, confirm: confirm, ready: make(chan struct{}, 1), room: make(chan struct{})}
}

// put queues an answer, whose line must end with a newline and is owned by the
// queue from then on. It blocks while the queue is full, until ctx is done. It
// returns [errCancelled], and queues nothing, once allowed returns false; allowed,
// which may be nil, is called under the lock.
func (o *outbox) put(ctx context.Context, a sent, allowed func() bool) error {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return net.ErrClosed
		}
		if allowed != nil && !allowed() {
			o.mu.Unlock()
			return errCancelled
		}
		if o.fitsLocked(len(a.line)) {
			o.answerLocked(a)
			o.unlock()
			return nil
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// again queues answers that were queued for an earlier connection, whatever
// room there is: they are held in any case.
func (o *outbox) again(answers []sent) {
	o.mu.Lock()
	defer o.unlock()
	for _, a := range answers {
		o.answerLocked(a)
	}
}

// offer queues a line that is no answer if there is room, and if allowed, which may
// be nil, returns true. It calls allowed under the lock.
func (o *outbox) offer(line []byte, allowed func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.fitsLocked(len(line)) && (allowed == nil || allowed()) {
		o.count++
		o.addLocked(line)
	}
}

// ask queues a request if there is room for its bytes, however many lines wait:
// nobody makes it again as long as the connection holds, and a server waits for
// the answer.
func (o *outbox) ask(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.roomLocked(len(line)) {
		o.count++
		o.addLocked(line)
	}
}

// control queues a control line if there is room.
func (o *outbox) control(v any) {
	line := protocol.Append(nil, v)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.fitsLocked(len(line)) {
		o.addLocked(line)
	}
}

// farewell queues a bye behind all that is queued, whatever room there is: a
// client that misses it waits for a daemon that does not come.
func (o *outbox) farewell(bye *protocol.Control) {
	line := protocol.Append(nil, bye)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.addLocked(line)
	}
}

// got says that the client holds the first k lines whole.
func (o *outbox) got(k int64) {
	o.mu.Lock()
	defer o.unlock()
	o.told = true
	faultpoint.At("session.got")
	i := 0
	for i < len(o.unsure) && o.unsure[i].at <= k {
		o.held -= len(o.unsure[i].line)
		o.firmLocked(&o.unsure[i])
		i++
	}
	clear(o.unsure[:i]) // so that nothing of them is held
	if o.unsure = o.unsure[i:]; len(o.unsure) == 0 {
		o.unsure = nil
	}
}

// abort drops what is queued, but for the line of [outbox.last], lets the
// writer and all that wait go, and hands over the answers that are not
// confirmed.
func (o *outbox) abort() []sent {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		close(o.room)
		o.room = make(chan struct{})
	}
	if o.closed = true; !o.ended {
		o.lines = nil
	}
	left := o.unsure
	o.unsure, o.held = nil, 0
	o.wakeLocked()
	return left
}

// answerLocked queues an answer, and keeps it if that is wanted.
func (o *outbox) answerLocked(a sent) {
	o.count++
	if o.keep && a.n > 0 {
		a.at = o.count
		o.unsure = append(o.unsure, a)
		o.held += len(a.line)
	} else {
		o.firmLocked(&a) // its client will not come back for it
	}
	o.addLocked(a.line)
}

// firmLocked notes that the client holds an answer, or never asks for it.
func (o *outbox) firmLocked(a *sent) {
	if a.tell && o.confirm != nil {
		o.firm = append(o.firm, a.n)
	}
}

// unlock tells what the client holds, once the lock is free.
func (o *outbox) unlock() {
	firm := o.firm
	o.firm = nil
	o.mu.Unlock()
	for _, n := range firm {
		o.confirm(n)
	}
}

// hoards tells whether more is unconfirmed than may be. A client that has
// never confirmed anything does not know how, and cannot resume.
func (o *outbox) hoards() bool {
	o.mu.Lock()
	defer o.unlock()
	if o.held <= maxUnsure {
		return false
	}
	if !o.told {
		for i := range o.unsure {
			o.firmLocked(&o.unsure[i])
		}
		o.keep, o.unsure, o.held = false, nil, 0
	}
	return o.told
}

func (o *outbox) fitsLocked(n int) bool {
	return len(o.lines) < maxQueueLines && o.roomLocked(n)
}

func (o *outbox) roomLocked(n int) bool { return o.bytes == 0 || o.bytes+n <= maxQueueBytes }

func (o *outbox) addLocked(line []byte) {
	o.lines = append(o.lines, line)
	o.bytes += len(line)
	o.wakeLocked()
}

func (o *outbox) wakeLocked() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// full tells whether someone who puts a line might have to wait.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lines) >= maxQueueLines || o.bytes >= jsonrpc.MaxFrame
}

// close lets the writer finish what is queued and takes nothing more.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		close(o.room) // who waits for it sees that there will be none
		o.room = make(chan struct{})
	}
	o.closed = true
	o.wakeLocked()
}

// last drops what is queued, but for what is being written, queues a control
// line in its place and takes nothing more.
func (o *outbox) last(v any) {
	line := protocol.Append(nil, v)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	close(o.room)
	o.room = make(chan struct{})
	o.closed, o.ended, o.cut, o.lines = true, true, true, nil
	o.addLocked(line)
}

// take is everything queued, or nil with done = true after close. The taken
// lines count as queued until taken is called with their size.
func (o *outbox) take() (lines [][]byte, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines = o.lines
	o.lines = nil
	if len(lines) == 0 {
		return nil, o.closed
	}
	return lines, false
}

// written makes room for others after n bytes went out. It tells whether what
// was taken with them is to be left out.
func (o *outbox) written(n int) (cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= n
	close(o.room)
	o.room = make(chan struct{})
	cut, o.cut = o.cut, false
	return cut
}

// write sends what is queued to conn until the queue is closed and empty, an
// error happens, or the client stalls ([errSlow]).
func (o *outbox) write(conn net.Conn) error {
	for range o.ready {
		for {
			lines, done := o.take()
			if done {
				return nil
			}
			if lines == nil {
				break
			}
			// Lines that wait together go out in one system call.
			for len(lines) > 0 {
				n, size := 1, len(lines[0])
				for n < len(lines) && size+len(lines[n]) <= maxBatch {
					size += len(lines[n])
					n++
				}
				batch := lines[0]
				if n > 1 {
					batch = slices.Concat(lines[:n]...)
				}
				if err := o.send(conn, batch); err != nil {
					return err
				}
				faultpoint.At("session.written")
				lines = lines[n:]
				if o.written(len(batch)) {
					lines = nil
				}
				if o.hoards() {
					o.bye(conn, errHoarder)
					return errHoarder
				}
			}
		}
	}
	return nil
}

// send writes p whole. A client that takes no byte for [stallTimeout] is
// given up when its queue is full; until then it may be as slow as it likes.
func (o *outbox) send(conn net.Conn, p []byte) error {
	atStart := true
	for {
		if err := conn.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
			return err
		}
		n, err := conn.Write(p)
		p = p[n:]
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case n == 0 && o.full():
			if atStart { // between two lines: say why, if there is room for so little
				o.bye(conn, errSlow)
			}
			return errSlow
		}
		atStart = atStart && n == 0
	}
}

// bye says why the session ends, if there is room for so little.
func (o *outbox) bye(conn net.Conn, why error) {
	_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_, _ = conn.Write(protocol.Append(nil, protocol.Control{Holdline: protocol.Version, Bye: protocol.ByeSlow, Message: why.Error()}))
}
