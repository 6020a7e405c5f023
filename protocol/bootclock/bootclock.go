// Package bootclock reads the machine's boot clock: the time since it was
// booted, sleep included. No user or program can set that clock, so deadlines
// that outlive a process are stored as its readings. A reading is valid only
// together with the boot that it belongs to; see [ID].
//
// The package starts no goroutine and keeps no state.
package bootclock

import (
	"fmt"
	"strings"
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
	boot, marked, ok := parse(mark)
	return ok && (boot != ID() || marked < at), ok
}

// Marked returns the local time of the moment that mark holds, if that is one of the present boot. If mark is
// damaged or does not say its boot, ok is false.
func Marked(mark []byte) (at time.Time, present, ok bool) {
	boot, marked, ok := parse(mark)
	if !ok || boot != ID() {
		return time.Time{}, false, ok
	}
	return TimeMS(marked.Milliseconds()), true, true
}

// parse returns what [Mark] has written.
func parse(mark []byte) (boot string, at time.Duration, ok bool) {
	boot, rest, _ := strings.Cut(string(mark), " ")
	_, err := fmt.Sscanf(rest, "%d\n", &at)
	return boot, at, err == nil && boot != ""
}
