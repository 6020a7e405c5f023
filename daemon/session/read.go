package session

import (
	"context"
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
		text, err := l.Lines.Next()
		switch {
		case err == nil:
		case errors.Is(err, jsonrpc.ErrTooLong):
			f := fault.New(fault.ParseError, fault.Protocol, "jsonrpc.parse",
				"the message has more than %d MiB, the most that one may have", jsonrpc.MaxFrame>>20)
			var seen jsonrpc.Message
			seen.ID, seen.Kind = jsonrpc.Glimpse(l.Lines.Ends())
			s.refuse(ctx, 0, seen, f)
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
		case replay != nil:
			s.replayed(ctx, replay, bulk.Line{Text: l.Lines.Own(text)}, calls)
			replay = nil
		default:
			s.handleLine(ctx, bulk.Line{Text: l.Lines.Own(text)}, calls)
		}
	}
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
