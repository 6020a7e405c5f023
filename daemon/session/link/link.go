// Package link is one connection of a session: what is read from it, the outbox that
// is written to it, and why it ends.
package link

import (
	"errors"
	"fmt"
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
	ErrUnfinished = errors.New("a line that this guest has begun does not end")
)

// lastWrites bounds the sending of what is still queued when a session ends.
const lastWrites = 2 * time.Second

// A line that a guest has begun goes on by lineStep bytes in lineWait at least, or ends: it takes room
// from others. A guest whose network has been away connects again and repeats the line.
const (
	lineStep = 256 << 10
	lineWait = 15 * time.Second
)

// A Link is one connection of a session. The goroutine that serves the session reads
// it; another one, of [Link.Write], writes what is queued in Out.
type Link struct {
	Conn      rawio.Socket
	Lines     *jsonrpc.Lines    // reads Conn, see Next; only the session's reader uses it
	First     []byte            // a line already read; nil if none
	Greeting  protocol.Greeting // empty if Anonymous
	Anonymous bool              // the client sent no greeting
	Guest     string            // socket of the configuration at which it connected; "" for the daemon's own
	Peer      peer.Peer         // the process that connected
	Out       *outbox.Outbox
	Done      chan struct{} // closed when the session has ended the connection

	writer sync.WaitGroup // the goroutine of Write

	// Only the session's reader uses these, for a guest.
	late  *time.Timer // fires if a line does not go on; nil before the first
	begun int         // bytes of the line when late was set last; 0 if it is not set
	room  Resize
	held  int // bytes of room that the buffer of Lines takes

	mu    lockcheck.Mutex
	cause error // why the reader's wait was ended; nil if it was not; guarded by mu
}

// New returns the link of conn, the connection of the process p, that lines reads. It starts no
// goroutine. greeting is what the client has sent, nil for an anonymous one. confirm, which may
// be nil, is called when the client holds the answer to its line n.
func New(
	conn rawio.Socket, lines *jsonrpc.Lines, greeting *protocol.Greeting, p peer.Peer, confirm func(n int64),
) *Link {
	l := &Link{Conn: conn, Lines: lines, Anonymous: greeting == nil, Peer: p, Done: make(chan struct{})}
	if greeting != nil {
		l.Greeting = *greeting
	}
	l.Out = outbox.New(rawio.NewConn(conn), !l.Anonymous, confirm)
	return l
}

// Resize takes room for size bytes in place of what held takes, as listener.Share does.
type Resize func(held, size int) (now int, ok bool)

// Bound bounds the memory and the time that a line of a guest takes which has not ended: see
// [jsonrpc.ErrNoRoom] and [ErrUnfinished].
func (l *Link) Bound(room Resize) {
	l.room = room
	l.Lines.BeforeRead = l.watchLine
	l.Lines.Hold = func(size int) (ok bool) {
		l.held, ok = room(l.held, size)
		return ok
	}
}

// watchLine sets l.late anew if the line that has begun goes on, and ends it if there is none.
func (l *Link) watchLine() {
	switch begun := l.Lines.Begun(); {
	case begun == 0 && l.begun > 0:
		l.late.Stop()
		l.begun = 0
	case begun > 0 && (l.begun == 0 || begun >= l.begun+lineStep):
		if l.late == nil {
			l.late = time.AfterFunc(lineWait, func() { l.Fail(ErrUnfinished) })
		}
		l.late.Reset(lineWait)
		l.begun = begun
	}
}

// Next returns the next line, as [jsonrpc.Lines.Next] does.
func (l *Link) Next() ([]byte, error) {
	line, err := l.Lines.Next()
	if l.begun > 0 { // what is read next may be another line, as long as this one
		l.late.Stop()
		l.begun = 0
	}
	return line, err
}

// Hold returns a func that gives back the room which a line takes, with so many bytes of memory, and true;
// or false if there is none.
func (l *Link) Hold(size int) (release func(), ok bool) {
	held, ok := l.room(0, size)
	if held == 0 || !ok {
		return func() {}, ok
	}
	return func() { l.room(held, 0) }, true
}

// endReading gives back what the reader of the connection holds.
func (l *Link) endReading() {
	if l.late != nil {
		l.late.Stop()
	}
	l.Lines.Close()
}

// Write starts the goroutine that writes what is queued in l.Out, and returns at once. The
// goroutine ends with the outbox or the connection. If the writing fails, it calls failed, and
// then ends the reader's wait with the error, as [Link.Fail] does.
func (l *Link) Write(failed func()) {
	l.writer.Go(func() {
		if err := l.Out.Run(); err != nil {
			failed()
			l.Fail(err)
		}
	})
}

// Wake ends the reader's wait: its present and all later reads fail with os.ErrDeadlineExceeded.
// It sets no reason.
func (l *Link) Wake() { _ = l.Conn.SetReadDeadline(time.Unix(1, 0)) }

// Supersede makes all present and later reads and writes of the connection fail, since the client
// has made another connection. It closes nothing, and waits for nothing. [ErrSuperseded] replaces
// an earlier reason: the session must go on with the new connection. It takes l.mu.
func (l *Link) Supersede() {
	l.mu.Lock()
	l.cause = ErrSuperseded
	l.mu.Unlock()
	l.Wake()
	_ = l.Conn.SetWriteDeadline(time.Unix(1, 0))
}

// Why returns the reason why the reader's wait was ended; nil if it was not, or only by
// [Link.Wake]. It is [ErrSuperseded], or wraps [ErrGone] if the session must end, or [ErrLost] if
// the client may connect again. It takes l.mu.
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

// Fail ends the reader's wait, as [Link.Wake] does, and sets the reason for that to why, unless
// there is one already. It takes l.mu.
func (l *Link) Fail(why error) {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = why
	}
	l.mu.Unlock()
	l.Wake()
}

// Drop closes the connection at once, drops what is queued, blocks until the writer has ended,
// and closes l.Done. It must be called once at most, and not after [Link.Finish].
func (l *Link) Drop() {
	l.Out.Abort(nil)
	_ = l.Conn.Close()
	l.writer.Wait()
	l.endReading()
	close(l.Done)
}

// Finish closes the outbox, and blocks until the writer has sent all that is queued. After 2 s it
// closes the connection, which ends the writing. Then it closes l.Done; otherwise the listener
// closes the connection later. It does nothing after [Link.Drop].
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
	l.endReading()
	close(l.Done)
}
