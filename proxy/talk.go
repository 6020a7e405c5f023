package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
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
	lines.BeforeRead = p.forward
	for {
		for p.store.full(p.link.Load() != nil) {
			p.forward()
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
			if len(line) > maxJoined {
				p.forward()
			}
		case errors.Is(err, jsonrpc.ErrTooLong):
			p.refuse(nil, fault.New(fault.ParseError, fault.Protocol, "jsonrpc.parse",
				"the line has more than %d bytes, the most that one message may have", jsonrpc.MaxFrame))
		default:
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				p.log.WarnContext(ctx, "reading from the client ended", "err", err)
			}
			p.forward()
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

// maxJoined bounds the lines that go to the daemon, or to the client, in one write, in bytes.
const maxJoined = 16 << 10

// forward writes what the store has to send, as far as the daemon takes it at once, so that
// a line needs no second goroutine on its way if nothing else is being written. It leaves
// the rest to writeDaemon. It never blocks.
func (p *proxy) forward() {
	if !p.store.hasUnsent() {
		return
	}
	if l := p.link.Load(); l != nil {
		select {
		case <-l.turn:
			done := p.forwardNow(l)
			l.giveTurn()
			if done {
				return
			}
		default:
		}
	}
	poke(p.work)
}

// forwardNow is [proxy.forward] of the goroutine that has the turn. It reports whether all
// was written.
func (p *proxy) forwardNow(l *link) bool {
	for l.begun == nil && p.takeLines(l) {
		n := l.out.TryWrite(l.rest)
		if l.rest = l.rest[n:]; len(l.rest) == 0 {
			p.linesForwarded(l)
		}
	}
	return l.begun == nil
}

// giveTurn lets another goroutine write. The caller has the turn.
func (l *link) giveTurn() { l.turn <- struct{}{} }

// takeLines makes the next lines of the store the ones that are begun, and reports whether
// there was one. The caller has the turn.
func (p *proxy) takeLines(l *link) bool {
	for room := math.MaxInt; ; {
		e := p.store.takeNext(room)
		if e == nil {
			break
		}
		faultpoint.At("proxy.took")
		if e.call {
			l.watch.begin(p)
		}
		room = min(room, maxJoined) - len(e.line)
		l.begun = append(l.begun, e)
	}
	switch len(l.begun) {
	case 0:
		return false
	case 1:
		l.rest = l.begun[0].line
	default:
		l.joined = l.joined[:0]
		for _, e := range l.begun {
			l.joined = append(l.joined, e.line...)
		}
		l.rest = l.joined
	}
	return true
}

// linesForwarded records that the lines that were begun were written, or that the connection
// broke before the end of l.rest. A line of which anything was written counts as sent from
// then on: the daemon may have it, and a resume repeats it by its number. The others go to
// the next connection. The caller has the turn.
func (p *proxy) linesForwarded(l *link) {
	faultpoint.At("proxy.forwarded")
	sent, left := len(l.begun), len(l.rest)
	for ; sent > 0 && left >= len(l.begun[sent-1].line); sent-- {
		left -= len(l.begun[sent-1].line)
		p.store.takeBack(l.begun[sent-1])
	}
	for _, e := range l.begun[:sent] {
		p.store.flushed(e)
	}
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
		if p.takeLines(l) {
			if broken(p.finishLines(l)) {
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
		if l.begun != nil && broken(p.finishLines(l)) {
			return
		}
	}
}

// finishLines writes the rest of the lines that were begun. The caller has the turn.
func (p *proxy) finishLines(l *link) error {
	n, err := l.out.Write(l.rest)
	l.rest = l.rest[n:]
	p.linesForwarded(l)
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
		p.receive(ctx, line, b)
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
	b.lines, b.bytes = 0, 0
}

// write writes whole lines, with all the answers that were added.
func (b *batch) write(lines []byte) {
	if len(lines) == 0 {
		return
	}
	b.p.out.line(lines, b.acks.repeat)
	if b.answers > 0 {
		faultpoint.At("proxy.copied")
		b.p.store.copied(b.answers)
		b.answers = 0
		b.p.settledMaybe()
	}
}

// receive adds one line to what the client gets, if the client expects it.
func (p *proxy) receive(ctx context.Context, line []byte, b *batch) {
	defer func() { b.lines, b.bytes = b.lines+1, b.bytes+len(line) }()
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
		b.add(line, true)
		return
	case h.id != nil && !p.store.relay(h.id):
		p.log.DebugContext(ctx, "request dropped that the client has")
		return
	}
	b.add(line, false)
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
