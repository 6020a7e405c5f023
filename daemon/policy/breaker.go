package policy

import (
	"sync"
	"time"

	"holdline/protocol/fault"
)

// State is the state of a circuit breaker.
//
//	Closed    ‒ threshold failures in a row  → Open
//	Open      ‒ a call after the reset time  → HalfOpen; that call is the probe
//	HalfOpen  ‒ the probe succeeds           → Closed
//	HalfOpen  ‒ the probe fails              → Open, for the reset time
//	HalfOpen  ‒ the probe is cancelled       → Open; the next call is the probe
//	any state ‒ [Breaker.Reset]              → Closed
type State string

// The states.
const (
	Closed   State = "closed"    // calls pass
	Open     State = "open"      // calls are refused
	HalfOpen State = "half_open" // one call passes, whose outcome decides
)

// probeWait is the time after which callers should try again while a probe is under
// way. How long the probe takes is not known.
const probeWait = time.Second

// Breaker keeps calls away from a server that fails. It is safe for concurrent use.
//
// Only failures of the infrastructure count. An error that a tool returns counts as a
// success: the server has answered. One fault counts once, however many calls it hits:
// all that were under way on a process when it died, or that waited for one start.
type Breaker struct {
	server    string
	threshold int
	reset     time.Duration

	mu       sync.Mutex // guards the fields that follow
	state    State
	failures int       // in a row
	counted  int       // failures ever
	last     string    // process that the last one was counted for; "" if the call had none
	until    time.Time // when the next probe may be made, if the state is Open
	era      int       // counts openings and resets; turns of an earlier era do not count
}

// NewBreaker returns the closed breaker of a server. It opens after threshold failures
// in a row, for the time reset.
func NewBreaker(server string, threshold int, reset time.Duration) *Breaker {
	return &Breaker{server: server, threshold: max(threshold, 1), reset: reset, state: Closed}
}

// Turn is the permission to make one call. The caller must call one of its methods when
// the call is over. Further calls do nothing.
type Turn struct {
	b    *Breaker
	era  int
	done bool // guarded by b.mu

	// Guarded by b.mu.
	process string // that the call goes to; "" while it waits for one
	since   int    // failures that the breaker had counted when the call began to wait, or was given to the process
}

// Allow permits a call now, or returns a circuit_open fault that says when to try
// again. After the reset time it permits one call as the probe, and refuses the others
// until that call is over.
func (b *Breaker) Allow(now time.Time, tool string) (*Turn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait, what := b.until.Sub(now), "the next call is let through as a probe then"
	switch {
	case b.state == Open && wait <= 0:
		b.state = HalfOpen
		fallthrough
	case b.state == Closed:
		return &Turn{b: b, era: b.era, since: b.counted}, nil
	case b.state == HalfOpen:
		wait, what = probeWait, "one call is under way to find out whether it is well"
	}
	ms := max(1, (wait + time.Millisecond - 1).Milliseconds())
	f := fault.New(fault.CircuitOpen, fault.Host, operation(tool),
		"server %s failed %d times in a row and is left alone; %s (try again in %d ms)", b.server, b.failures, what, ms)
	f.RetryAfterMS = &ms
	return nil, f
}

// Goes says to which process the call goes now; "" if it waits for one to start.
func (t *Turn) Goes(process string) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.process, t.since = process, t.b.counted
}

// Success closes the breaker: the server has answered.
func (t *Turn) Success() {
	t.finish(func(b *Breaker) { b.state, b.failures = Closed, 0 })
}

// Failure counts a failure, unless one of the same process was counted since the call went
// to it: then the same fault has hit both calls. It opens the breaker if there were enough
// failures, or if the call was the probe.
func (t *Turn) Failure(now time.Time) {
	t.finish(func(b *Breaker) {
		if t.since != b.counted && t.process == b.last {
			return
		}
		b.failures++
		b.counted++
		b.last = t.process
		if b.failures >= b.threshold || b.state == HalfOpen {
			b.state, b.until, b.era = Open, now.Add(b.reset), b.era+1
		}
	})
}

// Cancel gives the turn back: the call was not made, or its end says nothing about the
// server. If it was the probe, the next call becomes the probe.
func (t *Turn) Cancel() {
	t.finish(func(b *Breaker) {
		if b.state == HalfOpen {
			b.state = Open
		}
	})
}

// finish applies the outcome of a call, once. A call that was made before the breaker
// opened or was reset does not count: it says nothing about the server as it is now.
func (t *Turn) finish(apply func(b *Breaker)) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if !t.done && t.era == t.b.era {
		apply(t.b)
	}
	t.done = true
}

// State returns the state, and how many calls have failed in a row. If the breaker
// would permit a probe now, the state is HalfOpen.
func (b *Breaker) State(now time.Time) (s State, failures int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Open && !now.Before(b.until) {
		return HalfOpen, b.failures
	}
	return b.state, b.failures
}

// Reset closes the breaker. Calls that are under way no longer count.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.failures, b.era = Closed, 0, b.era+1
}
