package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
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

// readClient reads the client's lines into the store until their end. It pauses while the
// store is full.
func (p *proxy) readClient(ctx context.Context) {
	defer poke(p.idle)
	defer p.store.endInput()
	lines := jsonrpc.NewLines(p.o.In, jsonrpc.MaxFrame)
	for {
		for p.store.full(p.link.Load() != nil) {
			select {
			case <-p.space:
			case <-ctx.Done():
				return
			}
		}
		line, err := lines.Next()
		switch {
		case err == nil && protocol.IsControl(line): // the daemon would take it for the proxy's and not count it
			m, err := jsonrpc.Parse(line)
			p.refuse(m.ID, fault.New(fault.InvalidRequest, fault.Protocol, "jsonrpc.message", "%v", err))
		case err == nil:
			p.store.addLine(ended(lines.Own(line)))
			faultpoint.At("proxy.read")
			if !p.forwardNow() {
				poke(p.work)
			}
		case errors.Is(err, jsonrpc.ErrTooLong):
			p.refuse(nil, fault.New(fault.ParseError, fault.Protocol, "jsonrpc.parse",
				"the line has more than %d bytes, the most that one message may have", jsonrpc.MaxFrame))
		default:
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				p.log.WarnContext(ctx, "reading from the client ended", "err", err)
			}
			return
		}
	}
}

// refuse answers a line that the proxy does not pass to the daemon.
func (p *proxy) refuse(id jsonrpc.ID, f *fault.Record) {
	p.out.line(append(mcp.AppendFault(nil, id, "", "", f), '\n'), func() {})
}

// talk carries lines over one connection until that or the client's side ends. It closes the
// connection, and returns after its two goroutines have ended.
func (p *proxy) talk(ctx context.Context, l *link) ending {
	defer l.conn.Close()
	p.setLink(l)
	a := &acks{wake: p.work, at: time.Now()}
	read := make(chan ending, 1)
	leave := make(chan struct{}) // closed: the writer says bye, if it can, and ends
	wrote := make(chan struct{}) // closed: the writer has ended
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { read <- p.readDaemon(ctx, l, a) })
	wg.Go(func() {
		defer close(wrote)
		p.writeDaemon(l, a, leave)
	})

	end, over := endDone, false // over: the reader has ended
	var drained <-chan time.Time
	look := time.NewTimer(l.watch.each)
	defer look.Stop()
	poke(p.idle) // the client may be done already
wait:
	for {
		select {
		case <-ctx.Done():
			break wait
		case <-p.out.failed:
			end = endBroken
			break wait
		case <-drained:
			break wait
		case <-l.watch.woke:
			look.Reset(l.watch.each)
		case <-look.C:
			if l.watch.checkConnection(p, l.conn) {
				look.Reset(l.watch.each)
			}
		case <-p.idle:
			if _, done := p.store.state(); done {
				break wait
			}
			if by, limited := p.drainTime(); limited {
				drained = time.After(time.Until(by))
			}
		case end = <-read:
			if over = p.out.broken() != nil; over {
				end = endBroken
				break wait
			}
			// The reader has ended first: the writer must not wait for room any more.
			_ = l.conn.SetWriteDeadline(time.Unix(1, 0))
			close(leave)
			if _, done := p.store.state(); done || ctx.Err() != nil {
				return endDone
			}
			return end
		}
	}
	// The bye ends the session. Without one the daemon would keep it until it notices that this
	// process has ended.
	_ = l.conn.SetWriteDeadline(time.Now().Add(leaveGrace))
	faultpoint.At("proxy.leaving")
	close(leave)
	<-wrote
	faultpoint.At("proxy.bye")
	l.conn.Close()
	if over {
		return end
	}
	// The reader may be copying a line to a client that does not read.
	t := time.NewTimer(leaveGrace)
	defer t.Stop()
	select {
	case <-read:
	case <-t.C:
		_ = p.o.Out.Close()
		<-read
	}
	return end
}

// forwardNow writes what the store has to send, as far as the daemon takes it at once,
// so that a line needs no second goroutine on its way if nothing else is being written.
// It reports whether all was written; if not, writeDaemon has to do the rest. It never
// blocks.
func (p *proxy) forwardNow() bool {
	l := p.link.Load()
	if l == nil {
		return false
	}
	select {
	case <-l.turn:
		defer l.giveTurn()
	default:
		return false
	}
	for l.begun == nil && p.takeLine(l) {
		n := l.out.TryWrite(l.rest)
		if l.rest = l.rest[n:]; len(l.rest) == 0 {
			p.lineForwarded(l)
		}
	}
	return l.begun == nil
}

// giveTurn lets another goroutine write. The caller has the turn.
func (l *link) giveTurn() { l.turn <- struct{}{} }

// takeLine makes the next line of the store the one that is begun, and reports whether
// there was one. The caller has the turn.
func (p *proxy) takeLine(l *link) bool {
	e := p.store.takeNext()
	if e == nil {
		return false
	}
	faultpoint.At("proxy.took")
	if e.call {
		l.watch.begin(p)
	}
	l.begun, l.rest = e, e.line
	return true
}

// lineForwarded records that the line that was begun was written, or that the connection
// broke in the middle of it. From then on the line counts as sent: the daemon may have it, and
// a resume repeats it by its number. The caller has the turn.
func (p *proxy) lineForwarded(l *link) {
	faultpoint.At("proxy.forwarded")
	p.store.flushed(l.begun)
	l.begun, l.rest = nil, nil
}

