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
	"holdline/protocol/rawio"
)

// Back-off of dials, and of starts that failed.
const (
	firstWait = 10 * time.Millisecond
	lastWait  = time.Second

	maxStarts      = 5 // in a row; after them a resume pauses before each, and a first connect starts none
	firstStartWait = 500 * time.Millisecond
	lastStartWait  = 5 * time.Second
)

// slack is what the daemon may add to a line that it took from elsewhere.
const slack = 1 << 20

// errUnusable is wrapped by errors of connect that will not pass: what
// listens must not be used, or is no daemon.
var errUnusable = errors.New("the daemon cannot be used")

// link is a connection that a daemon has welcomed.
type link struct {
	conn    net.Conn
	out     *rawio.Stream // to conn; for the goroutine that has the turn
	lines   *jsonrpc.Lines
	welcome protocol.Welcome
	replays []replay
	watch   *watch
	bye     protocol.Control // set by the reader before it ends

	// turn holds a token while no goroutine writes to the daemon. The goroutine that
	// takes the token has the turn: it alone uses out, begun and rest.
	turn  chan struct{}
	begun *entry // the line that was begun and not written whole; nil if there is none
	rest  []byte // of begun
}

// farewell is what the daemon said when it ended the session.
func (l *link) farewell() string {
	if l.bye.Message != "" {
		return l.bye.Message
	}
	return l.bye.Bye
}

// search is one search for a daemon.
type search struct {
	p      *proxy
	last   *link // the connection before, nil at first
	within time.Duration
	lost   moment // from here within counts
	late   bool   // some of within may have passed
	wait   time.Duration

	start    func(context.Context) (<-chan error, error) // nil starts none
	starts   int
	exited   <-chan error // of the process that was started and runs
	failed   error        // of the latest start that failed
	next     time.Time    // no start before
	nextWait time.Duration

	absent  *ManagedError // why its manager starts none, nil if that is not known
	nextAsk time.Time     // not asked before
	told    bool          // that was said
}

func (p *proxy) newSearch(last *link) *search {
	s := &search{
		p: p, last: last, within: p.within(last), wait: firstWait,
		start: p.o.Autostart, nextWait: firstStartWait,
	}
	if last == nil {
		s.lost = p.now()
		return s
	}
	s.lost, s.late = last.watch.lost(p)
	if last.welcome.Daemon.Managed != "" && last.welcome.Daemon.Managed != "no" {
		s.start = nil // its manager starts the next one
	}
	return s
}

// within is how long a daemon is looked for after the connection last.
func (p *proxy) within(last *link) time.Duration {
	if last == nil || last.welcome.ResumeWindowMS <= 0 {
		return p.o.ReconnectTimeout
	}
	return min(p.o.ReconnectTimeout, time.Duration(last.welcome.ResumeWindowMS)*time.Millisecond)
}

// connect looks for a daemon until one welcomes this proxy, the time is over
// or trying makes no sense. last is the connection before, nil at first.
func (p *proxy) connect(ctx context.Context, last *link) (*link, error) {
	s := p.newSearch(last)
	err := errStoodStill
	for {
		// Before each resume: a record that has expired meanwhile would let a
		// call be made a second time.
		if last != nil && s.late && s.left() < 0 {
			return nil, s.over(err)
		}
		var l *link
		if l, err = p.try(ctx, last); err == nil {
			return l, nil
		}
		retry, nobody := p.sort(err, last != nil)
		if nobody && s.start == nil {
			s.askWhy(ctx)
		}
		if !retry || nobody && s.start == nil && last == nil {
			return nil, s.named(err)
		}
		if nobody {
			if err := s.startOne(ctx); err != nil {
				return nil, err
			}
		}
		if last != nil && p.drained() {
			return nil, s.named(fmt.Errorf("no daemon since the client left: %w", err))
		}
		left := s.left()
		if left <= 0 {
			return nil, s.over(err)
		}
		if err := s.pause(ctx, min(left, s.wait/2+rand.N(s.wait/2+1))); err != nil { //nolint:gosec // jitter is no secret
			return nil, err
		}
		s.wait, s.late = min(2*s.wait, lastWait), true
	}
}

// Times of asking why a service manager starts no daemon.
const (
	absentWait = 2 * time.Second // of nobody listening before the first time: one may be about to start
	askEvery   = 10 * time.Second
)

// askWhy asks why the service manager starts no daemon, if it is time to, and
// says so, once.
func (s *search) askWhy(ctx context.Context) {
	now := time.Now()
	if s.p.o.Absent == nil || now.Before(s.nextAsk) || s.last != nil && s.within-s.left() < min(absentWait, s.within/4) {
		return
	}
	s.nextAsk = now.Add(askEvery)
	s.absent = s.p.o.Absent(ctx)
	if s.absent != nil && s.last != nil && !s.told {
		s.told = true
		s.p.say(fmt.Sprintf("waiting for the daemon, up to %v: %v", s.within, s.absent), s.absent.Hint)
	}
}

