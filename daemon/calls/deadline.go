package calls

import (
	"time"

	"holdline/protocol/bootclock"
)

// recordShare is the part of a call's timeout, as its inverse, by which progress
// must have moved the deadline before it is recorded again.
const recordShare = 8

// Deadline is when a call is over that had no answer and no progress. It is a
// reading of the boot clock in the call's record, so a crash extends no call that
// hangs, and shortens none that makes progress.
type Deadline struct {
	until     time.Time // zero before the call is dispatched
	recorded  time.Time // what the record says of until
	inherited bool      // an earlier daemon has set it: progress since then may not be on record
}

// Set makes until the deadline of the call, and notes that the call's record holds it. Set does no
// I/O: the caller writes the record. The caller must hold the lock that guards the call (hub.Mu).
func (d *Deadline) Set(until time.Time) { *d = Deadline{until: until, recorded: until} }

// inherit takes the deadline that an earlier daemon wrote into the record r. If r has none, the
// deadline stays the zero time, but IsInherited returns true all the same.
func (d *Deadline) inherit(r *Record) {
	d.inherited = true
	if r.DeadlineBootMS > 0 {
		d.until = bootclock.TimeMS(r.DeadlineBootMS)
		d.recorded = d.until
	}
}

// IsInherited reports whether an earlier daemon has set the deadline, and this daemon has not
// moved it since. The caller must hold the lock that guards the call (hub.Mu).
func (d *Deadline) IsInherited() bool { return d.inherited }

// At returns the deadline. timeout is the longest time without progress that the call may take.
// tellsProgress says whether the client gets progress notifications. If it does, progress may have
// moved an inherited deadline by up to an eighth of timeout without a record, so At returns it
// later by that much. The caller must hold the lock that guards the call (hub.Mu).
func (d *Deadline) At(timeout time.Duration, tellsProgress bool) time.Time {
	if d.inherited && tellsProgress {
		return d.until.Add(timeout / recordShare)
	}
	return d.until
}

// Move makes until the deadline, since the child reported progress. It returns true if until is
// later than the recorded deadline by an eighth of timeout or more. Then it counts until as
// recorded, and the caller must record it by [Journal.MoveDeadline]. Move does no I/O. The caller
// must hold the lock that guards the call (hub.Mu).
func (d *Deadline) Move(until time.Time, timeout time.Duration) (record bool) {
	d.until, d.inherited = until, false
	if record = until.Sub(d.recorded) >= timeout/recordShare; record {
		d.recorded = until
	}
	return record
}
