package consult

import (
	"cmp"
	"maps"
	"slices"

	"holdline/protocol/fault"
)

// queue decides which job runs next. The manager's mutex guards it.
//
// It is fair between identities. Next is the identity with the fewest running jobs;
// among equals, the one whose last start was longest ago; within an identity, the job
// that came first. An agent that asks for fifty opinions thus delays another agent's
// first job by one job at most.
type queue struct {
	waiting []*job
	running map[string]int   // by identity
	served  map[string]int64 // when an identity's last job began, by count
	count   int64
	total   int // running
}

// room returns nil if another job of the identity can be queued, else a
// resource_exhausted fault.
func (q *queue) room(identity string) error {
	mine := 0
	for _, j := range q.waiting {
		if j.rec.Identity == identity {
			mine++
		}
	}
	if len(q.waiting) < maxQueued && mine < maxQueuedEach {
		return nil
	}
	f := fault.New(fault.ResourceExhausted, fault.Host, operation,
		"%d consults wait already, %d of them for %s: wait for one of them", len(q.waiting), mine, identity)
	if mine >= maxQueuedEach {
		f = f.WithLimit("consults waiting", maxQueuedEach, mine)
	}
	return f
}

// order returns the waiting jobs in the order in which they would start if slots came
// free one by one. It changes nothing; users see the result as positions.
func (q *queue) order() []*job {
	running, served, count := maps.Clone(q.running), maps.Clone(q.served), q.count
	left := slices.Clone(q.waiting)
	order := make([]*job, 0, len(left))
	for len(left) > 0 {
		i := pick(left, running, served)
		j := left[i]
		left = slices.Delete(left, i, i+1)
		order = append(order, j)
		count++
		running[j.rec.Identity]++
		served[j.rec.Identity] = count
	}
	return order
}

// pick returns the index of the waiting job that is next. There must be one.
func pick(waiting []*job, running map[string]int, served map[string]int64) int {
	best := 0
	for i, j := range waiting {
		b := waiting[best].rec.Identity
		if c := cmp.Or(cmp.Compare(running[j.rec.Identity], running[b]),
			cmp.Compare(served[j.rec.Identity], served[b])); c < 0 {
			best = i
		}
	}
	return best
}

// start gives slots to waiting jobs until limit jobs run. It wakes them by closing
// their slot channels, and tells the others their new positions.
func (q *queue) start(limit int) {
	for len(q.waiting) > 0 && q.total < limit {
		i := pick(q.waiting, q.running, q.served)
		j := q.waiting[i]
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.occupy(j)
		j.setNote("starting")
		close(j.slot)
	}
	// Each start changes the positions of those that still wait.
	for i, j := range q.order() {
		j.setNote("queued, position %d of %d", i+1, len(q.waiting))
	}
}

// occupy counts a job as running, whatever the limit. Each call needs one of
// [queue.release].
func (q *queue) occupy(j *job) {
	q.count++
	q.total++
	q.running[j.rec.Identity]++
	q.served[j.rec.Identity] = q.count
}

// remove removes a job that waits. It returns false if the job has a slot already; then
// the caller must not finish the job as one that never began.
func (q *queue) remove(j *job) bool {
	i := slices.Index(q.waiting, j)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.forget(j.rec.Identity)
	return true
}

// release gives the slot of a job back. The caller then calls [queue.start].
func (q *queue) release(j *job) {
	q.total--
	q.running[j.rec.Identity]--
	q.forget(j.rec.Identity)
}

// forget drops the counts of an identity that has no job left. Without that the maps
// would grow with each name that a client invents.
func (q *queue) forget(identity string) {
	if q.running[identity] > 0 {
		return
	}
	delete(q.running, identity)
	if !slices.ContainsFunc(q.waiting, func(j *job) bool { return j.rec.Identity == identity }) {
		delete(q.served, identity)
	}
}