// writeDaemon writes the lines that a resume repeats, then the client's lines and acks. It
// has the turn except while it waits, and keeps it when it ends. After an error it leaves
// the connection open: the reader must still read what the daemon wrote before it died.
func (p *proxy) writeDaemon(l *link, a *acks, leave <-chan struct{}) {
	broken := func(err error) bool {
		if err != nil {
			// The rest of what the daemon wrote comes soon or never.
			_ = l.conn.SetReadDeadline(time.Now().Add(protocol.GreetingTimeout))
		}
		return err != nil
	}
	// The replays go first: a later line may need their effect, such as that of initialize.
	for _, r := range l.replays {
		if broken(writeReplay(l.out, r, p.o.sinceBoot())) {
			return
		}
		faultpoint.At("proxy.replayed")
	}
	l.replays = nil
	for {
		select {
		case <-leave:
			bye := protocol.Control{Holdline: protocol.Version, Bye: protocol.ByeClient}
			if _, err := l.out.Write(protocol.Append(nil, bye)); err == nil {
				if half, ok := l.conn.(interface{ CloseWrite() error }); ok {
					_ = half.CloseWrite()
				}
			}
			return
		default:
		}
		k, due, wait := a.due()
		if due {
			if broken(writeAck(l.out, k)) {
				return
			}
			faultpoint.At("proxy.acked")
			continue
		}
		if p.takeLine(l) {
			if broken(p.finishLine(l)) {
				return
			}
			continue
		}
		p.settledMaybe()
		l.giveTurn()
		var late <-chan time.Time
		if wait > 0 {
			late = time.After(wait)
		}
		select {
		case <-p.work:
		case <-late:
		case <-leave:
		}
		<-l.turn
		if l.begun != nil && broken(p.finishLine(l)) {
			return
		}
	}
}

// finishLine writes the rest of the line that was begun. The caller has the turn.
func (p *proxy) finishLine(l *link) error {
	_, err := l.out.Write(l.rest)
	p.lineForwarded(l)
	poke(p.space)
	return err
}

// settledMaybe wakes the loop if the client has closed its side: the line that was just
// written or copied may be the last one that it waits for.
func (p *proxy) settledMaybe() {
	if eof, _ := p.store.state(); eof {
		poke(p.idle)
	}
}

// writeAck writes an acknowledgement of the first k lines of the connection.
func writeAck(w io.Writer, k int64) error {
	var buf [48]byte
	b := append(buf[:0], `{"holdline":1,"ack":`...)
	b = strconv.AppendInt(b, k, 10)
	_, err := w.Write(append(b, "}\n"...))
	return err
}

// writeReplay writes a remembered line to a daemon. now is the reading of the
// boot clock.
func writeReplay(w io.Writer, r replay, now time.Duration) error {
	c := protocol.Control{Holdline: protocol.Version, Replay: &r.n, Answered: &r.answered}
	if r.came > 0 {
		c.AgeMS = (now - r.came).Milliseconds()
	}
	if r.line == nil {
		c.Bytes, c.ID, c.Call = new(bool), json.RawMessage(r.id), r.call
	}
	if _, err := w.Write(protocol.Append(nil, c)); err != nil || r.line == nil {
		return err
	}
	_, err := w.Write(r.line)
	return err
}

// readDaemon copies the daemon's lines to the client until the last byte of the connection,
// or a bye.
func (p *proxy) readDaemon(ctx context.Context, l *link, a *acks) ending {
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
		if protocol.IsControl(line) {
			c, err := protocol.ParseControl(line)
			switch {
			case err != nil:
				p.log.WarnContext(ctx, "control line not understood", "err", err)
			case c.Seen != nil:
				p.store.seen(*c.Seen)
			case c.Bye != "":
				l.bye = c
				return endStopped
			case c.Message != "":
				p.log.WarnContext(ctx, "word from the daemon", "says", c.Message)
			}
			continue
		}
		p.receive(ctx, line, a)
		if p.out.broken() != nil {
			return endBroken
		}
		a.countLine(len(line))
	}
}

// receive copies one line to the client, if the client expects it.
func (p *proxy) receive(ctx context.Context, line []byte, a *acks) {
	h, err := scan(line)
	if err != nil {
		p.log.WarnContext(ctx, "line from the daemon dropped", "err", err)
		return
	}
	switch {
	case h.response:
		if !p.store.answer(h.id, h.failed) {
			p.log.DebugContext(ctx, "answer dropped that the client does not wait for")
			return
		}
		faultpoint.At("proxy.answered")
		p.out.line(ended(line), a.repeat)
		faultpoint.At("proxy.copied")
		p.store.copied()
		p.settledMaybe()
		return
	case h.id != nil && !p.store.relay(h.id):
		p.log.DebugContext(ctx, "request dropped that the client has")
		return
	}
	p.out.line(ended(line), a.repeat)
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

// countLine counts a line of n bytes, and wakes the writer if an ack is due or its delay begins.
func (a *acks) countLine(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines++
	a.bytes += n
	a.isDue = a.isDue || a.lines-a.acked >= ackLines || a.bytes >= ackBytes
	if a.lines-a.acked == 1 {
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
