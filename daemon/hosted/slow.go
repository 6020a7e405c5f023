package hosted

import (
	"context"
	"errors"
	"time"

	"holdline/protocol/fault"
)

// maxStart bounds the time of a start, as a multiple of StartTimeout, whatever the
// process writes.
const maxStart = 5

// errSlow is the cause of the end of a start that takes too long.
var errSlow = errors.New("it was too slow")

// A startClock bounds the time of a start. Output to stderr restarts it, up to
// maxStart times its patience in all.
type startClock struct {
	patience time.Duration
	last     time.Time
	timer    *time.Timer
}

// newStartClock returns a context that ends with the cause [errSlow] when the start
// takes too long, and its clock. The caller must call the returned function.
func newStartClock(ctx context.Context, patience time.Duration) (context.Context, *startClock, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &startClock{patience: patience, last: time.Now().Add(maxStart * patience)}
	c.timer = time.AfterFunc(patience, func() { cancel(errSlow) })
	return ctx, c, func() {
		c.timer.Stop()
		cancel(nil)
	}
}

// progress restarts the clock.
func (c *startClock) progress() { c.timer.Reset(min(c.patience, time.Until(c.last))) }

// slowFault returns the fault of a start that was ended after took because it was too
// slow.
func (u *upstream) slowFault(took time.Duration) *fault.Record {
	u.m.mu.Lock()
	death, again := u.death, "It is started again by itself. "
	if u.inst.use == onTrial {
		again = ""
	}
	u.m.mu.Unlock()
	f := fault.New(fault.Timeout, fault.Server, operation(u.name()),
		"server %s was ended by Holdline: it had not come up after %v. %s"+
			"If it needs more time, set start_timeout in its \"holdline\" object",
		u.name(), took.Round(time.Second), again)
	f.Fault.Generation = u.generation
	if death != nil {
		f.Cause = death.Cause
		if words := lastWords(death.Cause); words != "" {
			f.Fault.Detail += "; the last that it wrote" + words
		}
	}
	return f
}
