package upstream

import (
	"context"
	"errors"
	"time"
)

// maxStart bounds the time of a start, as a multiple of StartTimeout, whatever the
// process writes.
const maxStart = 5

// ErrSlow is the cause of the end of a start that takes too long.
var ErrSlow = errors.New("it was too slow")

// A StartClock bounds the time of a start. Output to stderr restarts it, up to
// maxStart times its patience in all.
type StartClock struct {
	patience time.Duration
	last     time.Time
	timer    *time.Timer
}

// NewStartClock returns a context that ends with the cause [errSlow] when the start
// takes too long, and its clock. The caller must call the returned function.
func NewStartClock(ctx context.Context, patience time.Duration) (context.Context, *StartClock, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &StartClock{patience: patience, last: time.Now().Add(maxStart * patience)}
	c.timer = time.AfterFunc(patience, func() { cancel(ErrSlow) })
	return ctx, c, func() {
		c.timer.Stop()
		cancel(nil)
	}
}

// progress restarts the clock.
func (c *StartClock) progress() { c.timer.Reset(min(c.patience, time.Until(c.last))) }
