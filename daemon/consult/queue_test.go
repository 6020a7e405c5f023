package consult

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"holdline/daemon/consult/jobdir"
	"holdline/protocol/fault"
)

// testQueue is a queue with its jobs, and the identities of those that have started.
type testQueue struct {
	queue
	jobs    []*Job
	started []string
}

// run starts jobs until two run, and notes which have started.
func (q *testQueue) run() {
	q.start(2)
	for _, j := range q.jobs {
		if j.note == "starting" {
			j.note = ""
			q.started = append(q.started, j.Rec.Identity)
		}
	}
}

func newTestQueue() *testQueue {
	return &testQueue{queue: queue{running: map[string]int{}, served: map[string]int64{}}}
}

// put adds a job of an identity.
func (q *testQueue) put(identity string) *Job {
	j := &Job{Rec: jobdir.Record{Identity: identity}, slot: make(chan struct{})}
	q.jobs = append(q.jobs, j)
	q.add(j)
	return j
}

// TestFair checks that identities get slots in turn, that each job knows its position,
// and that nothing is left once all jobs have ended.
func TestFair(t *testing.T) {
	q := newTestQueue()
	add := func(identity string) *Job {
		j := q.put(identity)
		q.run()
		return j
	}
	for range 6 {
		add("greedy")
	}
	if q.total != 2 || len(q.waiting) != 4 {
		t.Errorf("running %d, waiting %d", q.total, len(q.waiting))
	}
	modest := add("modest")
	if a, b, c := modest.note, q.jobs[2].note, q.jobs[5].note; a != "queued, position 1 of 5" ||
		b != "queued, position 2 of 5" || c != "queued, position 5 of 5" {
		t.Errorf("positions %q, %q, %q", a, b, c)
	}
	for _, j := range q.jobs {
		q.release(j)
		q.run()
	}
	if want := []string{"greedy", "greedy", "modest", "greedy", "greedy", "greedy", "greedy"}; !slices.Equal(q.started,
		want) {
		t.Errorf("started %q, want %q", q.started, want)
	}
	if len(q.running)+len(q.served)+q.total != 0 {
		t.Errorf("left in the queue: %+v", q)
	}
}

// TestLongestAgo checks that, of identities with as many running jobs, the one comes first
// whose last start was longest ago.
func TestLongestAgo(t *testing.T) {
	q := newTestQueue()
	for _, identity := range []string{"a", "b", "b", "a"} {
		q.put(identity)
	}
	var started []string
	for len(q.waiting) > 0 {
		started = append(started, q.takeNext().Rec.Identity)
	}
	if want := []string{"a", "b", "a", "b"}; !slices.Equal(started, want) {
		t.Errorf("started %q, want %q", started, want)
	}
}

// TestRoom checks that a full queue refuses another job. It counts as the caller's own
// limit if the caller has reached its part.
func TestRoom(t *testing.T) {
	q := newTestQueue()
	fill := func(identity string, n int) {
		for range n {
			q.put(identity)
		}
	}
	refused := func(identity string, own bool) {
		t.Helper()
		f, ok := errors.AsType[*fault.Record](q.room(identity, 1))
		if !ok || f.Fault.Code != fault.ResourceExhausted || f.IsOwn() != own {
			t.Errorf("%s: %+v", identity, f)
		}
	}
	fill("a", maxWaitingEach-1)
	if err := q.room("a", 1); err != nil {
		t.Error(err)
	}
	fill("a", 1)
	refused("a", true)
	if err := q.room("b", 1); err != nil {
		t.Error(err)
	}
	for n := range maxWaiting/maxWaitingEach - 1 {
		fill(fmt.Sprint(n), maxWaitingEach)
	}
	refused("b", false)
}

// TestQueue_Remove checks that only a job that waits can be removed.
func TestQueue_Remove(t *testing.T) {
	q := newTestQueue()
	one, two := q.put("a"), q.put("b")
	q.start(1)
	if q.remove(one) {
		t.Error("removed a job that has its slot")
	}
	if !q.remove(two) || q.remove(two) {
		t.Error("the job that waits is removed once")
	}
	if len(q.waiting) != 0 || len(q.served) != 1 {
		t.Errorf("left: %+v", q)
	}
}