// errStoodStill is why no daemon was tried at all.
var errStoodStill = errors.New("this process stood still, or its client did not read, while the daemon went away")

// left is what is left of the time. The machine's sleep counts while a call is
// on its way.
func (s *search) left() time.Duration {
	return s.within - s.p.since(s.lost, s.last != nil && s.p.store.calling() > 0)
}

// over is the end of a search that err was the last result of.
func (s *search) over(err error) error {
	return s.named(fmt.Errorf("no daemon within %v: %w", s.within, err))
}

// named is err with the reason why the latest start failed, or why there was
// none.
func (s *search) named(err error) error {
	switch {
	case s.failed != nil:
		return fmt.Errorf("%w; last attempt: %w", err, s.failed)
	case s.absent != nil:
		return fmt.Errorf("%w: %w", err, s.absent)
	}
	return err
}

// startOne starts a daemon, if it is time to. An error ends the search.
func (s *search) startOne(ctx context.Context) error {
	switch {
	case s.start == nil || s.exited != nil || time.Now().Before(s.next):
		return nil
	case s.last != nil && s.p.o.Stopped != nil && s.p.o.Stopped():
		return nil // the user's word; somebody may start it again meanwhile
	case s.last == nil && s.starts >= maxStarts:
		return nil
	}
	s.starts++
	exited, err := s.start(ctx)
	if err != nil {
		return s.startFailed(ctx, fmt.Errorf("start the daemon: %w", err))
	}
	faultpoint.At("proxy.started")
	s.exited, s.wait = exited, firstWait
	return nil
}

// ended handles the end of the process that was started. An error ends the search.
func (s *search) ended(ctx context.Context, err error) error {
	s.exited = nil
	switch {
	case err == nil: // another daemon won and answers soon
		if s.starts >= maxStarts {
			s.pauseStarts()
		}
		return nil
	case errors.Is(err, ErrKilled) && s.starts < maxStarts: // the next may fare better
		s.failed = fmt.Errorf("the daemon did not start: %w", err)
		return nil
	}
	return s.startFailed(ctx, fmt.Errorf("the daemon did not start: %w", err))
}

// startFailed ends the search of a proxy that had no daemon yet: what is wrong
// is told at once. One that lost its daemon goes on: the program or its
// configuration may be fixed in time, or another program starts a daemon.
func (s *search) startFailed(ctx context.Context, err error) error {
	if s.last == nil {
		return err
	}
	if s.next.IsZero() { // once is enough
		s.p.log.WarnContext(ctx, "daemon not started, going on", "err", err)
	}
	s.failed = err
	s.pauseStarts()
	return nil
}

func (s *search) pauseStarts() {
	s.next = time.Now().Add(s.nextWait)
	s.nextWait = min(2*s.nextWait, lastStartWait)
}

// drained reports whether the client has closed its side for longer than its
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

// pause blocks for d. It returns earlier if the client needs no daemon any more, or if
// the process that was started fails.
func (s *search) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	p := s.p
	for {
		if _, drained := p.store.state(); drained || ctx.Err() != nil {
			return errLeft
		}
		if err := p.out.broken(); err != nil {
			return err
		}
		select {
		case <-timer.C:
			return nil
		case end := <-s.exited:
			if err := s.ended(ctx, end); err != nil || end != nil {
				return err
			}
		case <-ctx.Done():
		case <-p.out.failed:
		case <-p.idle:
		}
	}
}

// sort reports whether an error of try may pass, and whether no daemon listens. That
// the daemon has no place for another connection is worth waiting for to a
// session that resumes.
func (p *proxy) sort(err error, resumes bool) (retry, nobody bool) {
	if errors.Is(err, errUnusable) {
		return false, false
	}
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		switch refusal.Code {
		case protocol.RefusedBusy, protocol.RefusedStopping:
			return true, false
		case protocol.RefusedLimit:
			return resumes, false
		}
		return false, false
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
	begin := p.now()
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
	l.watch = p.watched(begin, p.within(l))
	return l, nil
}

func (p *proxy) greet(conn net.Conn, last *link) (*link, error) {
	g := p.o.Greeting
	g.Holdline, g.Role = protocol.Version, protocol.RoleMCP
	stream := rawio.New(conn)
	l := &link{conn: conn, out: stream, turn: make(chan struct{}, 1), lines: jsonrpc.NewLines(stream, nil, protocol.MaxGreeting)}
	l.lines.DropTail = true // of a daemon that died while it wrote
	if last != nil {
		g.Resume, g.Store = true, last.welcome.Store
		g.Next, g.Pending, l.replays, g.EOF = p.store.recall()
	}
	faultpoint.At("proxy.dialled")
	_, werr := conn.Write(protocol.Append(nil, g))
	faultpoint.At("proxy.greeted")
	line, err := l.lines.Next() // also of a daemon that refused, and hung up, before it was greeted
	switch {
	case err != nil && werr != nil:
		return nil, fmt.Errorf("greet the daemon: %w", werr)
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
