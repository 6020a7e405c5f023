package policy

import (
	"testing"
	"time"

	"holdline/protocol/fault"
)

// epoch is the time at which the tests' clocks begin.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type clockedBreaker struct {
	*testing.T
	b   *Breaker
	now time.Time
}

func (c *clockedBreaker) allow() *Turn {
	c.Helper()
	turn, err := c.b.Allow(c.now, "t")
	if err != nil {
		c.Fatalf("refused: %v", err)
	}
	return turn
}

func (c *clockedBreaker) refused(ms int64) {
	c.Helper()
	_, err := c.b.Allow(c.now, "t")
	r := isFault(c.T, err, fault.CircuitOpen)
	if r.RetryAfterMS == nil || *r.RetryAfterMS != ms || !r.Retryable {
		c.Errorf("fault %s, want retry_after_ms %d", r.JSON(), ms)
	}
}

func (c *clockedBreaker) state(want State, failures int) {
	c.Helper()
	if s, n := c.b.State(c.now); s != want || n != failures {
		c.Errorf("state %s with %d failures, want %s with %d", s, n, want, failures)
	}
}

func newClockedBreaker(t *testing.T) *clockedBreaker {
	t.Helper()
	return &clockedBreaker{t, NewBreaker("s", 3, 30*time.Second), epoch}
}

// open makes calls fail until the breaker is open.
func (c *clockedBreaker) open() {
	c.Helper()
	for range 3 {
		c.allow().Failure(c.now)
	}
	c.state(Open, 3)
}

func TestBreakerOpensAfterConsecutiveFailures(t *testing.T) {
	c := newClockedBreaker(t)
	c.allow().Failure(c.now)
	c.allow().Failure(c.now)
	c.allow().Success() // so that no three failures are in a row
	c.allow().Failure(c.now)
	c.allow().Failure(c.now)
	c.allow().Cancel() // counts neither way
	c.state(Closed, 2)
	last := c.allow()
	last.Success()
	last.Failure(c.now) // a second report of the same turn
	c.state(Closed, 0)
	c.open()
	c.refused(30_000)
	c.now = c.now.Add(29*time.Second + 999*time.Millisecond + 1)
	c.refused(1) // rounded up, never 0
}

// TestBreaker_OneFaultCountsOnce checks that the calls which one fault has hit count once,
// whether they were under way on a process or waited for one, and that the next fault counts.
func TestBreaker_OneFaultCountsOnce(t *testing.T) {
	c := newClockedBreaker(t)
	going := func(process string, n int) (turns []*Turn) {
		for range n {
			turn := c.allow()
			turn.Goes(process)
			turns = append(turns, turn)
		}
		return turns
	}
	fail := func(turns []*Turn) {
		for _, turn := range turns {
			turn.Failure(c.now)
		}
	}
	fail(going("", 9)) // a start
	c.state(Closed, 1)
	one := going("p1", 9)
	fail(one[:8])
	c.state(Closed, 2)
	late := going("p1", 2) // it lives: the first calls have timed out
	fail(one[8:])
	c.state(Closed, 2)
	c.allow().Success()
	fail(late)
	c.state(Closed, 1)
	both := append(going("p2", 3), going("p3", 3)...)
	moved := c.allow()
	moved.Goes("p2")
	fail(both[:3])
	c.state(Closed, 2)
	moved.Goes("p3") // it was given to the next process
	fail(both[3:])
	moved.Failure(c.now)
	c.state(Open, 3)
}

func TestBreakerLetsExactlyOneProbeThrough(t *testing.T) {
	c := newClockedBreaker(t)
	c.open()
	c.now = c.now.Add(30 * time.Second)
	c.state(HalfOpen, 3)
	probe := c.allow()
	for range 100 {
		c.refused(1000)
	}
	c.now = c.now.Add(time.Hour) // however long the probe takes
	c.refused(1000)
	probe.Failure(c.now)
	c.state(Open, 4)
	c.refused(30_000)
	c.now = c.now.Add(30 * time.Second)
	probe.Success() // a second report of the same turn
	c.state(HalfOpen, 4)
	c.allow().Success()
	c.state(Closed, 0)
	c.allow().Failure(c.now)
	c.state(Closed, 1)
}

// TestBreakerProbeGivesItsTurnBack checks that after a cancelled probe another call becomes
// the probe.
func TestBreakerProbeGivesItsTurnBack(t *testing.T) {
	c := newClockedBreaker(t)
	c.open()
	c.now = c.now.Add(30 * time.Second)
	first := c.allow()
	first.Cancel()
	c.state(HalfOpen, 3)
	second := c.allow()
	first.Cancel() // must not end the second probe's turn
	c.refused(1000)
	second.Success()
	c.state(Closed, 0)
}

// TestBreakerHeedsNoLateCalls checks that calls that began before the breaker opened do not
// decide for the probe, whenever they end.
func TestBreakerHeedsNoLateCalls(t *testing.T) {
	c := newClockedBreaker(t)
	good, bad := c.allow(), c.allow()
	c.open()
	good.Success()
	c.state(Open, 3)
	c.now = c.now.Add(30 * time.Second)
	probe := c.allow()
	bad.Failure(c.now)
	c.state(HalfOpen, 3)
	probe.Success()
	c.state(Closed, 0)

	// Overlapping calls to several processes all count, in the order in which they end.
	a, b := c.allow(), c.allow()
	a.Goes("p1")
	b.Goes("p2")
	c.allow().Success()
	a.Failure(c.now)
	b.Failure(c.now)
	c.state(Closed, 2)
}

// TestBreakerReset checks that a reset closes the breaker, and that calls from before do
// not count.
func TestBreakerReset(t *testing.T) {
	c := newClockedBreaker(t)
	late := c.allow()
	c.open()
	c.b.Reset()
	c.state(Closed, 0)
	late.Failure(c.now)
	c.state(Closed, 0)
	c.allow().Success()
}
