package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
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

	settledWait = 100 * time.Millisecond // if the end of a start will be known

	maxStarts      = 5 // in a row; after them a resume pauses before each, and a first connect starts none
	firstStartWait = 500 * time.Millisecond
	lastStartWait  = 5 * time.Second

	stuckTime = 5 * time.Second // of a resume, with errors that do not pass by themselves
)

// slack is what the daemon may add to a line that it took from elsewhere, in bytes. A message
// of the greatest size must still pass with what the daemon adds for the client's era.
const slack = 1 << 20

// errUnusable is wrapped by errors of connect that will not pass: what
// listens must not be used, or is no daemon.
var errUnusable = errors.New("the daemon cannot be used")

// link is a connection that a daemon has welcomed. [proxy.talk] closes it.
type link struct {
	conn net.Conn
	dir  string // the daemon's runtime directory; "" if it is not known

	sharesFiles bool // files that are made there are the daemon's, too

	out     *rawio.Stream    // to conn; for the goroutine that has the turn
	lines   *jsonrpc.Lines   // reads conn; for readDaemon
	welcome protocol.Welcome // the daemon's first line
	since   string           // id of the records that the daemon had when the oldest pending line was sent; see [link.storeFor]
	below   int64            // lines from here on were sent under the id in welcome
	replays []replay         // what writeDaemon repeats first
	watch   *watch
	bye     protocol.Control // set by the reader before it ends

	// turn holds a token while no goroutine writes to the daemon. The goroutine that
	// takes the token has the turn: it alone uses out, begun, rest and joined.
	turn   chan struct{}
	begun  []*entry // the lines that were begun and not written whole
	rest   []byte   // of begun
	joined []byte   // what rest is a part of, if it has several lines; used again
}

// storeFor returns the id of the daemon's records that the next greeting names: the oldest under
// which one of the pending lines was sent. Records that were lost since then may be that line's, and
// the daemon that said so may have died before it answered.
func (l *link) storeFor(pending []int64) string {
	for _, n := range pending {
		if n < l.below {
			return l.since
		}
	}
	return l.welcome.Store
}

// farewell returns the reason that the daemon gave when it ended the session.
func (l *link) farewell() string {
	if l.bye.Message != "" {
		return l.bye.Message
	}
	return l.bye.Bye
}

// search is one search for a daemon: the dials of one [proxy.connect], and the starts of
// daemons meanwhile. One goroutine uses it.
type search struct {
	p      *proxy
	last   *link         // the connection before, nil at first
	within time.Duration // how long to search
	lost   moment        // from here within counts
	late   bool          // some of within may have passed
	wait   time.Duration // the longest pause before the next dial

	start    func(context.Context) (<-chan error, error) // nil starts none
	starts   int                                         // daemons started so far
	exited   <-chan error                                // of the process that was started and runs
	failed   error                                       // of the latest start that failed
	settled  <-chan struct{}                             // closed when no daemon is being started; nil if unknown
	next     time.Time                                   // earliest time of the next start
	nextWait time.Duration                               // pause after the next failed start

	absent  *ManagedError      // why the service manager starts no daemon; nil if that is not known
	asking  chan *ManagedError // the answer to come of a resume's question for absent; nil if it does not ask
	nextAsk time.Time          // earliest time to ask for absent
	told    string             // the absent that the user has seen
	stuck   time.Time          // since when starts fail by a [StuckError]; zero if the latest did not
}

// newSearch returns the search for a daemon after the connection last, nil at first. If a
// service manager runs the daemon, the search starts none itself.
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

// within returns how long the proxy may search for a daemon after the connection last. The
// daemon's resume window bounds it: after that the daemon's records have expired.
func (p *proxy) within(last *link) time.Duration {
	if last == nil || last.welcome.ResumeWindowMS <= 0 {
		return p.o.ReconnectTimeout
	}
	return min(p.o.ReconnectTimeout, time.Duration(last.welcome.ResumeWindowMS)*time.Millisecond)
}

