// Package progress waits for a consult on behalf of a caller, and reports meanwhile what the
// consult does.
package progress

import (
	"context"
	"time"

	"holdline/daemon/plural"
	"holdline/daemon/tool"
)

// Forever is a wait without a limit: it ends only with its context or with its consult.
const Forever time.Duration = -1

// Times of the reports.
const (
	every     = time.Second      // at most
	heartbeat = 15 * time.Second // at least
)

// A Report gets the time since the consult was asked for, and what the consult does.
type Report func(elapsed time.Duration, note string)

// Await blocks until done is closed, wait is over or ctx is done. It returns true if done is
// closed, false and no error when the wait is over, and otherwise the cause of ctx. A negative
// wait has no limit.
//
// It calls report, unless that is nil, with what note returns: at once, then when that has
// changed, but at most once a second, and at least every 15 s. The consult was asked for at
// created.
func Await(
	ctx context.Context, done <-chan struct{}, wait time.Duration, created time.Time, note func() string, report Report,
) (ended bool, err error) {
	var limit <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		limit = t.C
	}
	var tick <-chan time.Time
	var told string
	var last time.Time
	tell := func() {
		now := note()
		if now == told && time.Since(last) < heartbeat {
			return
		}
		told, last = now, time.Now()
		report(time.Since(created), now)
	}
	if report != nil {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
		tell()
	}
	for {
		select {
		case <-done:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-limit:
			// If both are ready, the end of the consult counts: select may have picked the limit.
			select {
			case <-done:
				return true, nil
			default:
			}
			return false, nil
		case <-tick:
			tell()
		}
	}
}

// OfCall returns a function that sends the progress of a call, or nil if the client
// asked for none. The progress value is the number of milliseconds since the consult was
// asked for. MCP wants it to increase with each report, so a report in the same
// millisecond adds one.
func OfCall(c *tool.Call) Report {
	if c.Progress == nil {
		return nil
	}
	last := -1.0
	return func(elapsed time.Duration, note string) {
		last = max(last+1, float64(elapsed.Milliseconds()))
		c.Progress(last, 0, note+", "+plural.Seconds(elapsed))
	}
}

// Lines returns a function that writes each report as one line of text, or nil for nil.
func Lines(write func(string)) Report {
	if write == nil {
		return nil
	}
	return func(elapsed time.Duration, note string) { write(note + ", " + plural.Seconds(elapsed)) }
}
