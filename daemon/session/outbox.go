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

// errSlow ends a session whose client does not read.
var errSlow = errors.New("the client takes no more bytes")

// outbox is the queue of lines to one client. Many goroutines put, one writes.
type outbox struct {
	mu     sync.Mutex
	lines  [][]byte
	bytes  int
	closed bool
	ready  chan struct{} // holds a token while there may be lines, or after close
	room   chan struct{} // closed and replaced when lines were taken
}

func newOutbox() *outbox {
	return &outbox{ready: make(chan struct{}, 1), room: make(chan struct{})}
}

// put queues line, which must end with a newline and is owned by the queue
// from then on. While the queue is full it waits, until ctx is done.
func (o *outbox) put(ctx context.Context, line []byte) error {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return net.ErrClosed
		}
		if o.fitsLocked(len(line)) {
			o.addLocked(line)
			o.mu.Unlock()
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

// offer queues line if there is room.
func (o *outbox) offer(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.fitsLocked(len(line)) {
		o.addLocked(line)
	}
}

func (o *outbox) fitsLocked(n int) bool {
	return len(o.lines) < maxQueueLines && (o.bytes == 0 || o.bytes+n <= maxQueueBytes)
}

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
	o.closed = true
	o.wakeLocked()
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

// written makes room for others after n bytes went out.
func (o *outbox) written(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= n
	close(o.room)
	o.room = make(chan struct{})
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
				o.written(len(batch))
				lines = lines[n:]
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
				_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
				_, _ = conn.Write(protocol.Append(nil, protocol.Control{
					Holdline: protocol.Version, Bye: protocol.ByeSlow, Message: errSlow.Error(),
				}))
			}
			return errSlow
		}
		atStart = atStart && n == 0
	}
}