// connect dials until a daemon welcomes this proxy. It starts a daemon if none listens, and
// backs off between the dials. It returns an error when the time is over, when another try
// cannot help, or, with errLeft, when the client needs no daemon any more. last is the
// connection before, nil at first.
func (p *proxy) connect(ctx context.Context, last *link) (*link, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a question that has no answer yet
	s := p.newSearch(last)
	err := errStoodStill
	// Of many proxies that have lost a daemon, all but the first ones need not dial to see that.
	if last != nil && s.awaitStart() {
		if err := s.pause(ctx, s.wait); err != nil {
			return nil, err
		}
		s.late = true
	}
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
		retry, absent := p.sort(err, last != nil)
		// What this search has started looks for itself whether the user has stopped it.
		if absent && s.exited == nil && p.o.Stopped != nil {
			if why := p.o.Stopped(); why != "" {
				return nil, &stoppedError{why}
			}
		}
		if absent && s.start == nil {
			s.askWhy(ctx)
		}
		if !retry || absent && s.start == nil && last == nil {
			return nil, s.named(err)
		}
		if absent {
			if err := s.startOne(ctx); err != nil {
				return nil, err
			}
		}
		if last != nil { // else the wait for answers has not begun
			if by, limited := p.drainTime(); limited && !time.Now().Before(by) {
				return nil, s.named(fmt.Errorf("no daemon since the client left: %w", err))
			}
		}
		left := s.left()
		if left <= 0 {
			return nil, s.over(err)
		}
		wait := s.wait/2 + rand.N(s.wait/2+1) //nolint:gosec // jitter is no secret
		if err := s.pause(ctx, min(left, wait)); err != nil {
			return nil, err
		}
		s.wait, s.late = min(2*s.wait, lastWait), true
	}
}

// When the proxy asks why a service manager starts no daemon.
const (
	absentWait = 2 * time.Second  // no daemon listens for so long before the first time: one may be starting
	askEvery   = 10 * time.Second // between two times
)

// askWhy asks why the service manager starts no daemon, if that is due. A first search waits for the
// answer. A resume goes on: [search.pause] gets the answer. On a busy machine that takes seconds, in
// which the manager may start the daemon.
func (s *search) askWhy(ctx context.Context) {
	now := time.Now()
	if s.p.o.Absent == nil || s.asking != nil || now.Before(s.nextAsk) ||
		s.last != nil && s.within-s.left() < min(absentWait, s.within/4) {
		return
	}
	s.nextAsk = now.Add(askEvery)
	if s.last == nil {
		s.absent = s.p.o.Absent(ctx)
		return
	}
	asking := make(chan *ManagedError, 1)
	s.asking = asking
	go func() { asking <- s.p.o.Absent(ctx) }() // ends with the search at the latest
}

// explain takes the answer to a resume's question, and shows it to the user unless that was the last one
// shown. A manager that did not answer at first may do so later.
func (s *search) explain(absent *ManagedError) {
	s.asking, s.absent = nil, absent
	if absent != nil && absent.Error() != s.told {
		s.told = absent.Error()
		s.p.printMessage(fmt.Sprintf("waiting for the daemon, up to %v: %v", s.within, absent), absent.Hint)
	}
}

// errStoodStill is why no daemon was tried at all.
var errStoodStill = errors.New("this process stood still, or its client did not read, while the daemon went away")

// left returns the time that is left for the search. The time for which the machine slept
// counts only in a resume with a call in flight: the daemon's records expire meanwhile.
func (s *search) left() time.Duration {
	return s.within - s.p.since(s.lost, s.last != nil && s.p.store.calling() > 0)
}

// over returns the error of a search whose time is over. err is that of the last try.
func (s *search) over(err error) error {
	return s.named(fmt.Errorf("no daemon within %v: %w", s.within, err))
}

// named returns err with the reason why the latest start failed, or why no daemon was
// started.
func (s *search) named(err error) error {
	switch {
	case s.failed != nil:
		return fmt.Errorf("%w; last attempt: %w", err, s.failed)
	case s.absent != nil:
		return fmt.Errorf("%w: %w", err, s.absent)
	}
	return err
}

// startOne starts a daemon, if this search may and none that it has started still runs. An
// error ends the search.
func (s *search) startOne(ctx context.Context) error {
	switch {
	case s.start == nil || s.exited != nil || time.Now().Before(s.next):
		return nil
	case s.last == nil && s.starts >= maxStarts:
		return nil
	}
	exited, err := s.start(ctx)
	if errors.Is(err, ErrStarting) {
		s.awaitStart()
		return nil
	}
	s.starts++
	if err != nil && s.last == nil && s.starts < maxStarts && isReplaced(err) {
		s.failed = fmt.Errorf("start the daemon: %w", err)
		s.pauseStarts()
		return nil
	}
	if err != nil {
		return s.startFailed(ctx, fmt.Errorf("start the daemon: %w", err))
	}
	faultpoint.At("proxy.started")
	s.exited, s.wait = exited, firstWait
	s.awaitStart()
	return nil
}

// isReplaced reports whether err is that of a program which is missing, incomplete or open for
// writing. That passes soon if it is being installed.
func isReplaced(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) ||
		errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.ETXTBSY)
}

