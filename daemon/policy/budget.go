package policy

import (
	"cmp"
	"sync"

	"holdline/protocol/fault"
)

// Budget counts the calls that agents make under each identity. An agent is one client
// process with all its sessions. Budget is safe for concurrent use.
//
// A call is charged once, when it is made. Answers from the cache are charged, too.
// Replays and retries of a call are not.
type Budget struct {
	most  int // purses that are counted at the same time
	mu    sync.Mutex
	spent map[purse]int // guarded by mu
}

// purse identifies one budget.
type purse struct{ agent, identity string }

// NewBudget returns a budget that counts for at most that many purses at the same time.
func NewBudget(most int) *Budget {
	return &Budget{most: most, spent: map[purse]int{}}
}

// Charge takes one call from the budget of an agent, whose identity may make limit
// calls. With limit 0 there is no limit, and Charge counts nothing.
//
// The error is a budget_exceeded fault with the limit and what was spent, or a
// resource_exhausted fault if too many agents are counted already. A call that is
// refused is not charged.
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
			cmp.Or(identity, "a client without a name"), spent, limit, identity).
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

// End forgets what an agent has spent. Call it when the agent's process has ended.
func (b *Budget) End(agent string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.spent {
		if key.agent == agent {
			delete(b.spent, key)
		}
	}
}
