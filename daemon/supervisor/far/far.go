// Package far reaches the machines and containers on which workers run for this daemon. It has
// no transport and no key of its own: it runs ssh, docker, podman or kubectl as the user would
// (command.go), and talks to the holdline there over the program's stdin and stdout (package
// farwire).
//
// [Hosts] waits between attempts to reach a host that does not answer, for all workers there
// together. A [Session] is one run of such a program.
package far

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"holdline/daemon/waiting"
	"holdline/protocol/farwire"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// Time limits.
const (
	dialTimeout = 30 * time.Second // from the start of the program to the first words of the other side
	askTimeout  = 30 * time.Second // for a reply
	firstPause  = 500 * time.Millisecond
	longest     = 30 * time.Second // pause between attempts
)

// atOnce is how many sessions with a host may begin at the same time: sshd refuses some if there
// are many.
const atOnce = 4

// UnreachableError says that a host did not answer, or not as it has to.
type UnreachableError struct {
	Host  string
	Words string // why, for people: the last words of ssh, if it said any
	Fix   string // a command that helps, or shows more; "" for none
	// Refused means that the host was reached, and refused what it was asked for.
	Refused bool
	slow    bool // it said nothing at all
}

// Error returns what happened, and what to do.
func (e *UnreachableError) Error() string {
	text := fmt.Sprintf("%s cannot be reached: %s", e.Host, e.Words)
	if e.Refused {
		text = fmt.Sprintf("%s refuses: %s", e.Host, e.Words)
	}
	if e.Fix != "" {
		text += ". Run: " + e.Fix
	}
	return text
}

// Fault returns the error as the fault of an operation.
func (e *UnreachableError) Fault(operation string) *fault.Record {
	f := fault.New(fault.TransportFailure, fault.Host, operation, "%v", e)
	f.Cause = &fault.Cause{Reason: fault.Unreachable}
	return f
}

// Hosts are the places elsewhere that this daemon uses. It is safe for concurrent use.
type Hosts struct {
	// Environ returns the environment of the programs that reach hosts. It may wait until that is
	// known.
	Environ func(ctx context.Context) []string
	// Origin returns the name of this daemon's state directory.
	Origin func() (string, error)

	patience time.Duration // dialTimeout, unless it is 0

	wg     sync.WaitGroup // sessions
	mu     sync.Mutex     // guards what follows
	closed bool
	hosts  map[string]*host
}

// host is what is known of a host.
type host struct {
	begins chan struct{} // holds a token for each session that begins

	fails int // attempts in a row
	next  time.Time
	last  *UnreachableError // nil if the last attempt succeeded
	rtt   time.Duration     // 0 before the first measurement
}

// of returns what is known of a host. The caller must hold h.mu.
func (h *Hosts) of(name string) *host {
	if h.hosts == nil {
		h.hosts = map[string]*host{}
	}
	if h.hosts[name] == nil {
		h.hosts[name] = &host{begins: make(chan struct{}, atOnce)}
	}
	return h.hosts[name]
}

// known returns what is known of a host now.
func (h *Hosts) known(name string) host {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *h.of(name)
}

// Visit has do talk to the holdline on a host for once, which has to say hello within patience; 0 is
// as long as a daemon waits. An error of the connection is an [*UnreachableError].
func Visit(
	ctx context.Context, host string, environ []string, patience time.Duration, do func(*Session) error,
) error {
	h := Hosts{
		Environ:  func(context.Context) []string { return environ },
		Origin:   func() (string, error) { return "probe", nil }, // no daemon has this name, nor any workers
		patience: patience,
	}
	s, err := h.Dial(ctx, host)
	if err != nil {
		return err
	}
	err = do(s)
	s.HangUp()
	return errors.Join(err, h.Close(ctx))
}

// Measured records how long a question to a host and its answer took.
func (h *Hosts) Measured(name string, rtt time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(name).rtt = rtt
}

// RTT returns the last measurement of [Hosts.Measured]; 0 if there is none.
func (h *Hosts) RTT(name string) time.Duration { return h.known(name).rtt }

// Last returns why the last attempt to reach a host failed; nil if it did not.
func (h *Hosts) Last(name string) *UnreachableError { return h.known(name).last }

