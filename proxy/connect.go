package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"holdline/protocol"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
)

// Back-off of dials, and how often a daemon is started at most in one search.
const (
	firstWait = 10 * time.Millisecond
	lastWait  = time.Second
	maxStarts = 5
)

// slack is what the daemon may add to a line that it took from elsewhere.
const slack = 1 << 20

// errUnusable is wrapped by errors of connect that will not pass: what
// listens must not be used, or is no daemon.
var errUnusable = errors.New("the daemon cannot be used")

// link is a connection that a daemon has welcomed.
type link struct {
	conn    net.Conn
	lines   *jsonrpc.Lines
	welcome protocol.Welcome
	replays []replay
	bye     protocol.Control // set by the reader before it ends
}

// farewell is what the daemon said when it ended the session.
func (l *link) farewell() string {
	if l.bye.Message != "" {
		return l.bye.Message
	}
	return l.bye.Bye
}

// connect looks for a daemon until one welcomes this proxy, the time is over
// or trying makes no sense. last is the connection before, nil at first.
func (p *proxy) connect(ctx context.Context, last *link) (*link, error) {
	within := p.o.ReconnectTimeout
	start := p.o.Autostart
	if last != nil {
		if w := time.Duration(last.welcome.ResumeWindowMS) * time.Millisecond; w > 0 {
			within = min(within, w)
		}
		if last.welcome.Daemon.Managed != "" && last.welcome.Daemon.Managed != "no" {
			start = nil // its manager starts the next one
		}
	}
	deadline := time.Now().Add(within)
	wait := firstWait
	var exited <-chan error // of the process that was started and runs
	for starts := 0; ; {
		l, err := p.try(ctx, last)
		if err == nil {
			return l, nil
		}
		retry, nobody := p.sort(err)
		switch {
		case !retry:
			return nil, err
		case nobody && start == nil && last == nil:
			return nil, err
		case nobody && last != nil && p.o.Stopped != nil && p.o.Stopped():
			// The user's word; somebody may start it again meanwhile.
		case nobody && start != nil && exited == nil && starts < maxStarts:
			starts++
			var failed error
			if exited, failed = start(ctx); failed != nil {
				return nil, fmt.Errorf("start the daemon: %w", failed)
			}
			faultpoint.At("proxy.started")
			wait = firstWait
		}
		if last != nil && p.drained() {
			return nil, fmt.Errorf("no daemon since the client left: %w", err)
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, fmt.Errorf("no daemon within %v: %w", within, err)
		}
		ended, err := p.pause(ctx, min(left, wait/2+rand.N(wait/2+1)), exited) //nolint:gosec // jitter is no secret
		if err != nil && (!errors.Is(err, ErrKilled) || starts == maxStarts) {
			return nil, err
		}
		if ended { // another daemon won and answers soon, or ours was killed
			exited = nil
		}
		wait = min(2*wait, lastWait)
	}
}

// drained tells whether the client has closed its side for longer than its
// answers are waited for.
func (p *proxy) drained() bool {
	if eof, _ := p.store.state(); !eof || p.o.Drain < 0 {
		return false
	}
	if p.drainBy.IsZero() {
		p.drainBy = time.Now().Add(p.o.Drain)
	}
	return !time.Now().Before(p.drainBy)
}

// pause waits for d, no longer than somebody waits for the result. It tells
// whether the process that exited speaks of has ended well.
func (p *proxy) pause(ctx context.Context, d time.Duration, exited <-chan error) (ended bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		if _, drained := p.store.state(); drained || ctx.Err() != nil {
			return ended, errLeft
		}
		if err := p.out.broken(); err != nil {
			return ended, err
		}
		select {
		case <-timer.C:
			return ended, nil
		case err := <-exited:
			if err != nil {
				return true, fmt.Errorf("the daemon did not start: %w", err)
			}
			ended, exited = true, nil
		case <-ctx.Done():
		case <-p.out.failed:
		case <-p.idle:
		}
	}
}

// sort says whether an error of try may pass, and whether nobody listens.
func (p *proxy) sort(err error) (retry, nobody bool) {
	if errors.Is(err, errUnusable) {
		return false, false
	}
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		return refusal.Code == protocol.RefusedBusy || refusal.Code == protocol.RefusedStopping, false
	}
	dial, ok := errors.AsType[*dialError](err)
	return true, ok && dial.down == DownNobody
}

// dialError is a failed dial, sorted.
type dialError struct {
	err  error
	down Down
}

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// try dials and greets once. The greeting bears what a resume has to say.
func (p *proxy) try(ctx context.Context, last *link) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.GreetingTimeout)
	defer cancel()
	conn, err := p.o.Dial(ctx)
	if err != nil {
		if down := p.o.Down(err); down != DownRefused {
			return nil, &dialError{err, down}
		}
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	l, err := p.greet(conn, last)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

func (p *proxy) greet(conn net.Conn, last *link) (*link, error) {
	g := p.o.Greeting
	g.Holdline, g.Role = protocol.Version, protocol.RoleMCP
	l := &link{conn: conn, lines: jsonrpc.NewLines(conn, nil, protocol.MaxGreeting)}
	l.lines.DropTail = true // of a daemon that died while it wrote
	if last != nil {
		g.Resume, g.Store = true, last.welcome.Store
		g.Next, g.Pending, l.replays, g.EOF = p.store.recall()
	}
	faultpoint.At("proxy.dialled")
	if _, err := conn.Write(protocol.Append(nil, g)); err != nil {
		return nil, fmt.Errorf("greet the daemon: %w", err)
	}
	faultpoint.At("proxy.greeted")
	line, err := l.lines.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the daemon hung up before its welcome")
	case err != nil:
		return nil, fmt.Errorf("wait for the daemon's welcome: %w", err)
	}
	l.welcome, err = protocol.ParseWelcome(line)
	if _, refused := errors.AsType[*protocol.Refusal](err); err != nil && !refused {
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	faultpoint.At("proxy.welcomed")
	l.lines.SetLimit(jsonrpc.MaxFrame + slack)
	return l, err
}
