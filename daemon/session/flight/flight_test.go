package flight

import (
	"testing"

	"holdline/daemon/session/agents"
	"holdline/protocol/jsonrpc"
)

// TestPhases checks that the moves of a flight are those of the table in the comment of
// [Phase], and that exactly the flights that are Running count as calls of the agent.
func TestPhases(t *testing.T) {
	may := map[Phase][]Phase{
		Running: {Answering, Cancelled, Finished}, Answering: {Cancelled, Finished}, Cancelled: nil, Finished: nil,
	}
	for from, allowed := range may {
		for _, to := range []Phase{Answering, Cancelled, Finished} {
			agent := agentOf(1)
			table, f := NewTable(agent), &Flight{}
			if _, ok := table.Enter(jsonrpc.ID("1"), f); !ok {
				t.Fatal("the first flight is refused")
			}
			if from != Running {
				table.Move(f, from)
			}
			want := false
			for _, a := range allowed {
				want = want || a == to
			}
			if got := table.Move(f, to); got != want {
				t.Errorf("from %d to %d: %t, want %t", from, to, got, want)
			}
			if _, ok := agent.BeginCall(); !ok {
				t.Errorf("from %d to %d: the flight still counts", from, to)
			}
			if gone := table.Find(jsonrpc.ID("1")) == nil; gone != (f.At() > Answering) {
				t.Errorf("from %d to %d: gone from the table is %t", from, to, gone)
			}
		}
	}
}

// TestIDUsedAgain checks that the end of a flight leaves the later request of the same id in
// the table.
func TestIDUsedAgain(t *testing.T) {
	table := NewTable(agentOf(2))
	first, second := &Flight{N: 1}, &Flight{N: 2}
	table.Enter(jsonrpc.ID("7"), first)
	table.Move(first, Answering)
	table.Enter(jsonrpc.ID("7"), second)
	table.Move(first, Finished)
	if got := table.Find(jsonrpc.ID("7")); got != second {
		t.Errorf("got %+v, want the second request", got)
	}
}

// TestLimit checks that a client has no more requests in flight than it may have, that its
// subscriptions count against the limit, and that they are not shown as calls.
func TestLimit(t *testing.T) {
	table := NewTable(agentOf(2))
	table.Enter(jsonrpc.ID("1"), &Flight{Subscription: true})
	table.Enter(jsonrpc.ID("2"), &Flight{})
	if limit, ok := table.Enter(jsonrpc.ID("3"), &Flight{}); ok || limit != 2 || table.Find(jsonrpc.ID("3")) != nil {
		t.Errorf("the third of two: %t, limit %d, or it is in the table", ok, limit)
	}
	if got := table.Calls(); got != 1 {
		t.Errorf("%d calls, want 1", got)
	}
}

// agentOf returns an agent that may have so many calls in flight.
func agentOf(limit int) *agents.Agent {
	table := agents.New()
	table.SetLimit(limit)
	return table.Join("agent", 0)
}
