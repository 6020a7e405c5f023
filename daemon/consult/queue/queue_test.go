package queue

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"holdline/protocol/fault"
)

// fakeJob is a job that records what the queue says to it.
type fakeJob struct {
	identity string
	started  *[]string // identities, in the order of their starts
	position string    // "1 of 5"; "" once it has started
}

func (j *fakeJob) Identity() string { return j.identity }

func (j *fakeJob) Start() { *j.started, j.position = append(*j.started, j.identity), "" }

func (j *fakeJob) SetPosition(position, of int) { j.position = fmt.Sprintf("%d of %d", position, of) }

// TestFair checks that identities get slots in turn, that each job knows its position,
// and that nothing is left once all jobs have ended.
func TestFair(t *testing.T) {
	var started []string
	q := New[*fakeJob]()
	var jobs []*fakeJob
	add := func(identity string) *fakeJob {
		j := &fakeJob{identity: identity, started: &started}
		jobs = append(jobs, j)
		q.Add(j)
		q.Start(2)
		return j
	}
	for range 6 {
		add("greedy")
	}
	if running, waiting := q.Counts(); running != 2 || waiting != 4 {
		t.Errorf("running %d, waiting %d", running, waiting)
	}
	modest := add("modest")
	if modest.position != "1 of 5" || jobs[2].position != "2 of 5" || jobs[5].position != "5 of 5" {
		t.Errorf("positions %q, %q, %q", modest.position, jobs[2].position, jobs[5].position)
	}
	for _, j := range jobs {
		q.Release(j)
		q.Start(2)
	}
	if want := []string{"greedy", "greedy", "modest", "greedy", "greedy", "greedy", "greedy"}; !slices.Equal(started,
		want) {
		t.Errorf("started %q, want %q", started, want)
	}
	if len(q.running)+len(q.served)+q.total != 0 {
		t.Errorf("left in the queue: %+v", q)
	}
}

// TestLongestAgo checks that, of identities with as many running jobs, the one comes first
// whose last start was longest ago.
func TestLongestAgo(t *testing.T) {
	var started []string
	q := New[*fakeJob]()
	for _, identity := range []string{"a", "b", "b", "a"} {
		q.Add(&fakeJob{identity: identity, started: &started})
	}
	q.Start(4)
	if want := []string{"a", "b", "a", "b"}; !slices.Equal(started, want) {
		t.Errorf("started %q, want %q", started, want)
	}
}

// TestRoom checks that a full queue refuses another job. It counts as the caller's own
// limit if the caller has reached its part.
func TestRoom(t *testing.T) {
	q := New[*fakeJob]()
	fill := func(identity string, n int) {
		for range n {
			q.Add(&fakeJob{identity: identity})
		}
	}
	refused := func(identity string, own bool) {
		t.Helper()
		f, ok := errors.AsType[*fault.Record](q.Room(identity, 1))
		if !ok || f.Fault.Code != fault.ResourceExhausted || f.IsOwn() != own {
			t.Errorf("%s: %+v", identity, f)
		}
	}
	fill("a", MaxWaitingEach-1)
	if err := q.Room("a", 1); err != nil {
		t.Error(err)
	}
	fill("a", 1)
	refused("a", true)
	if err := q.Room("b", 1); err != nil {
		t.Error(err)
	}
	for n := range MaxWaiting/MaxWaitingEach - 1 {
		fill(fmt.Sprint(n), MaxWaitingEach)
	}
	refused("b", false)
}

// TestRemove checks that only a job that waits can be removed.
func TestRemove(t *testing.T) {
	var started []string
	q := New[*fakeJob]()
	one, two := &fakeJob{identity: "a", started: &started}, &fakeJob{identity: "b", started: &started}
	q.Add(one)
	q.Add(two)
	q.Start(1)
	if q.Remove(one) {
		t.Error("removed a job that has its slot")
	}
	if !q.Remove(two) || q.Remove(two) {
		t.Error("the job that waits is removed once")
	}
	if _, waiting := q.Counts(); waiting != 0 || len(q.served) != 1 {
		t.Errorf("left: %+v", q)
	}
}
