package hosted

import (
	"context"
	"errors"
	"time"

	"holdline/protocol/fault"
)

// maxStart is how many times its StartTimeout a process may take to come up,
// whatever it writes meanwhile.
const maxStart = 5

// errSlow is the cause of the end of a start that takes too long.
var errSlow = errors.New("it was too slow")

// startClock bounds the time that a process has to come up. Each sign of
// progress gives it that time anew, up to an end.
type startClock struct {
	patience time.Duration
	last     time.Time
	timer    *time.Timer
}

// newStartClock returns a clock and a context that ends, with the cause
// [errSlow], when the time of the start is over.
func newStartClock(ctx context.Context, patience time.Duration) (context.Context, *startClock, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &startClock{patience: patience, last: time.Now().Add(maxStart * patience)}
	c.timer = time.AfterFunc(patience, func() { cancel(errSlow) })
	return ctx, c, func() {
		c.timer.Stop()
		cancel(nil)
	}
}

// progress begins the time of the start anew.
func (c *startClock) progress() { c.timer.Reset(min(c.patience, time.Until(c.last))) }

// slowFault is why a process was ended that had not come up in time.
func (u *upstream) slowFault(took time.Duration) *fault.Record {
	u.m.mu.Lock()
	death, again := u.death, "It is started again by itself. "
	if u.inst.use == onTrial {
		again = ""
	}
	u.m.mu.Unlock()
	f := fault.New(fault.Timeout, fault.Server, operation(u.name()),
		"server %s was ended by Holdline: it had not come up after %v. %s"+
			"If it needs more time, set start_timeout in its \"holdline\" object", u.name(), took.Round(time.Second), again)
	f.Fault.Generation = u.generation
	if death != nil {
		f.Cause = death.Cause
		if words := lastWords(death.Cause); words != "" {
			f.Fault.Detail += "; the last that it wrote" + words
		}
	}
	return f
}
