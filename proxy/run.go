package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdline/protocol"
	"holdline/protocol/bootclock"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/idlemem"
	"holdline/protocol/mcp"
)

// Exit codes of [Run].
const (
	ExitDone     = 0 // the client left, and has every answer that came in time
	ExitFailed   = 1 // refused, or the client's side is broken
	ExitNoDaemon = 3 // no daemon answered
	ExitLost     = 4 // the daemon went away, and the session cannot go on
)

// Limits of a proxy.
const (
	readAhead  = 1 << 20               // bytes read from the client before the daemon took them
	memory     = 64 << 20              // bytes of client lines to remember
	leaveGrace = 40 * time.Millisecond // for a last line in each direction, when the proxy must leave
)

// NoDrainLimit as [Options.Drain] waits for the answers as long as it takes.
const NoDrainLimit time.Duration = -1

// Options of [Run]. All are required, except those whose comment says what their zero does.
type Options struct {
	// In is the client's side to read from. Close must end a Read that waits.
	In io.ReadCloser
	// Out is the client's side to write to: nothing but whole lines of MCP.
	// Close must end a Write that waits.
	Out io.WriteCloser
	// Err takes messages for people.
	Err io.Writer
	// Greeting is the proxy's first line, with session and identity. Run fills
	// in the fields of a resume.
	Greeting protocol.Greeting
	// Dial connects to the daemon.
	Dial func(context.Context) (net.Conn, error)
	// Down returns the reason behind an error of Dial.
	Down func(error) Down
	// HungUp reports, without blocking, whether the other end of a connection
	// of Dial is closed.
	HungUp func(net.Conn) bool
	// Autostart starts a daemon and returns at once. The channel yields the end
	// of that process, if it ends while Run waits: nil if another daemon runs
	// already, an error that wraps [ErrKilled] if another start may succeed at
	// once. After any other error, and after an error of Autostart itself, a Run
	// that had no daemon yet ends; a resume goes on and starts a daemon again
	// after a pause, but not for long after a [*StuckError]. The error is a
	// [*ManagedError] where a service manager must start the daemon. A nil
	// Autostart starts none.
	Autostart func(context.Context) (<-chan error, error)
	// Settled returns a channel that is closed when no process is starting a daemon any
	// more: then one listens, or the start has failed. It returns nil if none is being
	// started, or if that cannot be known; then Run dials again and again. Run calls it when
	// it has lost its daemon, after a start, and when Autostart returns [ErrStarting]. It may
	// be nil.
	Settled func() <-chan struct{}
	// Absent returns why no daemon listens although a service manager should
	// have started one; nil if no reason is known or it will pass. Run calls it
	// once in a while as long as the proxy starts no daemon itself. It may be nil.
	Absent func(context.Context) *ManagedError
	// Stopped returns why no daemon is to run if the user has stopped it, and "" otherwise.
	// Then Run starts none, waits for none, and ends. Nil means never.
	Stopped func() string
	// Drain is how long the proxy waits for answers after the client has closed
	// its side; [NoDrainLimit] sets no limit.
	Drain time.Duration
	// ReconnectTimeout is how long the proxy searches for a daemon. In a resume
	// the window in the daemon's welcome bounds it, too. No resume begins after
	// that window, even if this process was stopped meanwhile.
	ReconnectTimeout time.Duration
	// Log takes what happens to the line.
	Log *slog.Logger

	memory    int                  // bytes of client lines to remember; tests replace the 0 for [memory]
	sinceBoot func() time.Duration // reads the boot clock; tests replace the nil for the system's
}

// ErrStarting is the error of an Autostart that started nothing, since another process is starting
// a daemon.
var ErrStarting = errors.New("another process is starting a daemon")

// ErrKilled is wrapped by the error of a daemon's process that was killed by a signal.
var ErrKilled = errors.New("killed")

// A StuckError is of a daemon that cannot start before a person has done what the error says.
type StuckError struct{ Why string }

// Error returns why no daemon can start, and what to do.
func (e *StuckError) Error() string { return e.Why }

