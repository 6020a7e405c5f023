package proxy

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
)

// When an ack is due: after this delay, this many lines or this many bytes.
const (
	ackDelay = 50 * time.Millisecond
	ackLines = 32
	ackBytes = 256 << 10
)

// While the proxy copies a long line to a client that reads slowly, it repeats the last ack
// to show that the client does read: after each copyChunk bytes, at most once in ackRepeat.
const (
	ackRepeat = 5 * time.Second
	copyChunk = 256 << 10
)

// readDaemon copies the daemon's lines to the client until the last byte of the connection,
// or a bye.
func (p *proxy) readDaemon(ctx context.Context, l *link, a *acks) ending {
	b := &batch{p: p, acks: a}
	defer b.flush()
	l.lines.BeforeRead = b.flush
	for {
		line, err := l.lines.Next()
		if errors.Is(err, jsonrpc.ErrTooLong) { // its id is unknown, so no request can be answered with a fault
			l.bye.Message = "it sent a line that is too long"
			return endStopped
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				p.log.DebugContext(ctx, "reading from the daemon ended", "err", err)
			}
			return endLost
		}
		message, n := protocol.CutNumber(line)
		if n > 0 {
			line[len(message)] = '\n' // else [ended] would have to copy it
			line = message
		}
		if protocol.IsControl(line) {
			c, err := protocol.ParseControl(line)
			switch {
			case err != nil:
				p.log.WarnContext(ctx, "control line not understood", "err", err)
			case c.Seen != nil:
				p.store.seen(*c.Seen)
				poke(p.space)
			case c.Long != nil:
				if !p.receiveLong(ctx, l, n, c.Long, b) {
					return endLost
				}
				if p.out.broken() != nil {
					return endBroken
				}
			case c.Keep != nil:
				p.store.keep(c.Keep)
			case c.Bye != "":
				l.bye = c
				return endStopped
			case c.Message != "":
				p.log.WarnContext(ctx, "word from the daemon", "says", c.Message)
			}
			continue
		}
		p.receive(ctx, n, line, b)
		if p.out.broken() != nil {
			return endBroken
		}
	}
}

// batch has lines of the daemon that the client gets in one write.
type batch struct {
	p       *proxy
	acks    *acks
	buf     []byte // whole lines
	lines   int    // received, also those that the client does not get
	bytes   int    // of them
	answers int    // among those in buf
}

// add adds a line that the client gets. isAnswer says that [store.copied] has to follow.
func (b *batch) add(line []byte, isAnswer bool) {
	if len(b.buf)+len(line) > maxJoined {
		b.flush()
	}
	if isAnswer {
		b.answers++
	}
	if line = ended(line); len(line) > maxJoined {
		b.write(line)
		return
	}
	b.buf = append(b.buf, line...)
}

// flush writes the lines.
func (b *batch) flush() {
	if b.lines == 0 {
		return
	}
	b.write(b.buf)
	b.buf = b.buf[:0]
	if b.p.out.broken() == nil {
		b.acks.countLines(b.lines, b.bytes)
	}
	b.p.memory.Passed(b.bytes)
	b.lines, b.bytes = 0, 0
}

// write writes whole lines, with all the answers that were added.
func (b *batch) write(lines []byte) {
	if len(lines) == 0 {
		return
	}
	b.p.out.line(lines, b.acks.repeat)
	b.written()
}

// written is called when the client has all the answers that were added.
func (b *batch) written() {
	if b.answers > 0 {
		faultpoint.At("proxy.copied")
		b.p.store.copied(b.answers)
		b.answers = 0
		poke(b.p.space) // the store may have been full of requests
		b.p.settledMaybe()
	}
}

// receive adds one line to what the client gets, if the client expects it. n is the number of the
// client's line that it belongs to; 0 if that is not said.
func (p *proxy) receive(ctx context.Context, n int64, line []byte, b *batch) {
	defer func() { b.lines, b.bytes = b.lines+1, b.bytes+len(line) }()
	h, err := scan(line)
	if err != nil {
		p.log.WarnContext(ctx, "line from the daemon dropped", "err", err)
		return
	}
	switch {
	case h.response:
		faultpoint.At("proxy.received")
		if !p.store.answer(n, h.id, h.failed) {
			p.log.DebugContext(ctx, "answer dropped that the client does not wait for", "line", n)
			return
		}
		faultpoint.At("proxy.answered")
		b.add(line, true)
		return
	case n > 0 && !p.store.waitsFor(n, nil):
		p.log.DebugContext(ctx, "progress dropped of a request that the client has cancelled", "line", n)
		return
	case h.id != nil && !p.store.relay(h.id):
		p.log.DebugContext(ctx, "request dropped that the client has")
		return
	}
	b.add(line, false)
}

