package policy

import (
	"sync"
	"time"

	"holdline/protocol/fault"
)

// State is a circuit breaker's, as status shows it.
type State string

// The states.
const (
	Closed   State = "closed"
	Open     State = "open"
	HalfOpen State = "half_open"
)

// probing is when to try again while a probe decides: nobody knows how long
// it takes.
const probing = time.Second

// Breaker keeps calls from a server that fails: after a number of consecutive
// failures it is open for a while, then it lets exactly one call through,
// whose outcome decides. It is safe for concurrent use.
//
// Only failures of the infrastructure count. What a tool says of itself, an
// error included, is a success: the server answered.
type Breaker struct {
	server    string
	threshold int
	reset     time.Duration

	mu       sync.Mutex
	failures int       // consecutive; guarded by mu, as are those below
	opened   bool      // not closed
	until    time.Time // when the next probe may be made
	probe    *Turn     // that is under way
	era      int       // counts openings and resets: turns from before no longer count
}

// NewBreaker is the breaker of a server: threshold consecutive failures open
// it for the time reset.
func NewBreaker(server string, threshold int, reset time.Duration) *Breaker {
	return &Breaker{server: server, threshold: max(threshold, 1), reset: reset}
}

// Turn is the leave to make one call. Exactly one of its methods must be
// called when the call is over; more calls do nothing.
type Turn struct {
	b    *Breaker
	era  int
	done bool // guarded by b.mu
}

// Allow gives the leave to make a call now, or a fault of code circuit_open
// that says when to try again.
func (b *Breaker) Allow(now time.Time, tool string) (*Turn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.opened {
		return &Turn{b: b, era: b.era}, nil
	}
	wait := b.until.Sub(now)
	if wait <= 0 && b.probe == nil {
		b.probe = &Turn{b: b, era: b.era}
		return b.probe, nil
	}
	what := "the next call is let through as a probe then"
	if wait <= 0 {
		wait, what = probing, "one call is under way to find out whether it is well"
	}
	ms := max(1, (wait + time.Millisecond - 1).Milliseconds())
	f := fault.New(fault.CircuitOpen, fault.Host, operation(tool),
		"server %s failed %d times in a row and is left alone; %s (try again in %d ms)", b.server, b.failures, what, ms)
	f.RetryAfterMS = &ms
	return nil, f
}

// Success closes the breaker: the server has answered.
func (t *Turn) Success() {
	t.end(func(b *Breaker) { b.failures, b.opened, b.probe = 0, false, nil })
}

// Failure counts. If it is the one too many, or that of the probe, the breaker
// is open from now on.
func (t *Turn) Failure(now time.Time) {
	t.end(func(b *Breaker) {
		b.failures++
		if b.failures >= b.threshold || b.opened {
			b.opened, b.probe, b.until, b.era = true, nil, now.Add(b.reset), b.era+1
		}
	})
}

// Cancel gives the turn back: the call was not made, or ended without telling
// anything of the server. After that of a probe, the next call is the probe.
func (t *Turn) Cancel() {
	t.end(func(b *Breaker) { b.probe = nil })
}

func (t *Turn) end(do func(b *Breaker)) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	// A call that was made before the breaker opened says nothing about now.
	if !t.done && t.era == t.b.era {
		do(t.b)
	}
	t.done = true
}

// State is how the breaker stands, and how many calls failed in a row.
func (b *Breaker) State(now time.Time) (s State, failures int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.opened:
		return Closed, b.failures
	case now.Before(b.until):
		return Open, b.failures
	}
	return HalfOpen, b.failures
}

// Reset closes the breaker; calls that are under way no longer count.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.opened, b.probe, b.era = 0, false, nil, b.era+1
}