// ManagedError says why a service manager does not start the daemon, although it should.
type ManagedError struct {
	Why  string
	Hint string // what the user can do
}

// Error returns why there is no daemon.
func (e *ManagedError) Error() string { return e.Why }

// Down is the reason why a dial failed.
type Down int

// The reasons.
const (
	DownBusy    Down = iota // it may pass: the proxy tries again
	DownAbsent              // no daemon listens: the proxy may start one
	DownRefused             // it will not pass
)

// ending is why [proxy.talk] returned. After endLost the proxy looks for the next daemon;
// after each of the others it ends.
type ending int

const (
	endDone    ending = iota // the client is done
	endBroken                // the client's side is broken
	endLost                  // the daemon's side is gone
	endStopped               // the daemon said bye
)

// proxy is the state of one [Run].
type proxy struct {
	o     Options      // as the caller gave them, with the defaults
	log   *slog.Logger // that of the options
	store *store       // the client's lines
	out   *output      // to the client

	// Each holds at most one token, which makes its goroutine check the state again.
	work  chan struct{} // for the writer
	space chan struct{} // for the reader of the client
	idle  chan struct{} // for the loop, once the client has closed its side

	link atomic.Pointer[link] // the connection to the daemon; nil without one

	memory idlemem.Releaser // has counted what has passed

	noFiles bool // the daemon's files cannot be opened; for readDaemon, and for connect in between

	begun   time.Time // when its client started it
	drainBy time.Time // zero until the client's end was seen by a talk
}

// Run carries lines until the client is done, the session is lost, or ctx is
// cancelled: then the proxy says bye and ends within 100 ms. It returns the exit
// code. It closes In and Out and leaves no goroutine behind.
func Run(ctx context.Context, o Options) int {
	o.memory = cmp.Or(o.memory, memory)
	if o.sinceBoot == nil {
		o.sinceBoot = bootclock.Now
	}
	p := &proxy{
		o:     o,
		begun: time.Now(),
		log:   o.Log,
		store: newStore(o.memory, o.sinceBoot),
		out:   &output{w: o.Out, failed: make(chan struct{})},
		work:  make(chan struct{}, 1),
		space: make(chan struct{}, 1),
		idle:  make(chan struct{}, 1),
	}
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { p.readClient(reading) })
	wg.Go(func() { p.unblock(ctx, reading) })
	code := p.serveConnections(ctx)
	stop()
	_ = o.In.Close()
	_ = o.Out.Close()
	wg.Wait()
	p.store.removeFiles(true)
	return code
}

// unblock closes Out if the proxy has not ended a while after ctx was cancelled: a
// client that does not read must not delay its end. It returns when done is.
func (p *proxy) unblock(ctx, done context.Context) {
	select {
	case <-ctx.Done():
	case <-done.Done():
		return
	}
	t := time.NewTimer(2 * leaveGrace)
	defer t.Stop()
	select {
	case <-t.C:
		_ = p.o.Out.Close()
	case <-done.Done():
	}
}

// serveConnections serves one connection after the other, and returns the exit code. Before it returns
// with an error it has answered all pending requests with faults.
func (p *proxy) serveConnections(ctx context.Context) int {
	l, err := p.connect(ctx, nil)
	for {
		if err != nil {
			return p.giveUp(ctx, err, l != nil)
		}
		switch end := p.talk(ctx, l); end {
		case endDone:
			return ExitDone
		case endBroken:
			return p.broken(ctx)
		case endStopped:
			if l.bye.Bye == protocol.ByeStopped {
				return p.giveUp(ctx, &stoppedError{l.farewell()}, true)
			}
			hint := "start the server again in your client; holdline status shows the daemon"
			if l.bye.Bye == protocol.ByeRemoved {
				hint = "restart the agent, so that it reads its own configuration again"
			}
			p.printMessage("the daemon has ended this session: "+l.farewell(), hint)
			p.settle("the daemon ended the session: "+l.farewell(), "")
			return p.after(ctx, ExitLost)
		case endLost:
		}
		p.setLink(nil)
		faultpoint.At("proxy.lost")
		p.log.InfoContext(ctx, "line lost, looking for the daemon")
		var next *link
		if next, err = p.connect(ctx, l); err == nil {
			l = next
			p.log.InfoContext(ctx, "line resumed", "daemon_pid", l.welcome.Daemon.PID, "resumed", l.welcome.Resumed)
		}
	}
}