// awaitStart makes the search wait for the end of a start that is under way, instead of dialling
// often meanwhile: after the death of a daemon, many proxies search. It reports whether one is.
func (s *search) awaitStart() bool {
	if s.p.o.Settled == nil {
		return false
	}
	if s.settled = s.p.o.Settled(); s.settled != nil {
		s.wait = max(s.wait, settledWait)
	}
	return s.settled != nil
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

// startFailed handles a start that failed. It ends the first search of a proxy: the user
// must see the reason at once. A resume goes on searching: the user may fix the program or
// its configuration in time, or another program starts a daemon. It ends after [stuckTime] of a
// [StuckError]: who waits for answers learns from the fault what to do.
func (s *search) startFailed(ctx context.Context, err error) error {
	if s.last == nil {
		return err
	}
	if _, stuck := errors.AsType[*StuckError](err); !stuck {
		s.stuck = time.Time{}
	} else if s.stuck.IsZero() {
		s.stuck = time.Now()
		s.p.printMessage(fmt.Sprintf("waiting for the daemon for some seconds: %v", err), "")
	} else if time.Since(s.stuck) >= stuckTime {
		return err
	}
	if s.next.IsZero() { // log it once in a search
		s.p.log.WarnContext(ctx, "daemon not started, going on", "err", err)
	}
	s.failed = err
	s.pauseStarts()
	return nil
}

// pauseStarts delays the next start, each time longer: a daemon that fails at once must not be
// started in a tight loop.
func (s *search) pauseStarts() {
	s.next = time.Now().Add(s.nextWait)
	s.nextWait = min(2*s.nextWait, lastStartWait)
}

// drainTime returns until when answers are waited for. limited is false while the client has
// not closed its side, and if the wait has no limit.
func (p *proxy) drainTime() (by time.Time, limited bool) {
	if eof, _ := p.store.state(); !eof || p.o.Drain < 0 {
		return by, false
	}
	if p.drainBy.IsZero() {
		p.drainBy = time.Now().Add(p.o.Drain)
	}
	return p.drainBy, true
}

// pause blocks for d, or until the process that was started ends with an error: then the
// next dial may start another one. It returns errLeft if the client needs no daemon any
// more, the error of the client's side, or that of a start which ends the search.
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
		case <-s.settled:
			s.settled, s.wait = nil, firstWait
			return nil
		case absent := <-s.asking:
			s.explain(absent)
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

// sort reports whether an error of try may pass, and whether no daemon listens. A daemon
// with too many connections is worth waiting for only in a resume: the session has calls
// there.
func (p *proxy) sort(err error, resumes bool) (retry, absent bool) {
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
	return true, ok && dial.down == DownAbsent
}

// dialError is the error of a failed dial that may pass.
type dialError struct {
	err  error
	down Down // why no connection was made
}

// Error returns the text of the dial's error.
func (e *dialError) Error() string { return e.err.Error() }

// Unwrap returns the dial's error.
func (e *dialError) Unwrap() error { return e.err }

// try dials and greets once, within [protocol.GreetingTimeout]. On an error the connection
// is closed.
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

// greet sends the greeting on conn and reads the daemon's welcome. After an earlier
// connection last, the greeting asks for a resume, and the link gets the lines to repeat.
// The error is a [*protocol.Refusal] if the daemon refuses, and wraps errUnusable if the
// other end is no daemon. On an error the caller must close conn.
func (p *proxy) greet(conn net.Conn, last *link) (*link, error) {
	g, dir := p.o.Greeting, ""
	g.Holdline, g.Role = protocol.Version, protocol.RoleMCP
	if a := conn.RemoteAddr(); a.Network() == "unix" && filepath.IsAbs(a.String()) {
		dir = filepath.Dir(a.String())
	}
	g.Numbers = true
	g.Files, g.Kept = dir != "" && !p.noFiles, p.store.factsKept()
	stream := rawio.New(conn)
	l := &link{
		conn: conn, dir: dir, out: stream, turn: make(chan struct{}, 1),
		lines: jsonrpc.NewLines(stream, protocol.MaxGreeting),
	}
	l.lines.AtOnce = true   // what says nothing else than a long line is no daemon
	l.lines.DropTail = true // a daemon that died while it wrote leaves half a line
	if last != nil {
		g.Resume, g.AgeMS = true, time.Since(p.begun).Milliseconds()
		g.Next, g.Pending, l.replays = p.store.recall()
		g.Replays = len(l.replays)
		g.Store = last.storeFor(g.Pending)
		l.since, l.below = g.Store, g.Next
	}
	faultpoint.At("proxy.dialled")
	_, err := conn.Write(protocol.Append(nil, g))
	faultpoint.At("proxy.greeted")
	if l.welcome, err = protocol.ReadWelcome(l.lines, err); errors.Is(err, protocol.ErrNoWelcome) {
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	faultpoint.At("proxy.welcomed")
	l.sharesFiles = err == nil && g.Files && sharesFiles(dir, &l.welcome)
	l.lines.AtOnce = false
	l.lines.SetLimit(jsonrpc.MaxFrame + slack)
	return l, err
}
