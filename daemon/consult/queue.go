package consult

import (
	"cmp"
	"maps"
	"slices"

	"holdline/protocol/fault"
)

// queue decides which job runs next. It is guarded by the manager's mutex.
//
// It is fair between identities: the one with the fewest jobs running is
// next, among equals the one that has waited longest since its last start;
// within an identity, the job that came first. One agent that asks for fifty opinions
// delays another's first by one job at most.
type queue struct {
	waiting []*job
	running map[string]int   // by identity
	served  map[string]int64 // when an identity's last job began, by count
	count   int64
	total   int // running
}

// room returns nil if a job of identity can be queued, else a fault.
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

// order returns the waiting jobs in the order in which they would begin if one
// slot at a time came free.
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

// pick returns the index of the job that is next.
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

// start lets jobs begin while there is room for limit at once.
func (q *queue) start(limit int) {
	for len(q.waiting) > 0 && q.total < limit {
		i := pick(q.waiting, q.running, q.served)
		j := q.waiting[i]
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.occupy(j)
		j.setNote("starting")
		close(j.slot)
	}
	for i, j := range q.order() {
		j.setNote("queued, position %d of %d", i+1, len(q.waiting))
	}
}

// occupy takes a slot for a job that runs already, whatever the limit.
func (q *queue) occupy(j *job) {
	q.count++
	q.total++
	q.running[j.rec.Identity]++
	q.served[j.rec.Identity] = q.count
}

// remove removes a waiting job, and reports false if it has begun.
func (q *queue) remove(j *job) bool {
	i := slices.Index(q.waiting, j)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.forget(j.rec.Identity)
	return true
}

// release gives the slot of a job back.
func (q *queue) release(j *job) {
	q.total--
	q.running[j.rec.Identity]--
	q.forget(j.rec.Identity)
}

// forget drops what is kept of an identity that has no job left, so that the
// maps do not grow with every name that was ever heard.
func (q *queue) forget(identity string) {
	if q.running[identity] > 0 {
		return
	}
	delete(q.running, identity)
	if !slices.ContainsFunc(q.waiting, func(j *job) bool { return j.rec.Identity == identity }) {
		delete(q.served, identity)
	}
}