// stoppedError says that the user has stopped Holdline.
type stoppedError struct{ why string }

// Error returns why there is no daemon, and what the user can do.
func (e *stoppedError) Error() string { return e.why + startAgain }

// startAgain follows the reason of a [stoppedError].
const startAgain = "; start it again with `holdline start`"

// errLeft is returned by connect if the client is done before a daemon was found.
var errLeft = errors.New("the client is done")

// giveUp ends a proxy that found no daemon, because of err. It shows the user the reason,
// answers all pending requests with faults, and returns the exit code. had is true if the
// proxy was connected before.
func (p *proxy) giveUp(ctx context.Context, err error, had bool) int {
	if errors.Is(err, errLeft) || ctx.Err() != nil {
		return ExitDone
	}
	if p.out.broken() != nil {
		return p.broken(ctx)
	}
	code, hint := ExitNoDaemon, "start it with: holdline start; holdline doctor says what is wrong"
	why, next := err.Error(), ""
	refusal, refused := errors.AsType[*protocol.Refusal](err)
	switch {
	case refused:
		code, hint = ExitFailed, hintFor(refusal.Code)
	case errors.Is(err, errUnusable):
		code, hint = ExitFailed, "holdline doctor says what is wrong"
	}
	if managed, ok := errors.AsType[*ManagedError](err); ok {
		hint = managed.Hint
	}
	if stopped, ok := errors.AsType[*stoppedError](err); ok {
		hint, why, next = "after that, start this server again in your client", stopped.why, startAgain
	}
	if had {
		code = ExitLost
	}
	p.printMessage(err.Error(), hint)
	if !had {
		p.firstLine(ctx)
	}
	if refused && refusal.Code == protocol.RefusedIdentity {
		p.settleAs(why, next, func(e *entry) *fault.Record {
			return fault.New(fault.IdentityRefused, fault.Host, e.op, "%s", refusal.Message)
		})
	} else {
		p.settle(why, next)
	}
	return p.after(ctx, code)
}

// firstLineWait is how long a proxy without a daemon waits for its client's first request:
// clients show their users the answer to that, and little of an end without one.
const firstLineWait = 200 * time.Millisecond

