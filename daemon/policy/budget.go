package policy

import (
	"sync"

	"holdline/protocol/fault"
)

// Budget counts the calls that sessions issue. It is safe for concurrent use.
//
// A call is charged once, when it is issued: answers from the cache are
// charged, replays and retries of a call are not.
type Budget struct {
	most  int
	mu    sync.Mutex
	spent map[string]int // by session; guarded by mu
}

// NewBudget counts for at most so many sessions at once.
func NewBudget(sessions int) *Budget {
	return &Budget{most: sessions, spent: map[string]int{}}
}

// Charge takes one call from the budget of a session, whose identity may issue
// limit calls in each; 0 is no limit and counts nothing. The error is a fault:
// budget_exceeded, with limit and spent, or resource_exhausted if too many
// sessions are counted already. A call that is refused is not charged.
func (b *Budget) Charge(session, identity, tool string, limit int) error {
	if limit <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	spent, known := b.spent[session]
	if spent >= limit {
		return fault.New(fault.BudgetExceeded, fault.Host, operation(tool),
			"%s has issued %d of the %d calls that a session of it may issue; a new session begins anew, identities.%s.budget.calls sets the limit",
			who(identity), spent, limit, identity).
			WithLimit("calls", limit, spent)
	}
	if !known && len(b.spent) >= b.most {
		return fault.New(fault.ResourceExhausted, fault.Host, operation(tool), "the calls of %d sessions are being counted, and no more can be; end one", b.most)
	}
	b.spent[session] = spent + 1
	return nil
}

// Spent is how many calls of a session were charged.
func (b *Budget) Spent(session string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent[session]
}

// End forgets a session.
func (b *Budget) End(session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.spent, session)
}
