package policy

import (
	"sync"

	"holdline/protocol/fault"
)

// Budget counts the calls that agents issue, under each identity. An agent is
// one client process with all its sessions. It is safe for concurrent use.
//
// A call is charged once, when it is issued: answers from the cache are
// charged, replays and retries of a call are not.
type Budget struct {
	most  int // purses
	mu    sync.Mutex
	spent map[purse]int // guarded by mu
}

// purse identifies one budget.
type purse struct{ agent, identity string }

// NewBudget returns a budget that counts for at most so many purses at once.
func NewBudget(most int) *Budget {
	return &Budget{most: most, spent: map[purse]int{}}
}

// Charge takes one call from the budget of an agent, whose identity may issue limit calls;
// 0 is no limit, and nothing is counted. The error is a fault of code budget_exceeded,
// with limit and spent, or resource_exhausted if too many agents are counted already. A
// call that is refused is not charged.
func (b *Budget) Charge(agent, identity, tool string, limit int) error {
	if limit <= 0 {
		return nil
	}
	key := purse{agent, identity}
	b.mu.Lock()
	defer b.mu.Unlock()
	spent, known := b.spent[key]
	if spent >= limit {
		return fault.New(fault.BudgetExceeded, fault.Host, operation(tool),
			"%s has issued %d of its %d calls. The count begins anew when the agent is restarted; "+
				"identities.%s.budget.calls sets the limit",
			who(identity), spent, limit, identity).
			WithLimit("calls", limit, spent)
	}
	if !known && len(b.spent) >= b.most {
		return fault.New(fault.ResourceExhausted, fault.Host, operation(tool),
			"the calls of %d agents are being counted, and no more can be; end one", b.most)
	}
	b.spent[key] = spent + 1
	return nil
}

// Spent returns how many calls of an agent were charged under an identity.
func (b *Budget) Spent(agent, identity string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent[purse{agent, identity}]
}

// End forgets what an agent has spent.
func (b *Budget) End(agent string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.spent {
		if key.agent == agent {
			delete(b.spent, key)
		}
	}
}
