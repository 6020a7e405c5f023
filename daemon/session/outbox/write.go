package outbox

import (
	"errors"
	"os"
	"slices"
	"time"

	"holdline/protocol"
	"holdline/protocol/faultpoint"
)

// maxBatch bounds the lines that are copied together for one write, in bytes.
const maxBatch = 64 << 10

// Run writes what is queued until the outbox is closed and empty, an error happens,
// or the client is to be ended: [ErrSlow], [ErrHoarder].
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

// takeLines returns all that is queued, which the caller has to write; [Outbox.written]
// ends that. It returns nothing while another goroutine writes, and done once
// nothing will be queued any more.
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

// written makes room for others after n bytes went out. If more is false the caller
// has written all that it took. It reports whether what is left of that is to be
// left out: [Outbox.Last] has replaced it.
func (o *Outbox) written(n int, more bool) (cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= n
	close(o.room)
	o.room = make(chan struct{})
	cut = o.state == parting && len(o.lines) > 0
	if more && !cut {
		return false
	}
	o.writing = false
	return cut
}

// writeLines writes lines; those that are short go out together, in one system call.
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
		if o.written(len(batch), len(lines) > 0) {
			lines = nil
		}
		if o.hoards() {
			o.bye(ErrHoarder)
			return ErrHoarder
		}
	}
	return nil
}

// afterWrite is called once a line was written whole.
func afterWrite() { faultpoint.At("session.written") }

// writeNow writes the one line that is queued, if that is all there is to write, as
// far as the connection takes it without a wait. The goroutine of Run, which would
// have to be woken, writes the rest.
func (o *Outbox) writeNow() {
	now, ok := o.conn.(interface{ TryWrite(p []byte) int })
	if !ok {
		return
	}
	o.mu.Lock()
	if o.writing || o.state != open || len(o.lines) != 1 || len(o.lines[0]) > maxBatch || o.held > maxUnconfirmed {
		o.mu.Unlock()
		return
	}
	line := o.lines[0]
	o.lines, o.writing = nil, true
	o.mu.Unlock()
	n := now.TryWrite(line)
	if n == len(line) {
		afterWrite()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= n
	o.writing = false
	if rest := line[n:]; len(rest) > 0 && o.state != aborted {
		o.lines = append([][]byte{rest}, o.lines...)
	}
	close(o.room)
	o.room = make(chan struct{})
	if len(o.lines) > 0 || o.state != open {
		o.wakeLocked()
	}
}

// sendWhole writes p whole. A client that takes no byte for [protocol.StallWindow], and
// acknowledges none, is ended when its queue is full; until then it may be as slow as
// it likes.
func (o *Outbox) sendWhole(p []byte) error {
	atStart := true
	for {
		if err := o.conn.SetWriteDeadline(time.Now().Add(protocol.StallWindow)); err != nil {
			return err
		}
		n, err := o.conn.Write(p)
		p = p[n:]
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case n == 0 && o.isFull() && o.quietFor() >= protocol.StallWindow:
			if atStart { // between two lines: say why, if there is room for so little
				o.bye(ErrSlow)
			}
			return ErrSlow
		}
		atStart = atStart && n == 0
	}
}

// quietFor returns how long the client has acknowledged nothing.
func (o *Outbox) quietFor() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.acked)
}

// bye says why the session ends, if there is room for so little.
func (o *Outbox) bye(why error) {
	_ = o.conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	bye := protocol.Control{Holdline: protocol.Version, Bye: protocol.ByeSlow, Message: why.Error()}
	_, _ = o.conn.Write(protocol.Append(nil, bye))
}