// receiveLong copies the answer to line n whose greater part lies in a file to the client, if the client
// waits for it. The file is opened first: whatever dies from then on, the client gets the
// whole line. If it cannot be opened, receiveLong returns false: the answer was not received,
// and the next connection is asked for the bytes.
func (p *proxy) receiveLong(ctx context.Context, l *link, n int64, m *protocol.Long, b *batch) bool {
	b.flush()
	defer b.flush()
	h, err := scan([]byte(m.Head + "null" + m.Tail))
	if err != nil || !h.response {
		p.log.WarnContext(ctx, "long line from the daemon dropped", "err", err)
		b.lines++
		return true
	}
	f, err := bulk.Open(l.dir, m.Span)
	if err == nil {
		defer f.Close()
	} else if p.store.waitsFor(n, h.id) { // else the client has cancelled the request, and the file is gone
		p.log.WarnContext(ctx, "an answer is asked for again, without a file", "err", err)
		p.noFiles = true
		return false
	}
	faultpoint.At("proxy.opened")
	b.lines, b.bytes = 1, int(m.Span.Size)
	if err != nil || !p.store.answer(n, h.id, h.failed) {
		p.log.DebugContext(ctx, "answer dropped that the client does not wait for", "line", n)
		return true
	}
	b.answers++
	p.out.long(m, f, b.acks.repeat)
	b.written()
	return true
}

// ended returns line with its newline, without a copy if the buffer has that behind it.
func ended(line []byte) []byte {
	if n := len(line); n < cap(line) && line[:n+1][n] == '\n' {
		return line[:n+1]
	}
	return append(slices.Clip(line), '\n')
}

// head is what the proxy has to know of a daemon's line.
type head struct {
	id       jsonrpc.ID // nil in a notification
	response bool       // else a request or a notification
	failed   bool       // the response is an error
}

var (
	errEnough = errors.New("enough read")
	errNoKind = errors.New("neither a request nor an answer")
)

// scan reads the head of a line, no further than it must.
func scan(line []byte) (head, error) {
	var h head
	var known bool
	err := jsonrpc.Fields(line, func(key string, value []byte) error {
		switch key {
		case "id":
			h.id = value
		case "method":
			known = true
		case "result":
			known, h.response = true, true
		case "error":
			known, h.response, h.failed = true, true, true
		}
		if known && h.id != nil {
			return errEnough
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errEnough):
		return h, err
	case !known, h.response && h.id == nil:
		return h, errNoKind
	}
	return h, nil
}

// acks counts the lines of one connection that the proxy has received completely, and decides
// when it acknowledges them to the daemon.
type acks struct {
	wake chan struct{} // wakes the writer

	mu    sync.Mutex // guards all below
	lines int64      // received
	acked int64      // acknowledged
	bytes int        // received since the last ack
	since time.Time  // when the first line after the last ack was received
	at    time.Time  // of the last ack
	isDue bool       // an ack must be written now
}

// countLines counts lines of n bytes in all, and wakes the writer if an ack is due or its delay
// begins.
func (a *acks) countLines(lines, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.lines == a.acked
	a.lines += int64(lines)
	a.bytes += n
	a.isDue = a.isDue || a.lines-a.acked >= ackLines || a.bytes >= ackBytes
	if first {
		a.since = time.Now()
	} else if !a.isDue {
		return
	}
	poke(a.wake)
}

// repeat makes an ack due, even without new lines, if the last one is ackRepeat old.
func (a *acks) repeat() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) >= ackRepeat {
		a.isDue = true
		poke(a.wake)
	}
}

// due returns the number of lines to acknowledge, and now if the caller must write the ack. If
// an ack will be due later, it returns how long to wait for that.
func (a *acks) due() (k int64, now bool, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lines > a.acked {
		wait = time.Until(a.since.Add(ackDelay))
	}
	if !a.isDue && (a.lines == a.acked || wait > 0) {
		return 0, false, wait
	}
	a.isDue, a.bytes, a.acked, a.at = false, 0, a.lines, time.Now()
	return a.lines, true, 0
}
