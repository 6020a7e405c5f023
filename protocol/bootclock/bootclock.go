// Package bootclock reads the machine's boot clock: the time since it was
// booted, sleep included. No user or program can set that clock, so deadlines
// that outlive a process are stored as its readings. A reading is valid only
// together with the boot that it belongs to; see [ID].
//
// The package starts no goroutine and keeps no state.
package bootclock

import (
	"bytes"
	"fmt"
	"time"
)

// AtMS returns the reading of the boot clock at t in whole milliseconds, as it stands in
// files. t must have a monotonic reading.
func AtMS(t time.Time) int64 { return (Now() + time.Until(t)).Milliseconds() }

// TimeMS returns the local time at which the boot clock showed, or will show, the reading at,
// in milliseconds. It has Go's monotonic reading, so that a clock that is set later does not
// move it.
func TimeMS(at int64) time.Time { return time.Now().Add(time.Duration(at)*time.Millisecond - Now()) }

// Mark returns the present moment as a file's content; see [Before].
func Mark() []byte { return fmt.Appendf(nil, "%s %d\n", ID(), Now()) }

// InFuture reports whether the moment that mark holds is one of the present boot, and has not come yet:
// then the mark is damaged.
func InFuture(mark []byte) bool {
	before, ok := Before(mark, Now()+1)
	return ok && !before
}

// Before reports whether the moment that mark holds is before the reading at of
// the present boot. A moment of another boot is. If mark is damaged or does not
// say its boot, ok is false.
func Before(mark []byte, at time.Duration) (before, ok bool) {
	boot, rest, _ := bytes.Cut(mark, []byte(" "))
	var marked time.Duration
	if _, err := fmt.Sscanf(string(rest), "%d\n", &marked); err != nil || len(boot) == 0 {
		return false, false
	}
	return string(boot) != ID() || marked < at, true
}
