// Package link is one connection of a session: what is read from it, the outbox that
// is written to it, and why it ends.
package link

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"holdline/daemon/session/outbox"
	"holdline/daemon/session/peer"
	"holdline/protocol"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/rawio"
)

// Ways in which a connection ends.
var (
	ErrGone       = errors.New("client disconnected")
	ErrLost       = errors.New("the connection broke")
	ErrSuperseded = errors.New("the client has connected again")
	ErrTooMuch    = errors.New("more answers waited for this client than are kept")
	ErrExpelled   = errors.New("the user of the daemon has disconnected this client")
)

// lastWrites bounds the sending of what is still queued when a session ends.
const lastWrites = 2 * time.Second

// A Link is one connection of a session. The goroutine that serves the session reads
// it; another one, of [Link.Write], writes what is queued in Out.
type Link struct {
	Conn      *net.UnixConn
	Lines     *jsonrpc.Lines    // reads Conn; only the session's reader uses it
	First     []byte            // a line already read; nil if none
	Greeting  protocol.Greeting // empty if Anonymous
	Anonymous bool              // the client sent no greeting
	Guest     string            // socket of the configuration at which it connected; "" for the daemon's own
	Peer      peer.Peer         // the process that connected
	Out       *outbox.Outbox
	Done      chan struct{} // closed when the session has ended the connection

	writer sync.WaitGroup // the goroutine of Write

	mu    lockcheck.Mutex
	cause error // why the reader's wait was ended; nil if it was not; guarded by mu
}

// New makes the link of conn, the connection of p, that lines reads and that has sent
// greeting; a link without one is anonymous. Confirm is called when the client holds the
// answer to its line n.
func New(
	conn *net.UnixConn, lines *jsonrpc.Lines, greeting *protocol.Greeting, p peer.Peer, confirm func(n int64),
) *Link {
	l := &Link{Conn: conn, Lines: lines, Anonymous: greeting == nil, Peer: p, Done: make(chan struct{})}
	if greeting != nil {
		l.Greeting = *greeting
	}
	l.Out = outbox.New(rawio.NewConn(conn), !l.Anonymous, confirm)
	return l
}

// Write begins to write what is queued, in a goroutine that ends with the connection.
// Failed is called in it if the writing fails, before the reader's wait ends for that.
func (l *Link) Write(failed func()) {
	l.writer.Go(func() {
		if err := l.Out.Run(); err != nil {
			failed()
			l.Fail(err)
		}
	})
}

// Wake ends the reader's wait.
func (l *Link) Wake() { _ = l.Conn.SetReadDeadline(time.Unix(1, 0)) }

// Supersede ends reading and writing, since the client has made another connection. That
// reason replaces an earlier one: the session must go on with the new connection.
func (l *Link) Supersede() {
	l.mu.Lock()
	l.cause = ErrSuperseded
	l.mu.Unlock()
	l.Wake()
	_ = l.Conn.SetWriteDeadline(time.Unix(1, 0))
}

// Why returns the reason why the reader's wait was ended; nil if it was not. It wraps
// [ErrGone] if the session must end, and [ErrLost] if the client may connect again.
func (l *Link) Why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cause == nil, errors.Is(l.cause, ErrSuperseded):
		return l.cause
	case errors.Is(l.cause, outbox.ErrSlow), errors.Is(l.cause, outbox.ErrHoarder), errors.Is(l.cause, ErrTooMuch),
		errors.Is(l.cause, ErrExpelled):
		return fmt.Errorf("%w: %w", ErrGone, l.cause)
	}
	return fmt.Errorf("%w: %w", ErrLost, l.cause)
}

// Fail ends the reader's wait for a reason of the daemon's. The first reason counts.
func (l *Link) Fail(why error) {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = why
	}
	l.mu.Unlock()
	l.Wake()
}

// Drop closes the connection at once, and blocks until its writer has ended.
func (l *Link) Drop() {
	l.Out.Abort()
	_ = l.Conn.Close()
	l.writer.Wait()
	close(l.Done)
}

// Finish closes the connection once all that is queued is sent, or a time limit is
// over. It does nothing after [Link.Drop].
func (l *Link) Finish() {
	select {
	case <-l.Done:
		return
	default:
	}
	l.Out.Close()
	l.Wake()
	late := time.AfterFunc(lastWrites, func() { _ = l.Conn.Close() })
	l.writer.Wait()
	late.Stop()
	close(l.Done)
}