// firstLine waits for the client's first line, or its end.
func (p *proxy) firstLine(ctx context.Context) {
	limit := time.NewTimer(firstLineWait)
	defer limit.Stop()
	select {
	case <-p.work:
	case <-p.idle:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// hintFor returns what a user can do about a refusal with that code.
func hintFor(code string) string {
	switch code {
	case protocol.RefusedIdentity:
		return "this identity has a token in the daemon's configuration: give it with HOLDLINE_TOKEN or --token-file"
	case protocol.RefusedGreeting:
		return "holdline mcp-stdio --help says what names may look like; " +
			"if it is not that, daemon and proxy are of different versions: holdline stop && holdline start"
	case protocol.RefusedVersion:
		return "daemon and proxy must be of like versions: " +
			"holdline stop ends the old daemon, and holdline start starts a new one"
	case protocol.RefusedLimit:
		return "holdline sessions shows who is connected"
	case protocol.RefusedBusy:
		return "another proxy holds this session: start the server again in your client"
	}
	return "holdline doctor says what is wrong"
}

// broken shows the user why writing to the client failed, and returns the exit code.
func (p *proxy) broken(ctx context.Context) int {
	if ctx.Err() != nil {
		return ExitDone
	}
	p.printMessage(fmt.Sprintf("write to the client: %v", p.out.broken()), "")
	return ExitFailed
}

// after returns code, or ExitDone if ctx was cancelled meanwhile: a client that ends its proxy
// must not see a failure.
func (p *proxy) after(ctx context.Context, code int) int {
	if ctx.Err() != nil {
		return ExitDone
	}
	return code
}

// settle answers every pending request with a fault: a tool call that was sent
// may have had its effect, anything else can be asked again. next ends the text of each.
func (p *proxy) settle(why, next string) {
	p.settleAs(why, next, func(e *entry) *fault.Record {
		if !e.sent {
			return fault.New(fault.TransportFailure, fault.Transport, e.op, "not sent: %s%s", why, next)
		}
		return fault.New(fault.TransportFailure, fault.Transport, e.op, "%s%s", why, next)
	})
}

// settleAs is [proxy.settle] with another fault for the requests that have certainly had no effect.
func (p *proxy) settleAs(why, next string, harmless func(*entry) *fault.Record) {
	for _, e := range p.store.unanswered() {
		if e.sent && e.call {
			p.fault(e, fault.New(fault.OutcomeUnknown, fault.Transport, e.op,
				"%s while the call was on its way: whether it had its effect is not known%s", why, next))
		} else {
			p.fault(e, harmless(e))
		}
	}
}

// fault answers the request e with f.
func (p *proxy) fault(e *entry, f *fault.Record) {
	method, modern := "", ""
	if e.call {
		method = mcp.ToolsCall
	}
	if e.modern {
		modern = `"resultType":"complete"`
	}
	p.out.line(append(mcp.AppendFault(nil, e.id, method, modern, f), '\n'), func() {})
}

// printMessage writes a message for the user to Err, and what the user can do on its own line.
func (p *proxy) printMessage(message, hint string) {
	text := message + "\n"
	if !strings.HasPrefix(message, "Holdline") {
		text = "holdline: " + text
	}
	if hint != "" {
		text += "hint: " + hint + "\n"
	}
	_, _ = io.WriteString(p.o.Err, text)
}

// setLink makes l the connection to the daemon. With nil there is none. It wakes the reader of
// the client: how far that may read ahead depends on whether there is a connection.
func (p *proxy) setLink(l *link) {
	p.link.Store(l)
	poke(p.space)
}

// poke puts a token into c unless one is there. It never blocks. The goroutine that takes the
// token checks the state itself, so one token stands for any number of changes.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// output writes whole lines to the client. It is safe for concurrent use.
type output struct {
	mu     sync.Mutex // held while a line is written
	w      io.Writer
	err    error         // the first one; guarded by mu
	failed chan struct{} // closed when err is set
}

// line writes b, which ends with a newline. It calls progress, under the lock, whenever the
// client has taken a part of a long line and more follows. After an error it does nothing.
func (o *output) line(b []byte, progress func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writeLocked(b, progress)
}

// long writes the message m, whose file is f, and a newline. It is like line otherwise.
func (o *output) long(m *protocol.Long, f *os.File, progress func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writeLocked([]byte(m.Head), progress)
	for off, end := m.Span.Offset, m.Span.Offset+m.Span.Size; off < end && o.err == nil; progress() {
		n, err := bulk.Copy(o.w, f, off, min(end-off, copyChunk))
		off += n
		o.failLocked(err)
	}
	o.writeLocked([]byte(m.Tail+"\n"), progress)
}

// writeLocked writes b. The caller must hold o.mu.
func (o *output) writeLocked(b []byte, progress func()) {
	for len(b) > 0 && o.err == nil {
		part := b[:min(len(b), copyChunk)]
		_, err := o.w.Write(part)
		o.failLocked(err)
		if b = b[len(part):]; len(b) > 0 && err == nil {
			progress()
		}
	}
}

// failLocked records the first error of a write. The caller must hold o.mu.
func (o *output) failLocked(err error) {
	if err != nil && o.err == nil {
		o.err = err
		close(o.failed)
	}
}

// broken returns the error that ended the output, or nil.
func (o *output) broken() error {
	select {
	case <-o.failed:
		return o.err // written before the close
	default:
		return nil
	}
}
