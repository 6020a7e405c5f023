// Package queue decides which consult runs next.
package queue

import (
	"cmp"
	"maps"
	"slices"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
)

// Bounds of the jobs that wait.
const (
	MaxWaiting     = 256 // of all identities
	MaxWaitingEach = 64  // of one identity
)

// A Job waits in a [Queue]. The queue calls it with the lock held that guards the queue.
type Job interface {
	comparable
	// Identity returns whose job it is.
	Identity() string
	// Start gives the job its slot, once.
	Start()
	// SetPosition says that the job waits at a position, from 1 on, of so many.
	SetPosition(position, of int)
}

// Queue holds jobs that wait, and counts those that run. It has no lock of its own: its
// owner guards it.
//
// It is fair between identities. Next is the identity with the fewest running jobs;
// among equals, the one whose last start was longest ago; within an identity, the job
// that came first. An agent that asks for fifty opinions thus delays another agent's
// first job by one job at most.
type Queue[J Job] struct {
	waiting []J
	running map[string]int   // by identity
	served  map[string]int64 // when an identity's last job began, by count
	count   int64            // jobs that have begun
	total   int              // jobs that run
}

// New returns an empty queue.
func New[J Job]() *Queue[J] {
	return &Queue[J]{running: map[string]int{}, served: map[string]int64{}}
}

// Counts returns how many jobs run and how many wait.
func (q *Queue[J]) Counts() (running, waiting int) { return q.total, len(q.waiting) }

// Room returns nil if so many more jobs of the identity can be queued, else a
// resource_exhausted fault.
func (q *Queue[J]) Room(identity string, more int) error {
	mine := 0
	for _, j := range q.waiting {
		if j.Identity() == identity {
			mine++
		}
	}
	if len(q.waiting)+more <= MaxWaiting && mine+more <= MaxWaitingEach {
		return nil
	}
	f := fault.New(fault.ResourceExhausted, fault.Host, engine.Operation,
		"%d consults wait already, %d of them for %s: wait for one of them", len(q.waiting), mine, identity)
	if mine+more > MaxWaitingEach {
		f = f.WithLimit("consults waiting", MaxWaitingEach, mine)
	}
	return f
}

// Add puts a job at the end, whatever the bounds say. The caller then calls
// [Queue.Start].
func (q *Queue[J]) Add(j J) { q.waiting = append(q.waiting, j) }

// Start gives slots to waiting jobs until limit jobs run, and tells the others their new
// positions.
func (q *Queue[J]) Start(limit int) {
	for len(q.waiting) > 0 && q.total < limit {
		q.takeNext().Start()
	}
	// Each start changes the positions of those that still wait. The order is the one in
	// which they would start if slots came free one by one.
	later := *q
	later.waiting = slices.Clone(q.waiting)
	later.running, later.served = maps.Clone(q.running), maps.Clone(q.served)
	for i := range q.waiting {
		later.takeNext().SetPosition(i+1, len(q.waiting))
	}
}

// takeNext removes the job that is next from those that wait, and counts it as running. There
// must be one.
func (q *Queue[J]) takeNext() J {
	best := 0
	for i, j := range q.waiting {
		a, b := j.Identity(), q.waiting[best].Identity()
		if cmp.Or(cmp.Compare(q.running[a], q.running[b]), cmp.Compare(q.served[a], q.served[b])) < 0 {
			best = i
		}
	}
	j := q.waiting[best]
	q.waiting = slices.Delete(q.waiting, best, best+1)
	q.Occupy(j)
	return j
}

// Occupy counts a job as running, whatever the limit. Each call needs one of
// [Queue.Release].
func (q *Queue[J]) Occupy(j J) {
	q.count++
	q.total++
	q.running[j.Identity()]++
	q.served[j.Identity()] = q.count
}

// Remove removes a job that waits. It returns false if the job has a slot already; then
// the caller must not finish the job as one that never began.
func (q *Queue[J]) Remove(j J) bool {
	i := slices.Index(q.waiting, j)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.forgetIdentity(j.Identity())
	return true
}

// Release gives the slot of a job back. The caller then calls [Queue.Start].
func (q *Queue[J]) Release(j J) {
	q.total--
	q.running[j.Identity()]--
	q.forgetIdentity(j.Identity())
}

// forgetIdentity drops the counts of an identity that has no job left. Without that the maps
// would grow with each name that a client invents.
func (q *Queue[J]) forgetIdentity(identity string) {
	if q.running[identity] > 0 {
		return
	}
	delete(q.running, identity)
	if !slices.ContainsFunc(q.waiting, func(j J) bool { return j.Identity() == identity }) {
		delete(q.served, identity)
	}
}
