package outbox

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"time"

	"holdline/protocol"
	"holdline/protocol/faultpoint"
)

// maxBatch bounds the lines that are copied together for one write, in bytes.
const maxBatch = 64 << 10

// Run writes the queued lines, and blocks for that until the outbox is closed. It returns nil
// once it is closed and empty, else the error of the connection, or [ErrSlow] or [ErrHoarder],
// for which it may have sent the client a bye: then the session must end. It takes o.mu, but not
// while it writes.
func (o *Outbox) Run() error {
	for range o.ready {
		for {
			lines, done := o.takeLines()
			if done {
				return nil
			}
			if lines == nil {
				break
			}
			if err := o.writeLines(lines); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeLines returns all queued lines, and marks the outbox as being written. The caller must
// write them, and call [Outbox.written] for each batch. It returns no lines if none are queued or
// another goroutine writes; done is true once the outbox is empty and takes no more lines. It
// takes o.mu.
func (o *Outbox) takeLines() (lines [][]byte, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return nil, false
	}
	if len(o.lines) == 0 {
		return nil, o.state != open
	}
	lines, o.lines, o.writing = o.lines, nil, true
	return lines, false
}

// written records that n bytes were sent, and wakes the goroutines that wait for room. more are
// the lines that the caller took and has still; without any, another goroutine may write. It
// returns true if the caller must drop these lines: [Outbox.Last] has replaced them. It takes
// o.mu.
func (o *Outbox) written(n int, more [][]byte) (cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= n
	o.torn = false
	o.accountLocked()
	o.wakeWaitingLocked()
	cut = o.state == parting && len(o.lines) > 0
	if len(more) > 0 && !cut {
		return false
	}
	o.dropLocked(more)
	o.writing = false
	return cut
}

// writeLines writes lines, which [Outbox.takeLines] returned, short ones together in one system
// call. It blocks until they are written. It returns nil then, also if it left out lines that
// [Outbox.Last] has replaced; an error of the connection; [ErrSlow] as [Outbox.sendWhole] does;
// or [ErrHoarder], after a bye to the client, if the client has not acknowledged too many bytes.
// It takes o.mu, but not while it writes.
func (o *Outbox) writeLines(lines [][]byte) error {
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
		if err := o.sendWhole(batch); err != nil {
			return err
		}
		afterWrite()
		lines = lines[n:]
		if o.hoards() { // before another goroutine may write
			o.bye(ErrHoarder)
			return ErrHoarder
		}
		if o.written(len(batch), lines) {
			lines = nil
		}
	}
	return nil
}

// afterWrite is called once a line was written whole.
func afterWrite() { faultpoint.At("session.written") }

// writeNow writes the queued lines, as far as the connection takes them without blocking. So an
// answer needs no second goroutine on its way. It yields the processor first, so that goroutines
// that are about to answer queue their lines, too. It wakes the goroutine of Run for the rest, or
// for all if there is much to write, and the goroutines that wait for room. It does nothing if
// another goroutine writes: that one looks for more lines when it is done. It takes o.mu, but not
// while it writes.
func (o *Outbox) writeNow() {
	now, ok := o.conn.(interface{ TryWrite(p []byte) int })
	o.mu.Lock()
	if o.writing {
		o.mu.Unlock()
		return
	}
	if !ok || o.state != open || o.bytes > maxBatch || o.held > maxUnconfirmed {
		o.wakeLocked()
		o.mu.Unlock()
		return
	}
	o.writing = true
	o.mu.Unlock()
	runtime.Gosched()
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines [][]byte
	if o.bytes <= maxBatch && o.state == open {
		lines, o.lines = o.lines, nil
	}
	if len(lines) > 0 {
		batch := lines[0]
		if len(lines) > 1 {
			batch = slices.Concat(lines...)
		}
		o.mu.Unlock()
		n := now.TryWrite(batch)
		if n == len(batch) {
			afterWrite()
		}
		o.mu.Lock()
		o.bytes -= n
		o.tookLocked(n)
		rest := batch[n:]
		o.torn = len(rest) > 0 && (o.torn || n > 0)
		if len(rest) > 0 && o.state != aborted {
			o.lines = append([][]byte{rest}, o.lines...)
		}
		o.accountLocked()
	}
	o.writing = false
	o.wakeWaitingLocked()
	if len(o.lines) > 0 || o.state != open {
		o.wakeLocked()
	}
}

// sendWhole writes all of p, and blocks until then. It returns an error of the connection, or
// [ErrSlow] if the queue is full and the client has neither taken a byte nor acknowledged a line
// for [protocol.StallWindow]; it sends the client a bye for that, if it has written nothing of p.
// Until the queue is full the client may be as slow as it likes. It takes o.mu, but not while it
// writes.
//
// It gives the connection of a guest small pieces, to count what that takes of a long line.
func (o *Outbox) sendWhole(p []byte) error {
	most := len(p)
	if o.isBound() {
		most = min(most, guestPiece)
	}
	for atStart := true; ; {
		if err := o.conn.SetWriteDeadline(time.Now().Add(protocol.StallWindow)); err != nil {
			return err
		}
		n, err := o.conn.Write(p[:min(len(p), most)])
		p = p[n:]
		o.wrote(n)
		switch {
		case err == nil && len(p) == 0:
			return nil
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case n == 0 && o.isFull() && o.quietFor() >= protocol.StallWindow:
			if atStart && !o.isTorn() { // inside a line the bye would be taken for the rest of it
				o.bye(ErrSlow)
			}
			return ErrSlow
		}
		atStart = atStart && n == 0
	}
}

// isBound reports whether the client is a guest. It takes o.mu.
func (o *Outbox) isBound() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.guest != nil
}

// wrote is [Outbox.tookLocked]. It takes o.mu.
func (o *Outbox) wrote(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tookLocked(n)
}

// isTorn reports whether a part was written of the line that is being written. It takes o.mu.
func (o *Outbox) isTorn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.torn
}

// quietFor returns the time since the client last acknowledged anything. It takes o.mu.
func (o *Outbox) quietFor() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.acked)
}

// bye sends the client the reason why its session ends. It tries for 10 ms at most, and ignores
// errors. Only the goroutine that writes may call it.
func (o *Outbox) bye(why error) {
	_ = o.conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	bye := protocol.Control{Holdline: protocol.Version, Bye: protocol.ByeSlow, Message: why.Error()}
	_, _ = o.conn.Write(protocol.Append(nil, bye))
}
