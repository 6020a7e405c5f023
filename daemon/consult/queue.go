package consult

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"holdline/protocol/fault"
)

// Limits of the jobs that wait for a slot.
const (
	maxWaiting     = 256 // of all identities
	maxWaitingEach = 64  // of one identity
)

// A queue says which job runs next: one of the identity that has the fewest running, and among these
// of the one that was served longest ago. The mutex of the manager guards it, and the jobs in it.
type queue struct {
	waiting []*Job
	running map[string]int   // by identity
	served  map[string]int64 // when an identity's last job began, by count
	count   int64            // jobs that have begun
	total   int              // jobs that run
}

// room returns a fault if so many more jobs of an identity are too many.
func (q *queue) room(identity string, more int) error {
	mine := 0
	for _, j := range q.waiting {
		if j.Rec.Identity == identity {
			mine++
		}
	}
	if len(q.waiting)+more <= maxWaiting && mine+more <= maxWaitingEach {
		return nil
	}
	f := fault.New(fault.ResourceExhausted, fault.Host, operation,
		"%d consults wait already, %d of them for %s: wait for one of them", len(q.waiting), mine, identity)
	if mine+more > maxWaitingEach {
		f = f.WithLimit("consults waiting", maxWaitingEach, mine)
	}
	return f
}

// add makes a job wait for a slot: call start after that.
func (q *queue) add(j *Job) {
	j.queued = true
	q.waiting = append(q.waiting, j)
}

// start starts jobs until limit run, and tells the others their places.
func (q *queue) start(limit int) {
	for len(q.waiting) > 0 && q.total < limit {
		j := q.takeNext()
		j.note = "starting"
		close(j.slot)
	}
	later := *q
	later.waiting = slices.Clone(q.waiting)
	later.running, later.served = maps.Clone(q.running), maps.Clone(q.served)
	for i := range q.waiting {
		later.takeNext().note = fmt.Sprintf("queued, position %d of %d", i+1, len(q.waiting))
	}
}

// takeNext removes the job that runs next, and counts it as running.
func (q *queue) takeNext() *Job {
	best := 0
	for i, j := range q.waiting {
		a, b := j.Rec.Identity, q.waiting[best].Rec.Identity
		if cmp.Or(cmp.Compare(q.running[a], q.running[b]), cmp.Compare(q.served[a], q.served[b])) < 0 {
			best = i
		}
	}
	j := q.waiting[best]
	q.waiting = slices.Delete(q.waiting, best, best+1)
	q.occupy(j)
	return j
}

// occupy counts a job as running that has not waited, or not here.
func (q *queue) occupy(j *Job) {
	q.count++
	q.total++
	q.running[j.Rec.Identity]++
	q.served[j.Rec.Identity] = q.count
}

// remove takes out a job that waits, and reports whether it did.
func (q *queue) remove(j *Job) (waited bool) {
	i := slices.Index(q.waiting, j)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.forget(j.Rec.Identity)
	return true
}

// release gives the slot of a job back.
func (q *queue) release(j *Job) {
	q.total--
	q.running[j.Rec.Identity]--
	q.forget(j.Rec.Identity)
}

// forget forgets an identity that has no job.
func (q *queue) forget(identity string) {
	if q.running[identity] > 0 {
		return
	}
	delete(q.running, identity)
	if !slices.ContainsFunc(q.waiting, func(j *Job) bool { return j.Rec.Identity == identity }) {
		delete(q.served, identity)
	}
}
