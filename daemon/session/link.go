package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"holdline/daemon/listener"
	"holdline/daemon/session/crew"
	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/rawio"
	"holdline/protocol/socket"
)

// link is one connection of a session: a reader, which is the goroutine that
// serves the session, and a writer of its own.
type link struct {
	conn      *net.UnixConn
	lines     *jsonrpc.Lines
	first     []byte // a line already read; nil if none
	greeting  protocol.Greeting
	anonymous bool
	peer      peer.Peer
	out       *outbox.Outbox
	writer    sync.WaitGroup
	done      chan struct{} // closed when the session is through with it

	mu    sync.Mutex
	cause error // why the reader's wait was ended: nil if it was not; guarded by mu
}

func newLink(c *listener.Conn, confirm func(n int64)) *link {
	return &link{
		conn: c.UnixConn, lines: c.Lines, first: c.First, greeting: c.Greeting, anonymous: c.Anonymous,
		peer: peer.Of(c.Peer.PID), out: outbox.New(rawio.NewConn(c.UnixConn), !c.Anonymous, confirm), done: make(chan struct{}),
	}
}

// wake ends the reader's wait.
func (l *link) wake() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) }

// supersede makes room for another connection of the session.
func (l *link) supersede() {
	l.mu.Lock()
	l.cause = errSuperseded // whatever else: the client has connected again
	l.mu.Unlock()
	l.wake()
	_ = l.conn.SetWriteDeadline(time.Unix(1, 0))
}

// why returns the reason for which the reader's wait was ended; nil if it was not.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cause == nil, errors.Is(l.cause, errSuperseded):
		return l.cause
	case errors.Is(l.cause, outbox.ErrSlow), errors.Is(l.cause, outbox.ErrHoarder), errors.Is(l.cause, errTooMuch):
		return fmt.Errorf("%w: %w", errGone, l.cause)
	}
	return fmt.Errorf("%w: %w", errLost, l.cause)
}

// fail ends the reader's wait for a reason of the daemon's.
func (l *link) fail(why error) {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = why
	}
	l.mu.Unlock()
	l.wake()
}

// drop ends the connection at once.
func (l *link) drop() {
	l.out.Abort()
	_ = l.conn.Close()
	l.writer.Wait()
	close(l.done)
}

// finish ends the connection once everything queued is sent.
func (l *link) finish() {
	select {
	case <-l.done: // it was dropped
		return
	default:
	}
	l.out.Close()
	l.wake()
	late := time.AfterFunc(lastWrites, func() { _ = l.conn.Close() })
	l.writer.Wait()
	late.Stop()
	close(l.done)
}

// attached serves one connection until it ends, and says how: errLost and
// errSuperseded leave the session to the next one. The writer goes on.
func (s *session) attached(ctx context.Context, l *link, calls *crew.Crew) error {
	l.writer.Go(func() {
		if err := l.out.Run(); err != nil {
			s.detach(l) // nobody waits for room any more
			l.fail(err)
		}
	})
	// A done context, the daemon's, wakes the reader.
	stop := context.AfterFunc(ctx, l.wake)
	defer stop()
	if over := s.take(ctx, l); over {
		return fmt.Errorf("%w: its answers were too many to keep", errGone)
	}
	err := s.read(ctx, l, calls)
	faultpoint.At("session.ended")
	if err == nil {
		// The client closed its side only: it may still wait for answers.
		err = s.drain(ctx, l)
	}
	return err
}

// drain waits until the calls in flight are answered (nil), or the client has
// hung up. One that had a greeting may come back.
func (s *session) drain(ctx context.Context, l *link) error {
	tick := time.NewTicker(hangupPoll)
	defer tick.Stop()
	for {
		if s.running.Load() == 0 && !socket.HungUp(l.conn) {
			return nil
		}
		if err := l.why(); err != nil {
			return err
		}
		if socket.HungUp(l.conn) {
			return errLost
		}
		select {
		case <-ctx.Done():
			return tool.ErrStopping
		case <-s.quiet:
		case <-tick.C:
		}
	}
}

// read takes lines until the client closes its side (nil), says bye or is
// lost, or ctx is done.
func (s *session) read(ctx context.Context, l *link, calls *crew.Crew) error {
	if l.first != nil {
		s.line(ctx, l.first, calls)
		l.first = nil
	}
	var replay *protocol.Control // the next line is one that was sent before
	for {
		line, err := l.lines.Next()
		switch {
		case err == nil:
		case errors.Is(err, jsonrpc.ErrTooLong):
			f := fault.New(fault.ParseError, fault.Protocol, "jsonrpc.parse", "%v", err)
			s.refuse(ctx, 0, nil, f)
			continue
		case l.why() != nil:
			return l.why()
		case ctx.Err() != nil:
			return tool.ErrStopping
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded): // whoever woke us says why in a moment
			continue
		default:
			return fmt.Errorf("%w: %w", errLost, err)
		}
		switch {
		case protocol.IsControl(line):
			control, err := protocol.ParseControl(line)
			switch {
			case err != nil:
			case control.Bye != "":
				return errBye
			case control.Ack != nil:
				l.out.Acknowledge(*control.Ack)
			case control.Replay != nil && control.Bytes != nil && !*control.Bytes:
				s.tooLarge(ctx, &control, calls)
			case control.Replay != nil:
				replay = &control
			}
		case replay != nil:
			s.replayed(ctx, replay, bytes.Clone(line), calls)
			replay = nil
		default:
			s.line(ctx, bytes.Clone(line), calls)
		}
	}
}
