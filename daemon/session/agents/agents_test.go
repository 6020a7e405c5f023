package agents

import "testing"

// TestAgent checks that the sessions of one client process share the limit of calls, and
// that the end of the last session removes the agent's key.
func TestAgent(t *testing.T) {
	table := New()
	table.SetLimit(2)
	first, second, other := table.Join("a", 0), table.Join("a", 0), table.Join("b", 0)
	if first != second || first == other {
		t.Fatal("sessions are not joined by their keys")
	}
	for range 2 {
		if _, ok := first.BeginCall(); !ok {
			t.Fatal("a call below the limit is refused")
		}
	}
	if limit, ok := second.BeginCall(); ok || limit != 2 {
		t.Errorf("a third call: %v with a limit of %d, want false with 2", ok, limit)
	}
	if _, ok := other.BeginCall(); !ok {
		t.Error("the call of another agent is refused")
	}
	first.EndCall()
	if _, ok := second.BeginCall(); !ok {
		t.Error("a call is refused although another one has ended")
	}
	if key := first.Part(); key != "" {
		t.Errorf("the end of one of two sessions returned %q", key)
	}
	if key := second.Part(); key != "a" {
		t.Errorf("the end of the last session returned %q, want a", key)
	}
	if table.Join("a", 0) == first {
		t.Error("an agent without sessions is still in the table")
	}
	guest, same := table.Join("socket box", 1), table.Join("socket box", 1)
	guest.BeginCall()
	if limit, ok := same.BeginCall(); ok || limit != 1 {
		t.Errorf("a second call of an agent with a limit of 1: %v with a limit of %d", ok, limit)
	}
}
