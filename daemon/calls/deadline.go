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

// Set gives the call a deadline that its record holds.
func (d *Deadline) Set(until time.Time) { *d = Deadline{until: until, recorded: until} }

// inherit takes the deadline that an earlier daemon has recorded.
func (d *Deadline) inherit(r *Record) {
	d.inherited = true
	if r.DeadlineBootMS > 0 {
		d.until = bootclock.TimeMS(r.DeadlineBootMS)
		d.recorded = d.until
	}
}

// IsInherited reports whether an earlier daemon has set the deadline.
func (d *Deadline) IsInherited() bool { return d.inherited }

// At returns the deadline. timeout is the longest time without progress that the call may
// take. If the client gets progress notifications, progress may have moved an inherited
// deadline without a record: then it is later by the most that goes unrecorded.
func (d *Deadline) At(timeout time.Duration, tellsProgress bool) time.Time {
	if d.inherited && tellsProgress {
		return d.until.Add(timeout / recordShare)
	}
	return d.until
}

// Move sets a later deadline, since the child reported progress, and reports
// whether that is far enough behind the recorded one to be recorded: see
// [Journal.MoveDeadline].
func (d *Deadline) Move(until time.Time, timeout time.Duration) (record bool) {
	d.until, d.inherited = until, false
	if record = until.Sub(d.recorded) >= timeout/recordShare; record {
		d.recorded = until
	}
	return record
}