// Pause returns how long to wait for the next attempt to reach a host.
func (h *Hosts) Pause(name string) time.Duration { return time.Until(h.known(name).next) }

// Dial begins a session with a host. It fails at once if another attempt failed just before. An
// error is an [*UnreachableError], or the cause of ctx.
func (h *Hosts) Dial(ctx context.Context, name string) (*Session, error) {
	h.mu.Lock()
	to := h.of(name)
	h.mu.Unlock()
	select {
	case to.begins <- struct{}{}:
		defer func() { <-to.begins }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h.mu.Lock()
	last, closed, wait := to.last, h.closed, time.Until(to.next)
	if !closed {
		h.wg.Add(1) // done by the session
	}
	h.mu.Unlock()
	if closed {
		return nil, &UnreachableError{Host: name, Words: "the daemon stops"}
	}
	if wait > 0 && last != nil {
		h.wg.Done()
		return nil, last
	}
	// A connection that ssh shares may hang without anything that we could set.
	s, err := h.begin(ctx, name, last != nil && last.slow)
	if ctx.Err() != nil && err != nil {
		return nil, context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	to.last = nil
	if err != nil {
		to.last, _ = errors.AsType[*UnreachableError](err)
		to.next = time.Now().Add(pauseAfter(to.fails))
		to.fails++
		return nil, err
	}
	to.fails, to.next = 0, time.Time{}
	return s, nil
}

// pauseAfter returns the pause after so many attempts that failed before the last one.
func pauseAfter(fails int) time.Duration {
	pause := min(firstPause<<min(fails, 10), longest)
	return pause/2 + rand.N(pause/2) //nolint:gosec // jitter is no secret
}

// begin is [Hosts.Dial] without what is known of the host.
func (h *Hosts) begin(ctx context.Context, name string, alone bool) (*Session, error) {
	origin, err := h.Origin()
	if err != nil {
		h.wg.Done()
		return nil, &UnreachableError{Host: name, Words: err.Error()}
	}
	s, err := start(Command(context.WithoutCancel(ctx), name, Script("far "+origin), h.Environ(ctx), alone), h.wg.Done)
	if err != nil {
		return nil, &UnreachableError{Host: name, Words: notStarted(name, err)}
	}
	s.Host = name
	limit := cmp.Or(h.patience, dialTimeout)
	err = s.within(ctx, limit, func() (err error) {
		s.Hello, err = farwire.ReadHello(s.R)
		return err
	})
	switch {
	case err != nil:
		err = s.silent(err, limit)
	case s.Version != farwire.Version || s.Workers != process.Newest():
		err = &UnreachableError{
			Host: name, Words: fmt.Sprintf("its holdline (%s) speaks another protocol than this one", s.Program),
			Fix: "holdline hosts add " + name,
		}
	default:
		return s, nil
	}
	s.HangUp()
	return nil, err
}

// notStarted returns, for people, that the program that reaches a host could not be started.
func notStarted(name string, err error) string {
	k, _ := kindOf(name)
	return fmt.Sprintf("%s cannot be started (%v). Is it installed, and on your PATH?", k.program, err)
}

// silent returns why the other side did not say hello within limit, which failed with err.
func (s *Session) silent(err error, limit time.Duration) error {
	u := &UnreachableError{Host: s.Host, Fix: Try(s.Host)}
	code, words := s.end()
	u.Words = words
	switch {
	case errors.Is(err, errSlow):
		u.slow = true
		u.Words = "no answer within " + limit.String()
		if words != "" {
			u.Words += ": " + words
		}
	case code == shellNotFound:
		u.Words = "holdline was not found there (" + words + ")"
		u.Fix = "holdline hosts add " + s.Host
	case words == "":
		u.Words = fmt.Sprintf("the connection ended (exit code %d)", code)
	}
	return u
}

// shellNotFound is the exit code of a shell that does not find a program.
const shellNotFound = 127

// Close waits until all sessions have ended, or until ctx is done. Later ones do not begin.
func (h *Hosts) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	return waiting.For(ctx, &h.wg)
}

// FaultOf returns the fault of an error that says that a host cannot be reached; nil of any
// other error.
func FaultOf(err error, operation string) *fault.Record {
	if u, ok := errors.AsType[*UnreachableError](err); ok {
		return u.Fault(operation)
	}
	return nil
}
