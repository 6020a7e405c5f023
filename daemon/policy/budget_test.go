package policy

import (
	"sync"
	"sync/atomic"
	"testing"

	"holdline/protocol/fault"
)

// TestBudget checks that calls over the limit are refused and not charged, that the limit
// may change, and that budgets are separate for each session and identity.
func TestBudget(t *testing.T) {
	b := NewBudget(2)
	charge := func(session string, limit int) error { return b.Charge(session, "codex", "files__read", limit) }
	for range 3 {
		if err := charge("s1", 3); err != nil {
			t.Fatal(err)
		}
	}
	r := isFault(t, charge("s1", 3), fault.BudgetExceeded)
	if r.Limit == nil || *r.Limit != (fault.Limit{Name: "calls", Value: 3, Spent: 3}) || r.Retryable {
		t.Errorf("fault %s", r.JSON())
	}
	if n := b.Spent("s1", "codex"); n != 3 {
		t.Errorf("a refused call was charged: %d spent", n)
	}
	if err := charge("s1", 4); err != nil {
		t.Errorf("a raised limit: %v", err)
	}
	if err := charge("s2", 3); err != nil {
		t.Errorf("another session: %v", err)
	}
	isFault(t, charge("s3", 3), fault.ResourceExhausted)
	if err := charge("s3", 0); err != nil {
		t.Errorf("no limit: %v", err)
	}
	if err := b.Charge("s1", "cursor", "files__read", 1); err == nil {
		t.Error("a second identity of an agent was counted beyond the bound")
	}
	b.End("s1")
	if err := charge("s3", 3); err != nil || b.Spent("s1", "codex") != 0 {
		t.Errorf("after the end of a session: %v, %d spent", err, b.Spent("s1", "codex"))
	}
}

// TestBudgetAtOnce checks that concurrent calls do not exceed the budget.
func TestBudgetAtOnce(t *testing.T) {
	b := NewBudget(1)
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if b.Charge("s", "i", "t", 37) == nil {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if passed.Load() != 37 {
		t.Errorf("%d calls passed, want 37", passed.Load())
	}
}
