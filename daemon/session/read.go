package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"holdline/daemon/session/crew"
	"holdline/daemon/session/link"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/socket"
)

// serveLink serves l until it ends, and returns the reason: nil if the client closed its side and
// its requests have ended. After [link.ErrLost] and [link.ErrSuperseded] the client may resume the
// session. The writer of l still runs when it returns: the caller must call Drop or Finish.
func (s *session) serveLink(ctx context.Context, l *link.Link, calls *crew.Crew) error {
	l.Out.Bound(s.waits)
	l.Write(func() { s.detach(l) }) // detach ends all waits for room in the outbox
	stop := context.AfterFunc(ctx, l.Wake)
	defer stop()
	if over := s.attachLink(ctx, l); over {
		return fmt.Errorf("%w: its answers were too many to keep", link.ErrGone)
	}
	err := s.readLines(ctx, l, calls)
	faultpoint.At("session.ended")
	if err == nil {
		// The client closed its side only: it may still wait for answers.
		err = s.drain(ctx, l)
	}
	return err
}

// drain returns nil once all goroutines of requests have ended, [link.ErrLost] once the client has
// hung up, [link.Link.Why] if the connection was ended, or [tool.ErrStopping] if ctx is done. It
// polls the connection every hangupPoll: after EOF no read would report a hang-up.
func (s *session) drain(ctx context.Context, l *link.Link) error {
	tick := time.NewTicker(hangupPoll)
	defer tick.Stop()
	for {
		if s.running.Load() == 0 && !socket.HungUp(l.Conn) {
			return nil
		}
		if err := l.Why(); err != nil {
			return err
		}
		if socket.HungUp(l.Conn) {
			return link.ErrLost
		}
		select {
		case <-ctx.Done():
			return tool.ErrStopping
		case <-s.quiet:
		case <-tick.C:
		}
	}
}

// readLines handles the client's lines, l.First before all others. It returns nil after the client
// has closed its side, errBye after a bye, [tool.ErrStopping] if ctx is done, else why l ended. It
// calls refuse for a line that is too long. A control line precedes a replayed one.
func (s *session) readLines(ctx context.Context, l *link.Link, calls *crew.Crew) error {
	if l.First != nil {
		s.handleLine(ctx, bulk.Line{Text: l.First}, calls)
		l.First = nil
	}
	var replay *protocol.Control // describes the next line, which the proxy sends again; nil if it is a new one
	for {
		if replay == nil && s.replays <= 0 {
			s.endReplay()
		}
		text, err := l.Next()
		switch {
		case err == nil:
		case errors.Is(err, jsonrpc.ErrNoRoom):
			head, tail := l.Lines.Ends()
			s.crowded(ctx, head, tail, replay, calls)
			replay = nil
			continue
		case errors.Is(err, jsonrpc.ErrTooLong):
			f := fault.New(fault.ParseError, fault.Protocol, "jsonrpc.parse",
				"the message has more than %d MiB, the most that one may have", jsonrpc.MaxFrame>>20)
			var seen jsonrpc.Message
			seen.ID, seen.Kind = jsonrpc.Glimpse(l.Lines.Ends())
			s.refuse(ctx, 0, seen, f)
			replay = nil
			continue
		case l.Why() != nil:
			return l.Why()
		case ctx.Err() != nil:
			return tool.ErrStopping
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded): // the reason is set in a moment
			continue
		default:
			return fmt.Errorf("%w: %w", link.ErrLost, err)
		}
		switch {
		case protocol.IsControl(text):
			control, err := protocol.ParseControl(text)
			if control.Replay != nil {
				s.replays--
			}
			switch {
			case err != nil:
			case control.Bye != "":
				return errBye
			case control.Ack != nil:
				l.Out.Acknowledge(*control.Ack)
			case control.Replay != nil && control.Bytes != nil && !*control.Bytes:
				s.tooLarge(ctx, &control, calls)
			case control.Replay != nil:
				replay = &control
			case control.Long != nil && !s.anonymous && s.guest == "": // a guest names no files here
				s.handleLong(ctx, &control, replay, calls)
				replay = nil
			}
		default:
			s.handleText(ctx, l, l.Lines.Own(text), replay, calls)
			replay = nil
		}
	}
}

// endReplay notes that the proxy sends no more lines again: it can be told from now on what the client
// was told of the changes of resources. It takes s.mu.
func (s *session) endReplay() {
	s.mu.Lock()
	ends := s.replaying && len(s.follows)+len(s.listens) > 0
	s.replaying = false
	s.mu.Unlock()
	if ends {
		s.srv.o.Hosted.Retell(s.hash)
	}
}

// handleText handles a line of the client, whose memory it keeps; again is the control line before a
// replayed one, else nil. Only the reader calls it.
func (s *session) handleText(ctx context.Context, l *link.Link, text []byte, again *protocol.Control, calls *crew.Crew) {
	if s.guest != "" {
		var ok bool
		if s.release, ok = l.Hold(cap(text)); !ok {
			s.crowded(ctx, text, nil, again, calls)
			return
		}
		defer s.giveRoom()
	}
	if again != nil {
		s.replayed(ctx, again, bulk.Line{Text: text}, calls)
	} else {
		s.handleLine(ctx, bulk.Line{Text: text}, calls)
	}
}

// giveRoom gives back the room of a guest's line that is handled, unless the goroutine that works on its
// request has taken s.release over. Only the reader calls it.
func (s *session) giveRoom() {
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// crowded handles a line of a guest for whose bytes there is no room, by its beginning, and its end if it
// is not known whole; again is the control line before a replayed one, else nil. A request is answered
// with a fault: it may be sent again. A replayed one is handled by tooLarge. Only the reader calls it.
func (s *session) crowded(ctx context.Context, head, tail []byte, again *protocol.Control, calls *crew.Crew) {
	id, kind := jsonrpc.Glimpse(head, tail)
	switch {
	case again != nil:
		again.ID = bytes.Clone(json.RawMessage(id)) // not all of the line
		s.tooLarge(ctx, again, calls)
		return
	case kind == jsonrpc.Response: // no server asks a guest
		s.n++
		s.Seen(s.n)
		return
	}
	s.n++
	s.refuse(ctx, s.n, jsonrpc.Message{ID: id, Kind: kind}, fault.New(fault.ResourceExhausted, fault.Host, "jsonrpc.read",
		"the guests of this machine have sent as many long messages as the daemon holds at once: "+
			"wait until one of them is answered, or send less"))
}

// handleLong reads a line of the client from the file that c names, and handles it; again is the
// control line before a replayed one, else nil. A failure is logged; then tooLarge handles the
// line, with a changed c, but not a request that has its answer. Only the reader calls it.
func (s *session) handleLong(ctx context.Context, c, again *protocol.Control, calls *crew.Crew) {
	s.spills = true
	switch l, err := bulk.ReadLine(s.srv.o.RuntimeDir, c.Long.Span); {
	case err == nil && again != nil:
		s.replayed(ctx, again, l, calls)
	case err == nil:
		s.handleLine(ctx, l, calls)
	default:
		s.log.WarnContext(ctx, "a long line of the client cannot be read", "err", err)
		switch {
		case again == nil:
			s.n++
			c.Replay = &s.n
		case isTrue(again.Answered) && !isTrue(c.Answered): // a request that the client has the answer to
			return
		default:
			c.Replay, c.AgeMS = again.Replay, again.AgeMS
		}
		s.tooLarge(ctx, c, calls)
	}
}
