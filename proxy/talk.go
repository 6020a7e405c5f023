package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// readClient reads the client's lines into the store until their end. It pauses while the
// store is full.
func (p *proxy) readClient(ctx context.Context) {
	defer poke(p.idle)
	defer p.store.endInput()
	lines := jsonrpc.NewLines(p.o.In, jsonrpc.MaxFrame)
	lines.BeforeRead, lines.Spill = p.forward, p.spillFile
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
			p.refuse(ctx, m.ID, m.Kind, fault.New(fault.InvalidRequest, fault.Protocol, "jsonrpc.message", "%v", err))
		case err == nil:
			if len(line) < maxSpareLine {
				p.store.addCopy(line)
			} else {
				p.store.addLine(ended(lines.Own(line)))
			}
			p.memory.Passed(len(line))
			faultpoint.At("proxy.read")
			if len(line) > maxJoined {
				p.forward()
			}
		case errors.Is(err, jsonrpc.ErrSpilled):
			f, size := lines.TakeSpilled()
			p.addSpilled(ctx, f, size)
			faultpoint.At("proxy.spilled")
			p.forward()
		case errors.Is(err, jsonrpc.ErrTooLong):
			id, kind := jsonrpc.Glimpse(lines.Ends())
			p.refuse(ctx, id, kind, fault.New(fault.ParseError, fault.Protocol, "jsonrpc.parse",
				"the message has more than %d MiB, the most that one may have", jsonrpc.MaxFrame>>20))
		default:
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				p.log.WarnContext(ctx, "reading from the client ended", "err", err)
			}
			p.forward()
			return
		}
	}
}

// refuse does what is right for a line that the proxy does not pass to the daemon, by what can be seen
// of it: its request is answered, and a server gets an error in place of its answer. A line with no id
// is only logged: an answer without one would end some clients.
func (p *proxy) refuse(ctx context.Context, id jsonrpc.ID, kind jsonrpc.Kind, f *fault.Record) {
	switch {
	case id == nil:
		p.log.WarnContext(ctx, "a line of the client is dropped", "err", f)
	case kind == jsonrpc.Response:
		p.store.addLine(append(jsonrpc.AppendError(nil, id, jsonrpc.CodeInternal,
			"the client's answer is left out: "+f.Fault.Detail, nil), '\n'))
	default:
		p.out.line(append(mcp.AppendFault(nil, id, "", "", f), '\n'), func() {})
	}
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
	for len(l.begun) == 0 && p.takeLines(l) {
		n := l.out.TryWrite(l.rest)
		if l.rest = l.rest[n:]; len(l.rest) == 0 {
			p.linesForwarded(l)
		}
	}
	return len(l.begun) == 0
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
		e.line = l.lineOf(e.line, e.spill)
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
// the next connection. The reader of the client may wait for the room. The caller has the turn.
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
	clear(l.begun)
	l.begun, l.rest = l.begun[:0], nil
	poke(p.space)
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
		if r.line != nil {
			r.line = l.lineOf(r.line, r.spill)
		}
		if broken(writeReplay(l.out, r, p.o.sinceBoot())) {
			return
		}
		faultpoint.At("proxy.replayed")
	}
	l.replays = nil
	late := time.NewTimer(math.MaxInt64)
	defer late.Stop()
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
		p.store.removeFiles(false)
		l.giveTurn()
		if wait > 0 {
			late.Reset(wait)
		}
		select {
		case <-p.work:
		case <-late.C: // also if it was set for an earlier wait: that does no harm
		case <-leave:
		}
		<-l.turn
		if len(l.begun) > 0 && broken(p.finishLines(l)) {
			return
		}
	}
}

// finishLines writes the rest of the lines that were begun. The caller has the turn.
func (p *proxy) finishLines(l *link) error {
	n, err := l.out.Write(l.rest)
	l.rest = l.rest[n:]
	p.linesForwarded(l)
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
