package budget

import (
	"math"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Afford returns what a run may cost in US dollars: what it asks for, or what is left of
// the budgets of its identity and session if that is less. 0 means no limit. l has what
// the other consults have cost by now. The error is a budget_exceeded fault.
//
// An engine that cannot hold a limit on its cost is held to the number of consults
// alone. Runs without a limit of their own that go on at the same time do not know what each
// other will cost, so together they may exceed a budget by what one run may cost each.
func (l *Ledger) Afford(
	b config.Budget, identity, session string, eng engine.Engine, req engine.Request, now time.Time,
) (float64, error) {
	today, inSession := l.Identities[identity], l.Sessions[session]
	tomorrow := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, now.Location())
	switch {
	case l.IsLost(now) && (b.ConsultsPerDay > 0 || b.MaxUSDPerDay > 0 || b.MaxUSDPerSession > 0):
		return 0, overspent(tomorrow.Sub(now), "consults a day", 0, 0,
			"what the consults of %s have cost is lost, since the file spent.json of the state directory was damaged; so "+
				"its budgets count as used up until midnight. To begin anew now, remove that file (holdline doctor "+
				"names it)", identity)
	case b.ConsultsPerDay > 0 && today.Consults >= b.ConsultsPerDay:
		return 0, overspent(tomorrow.Sub(now), "consults a day", b.ConsultsPerDay, today.Consults,
			"%s has asked for %d consults today and may ask for %d; identities.%s.budget.consults_per_day sets the "+
				"limit",
			identity, today.Consults, b.ConsultsPerDay, identity)
	case b.MaxUSDPerDay > 0 && today.USD >= b.MaxUSDPerDay:
		return 0, overspent(tomorrow.Sub(now), "US cents a day", cents(b.MaxUSDPerDay), cents(today.USD),
			"the consults of %s have cost $%.2f today and may cost $%.2f; identities.%s.budget.max_usd_per_day sets "+
				"the limit",
			identity, today.USD, b.MaxUSDPerDay, identity)
	case b.MaxUSDPerSession > 0 && inSession.USD >= b.MaxUSDPerSession:
		return 0, overspent(0, "US cents a session", cents(b.MaxUSDPerSession), cents(inSession.USD),
			"the consults of this session have cost $%.2f and may cost $%.2f; "+
				"identities.%s.budget.max_usd_per_session sets the limit",
			inSession.USD, b.MaxUSDPerSession, identity)
	}
	capped := req
	least := func(limit, spent float64) {
		if left := limit - spent; limit > 0 && (capped.MaxUSD == 0 || left < capped.MaxUSD) {
			capped.MaxUSD = left
		}
	}
	least(b.MaxUSDPerDay, today.USD)
	least(b.MaxUSDPerSession, inSession.USD)
	// Not every engine can hold a limit on its cost.
	if eng.Fits(capped) == nil {
		return capped.MaxUSD, nil
	}
	return req.MaxUSD, nil
}

// Left returns what is left in US dollars of the budgets of an identity and a session, and 0 if
// none limits the cost or nothing is left.
func (l *Ledger) Left(b config.Budget, identity, session string) float64 {
	left := math.Inf(1)
	if b.MaxUSDPerDay > 0 {
		left = b.MaxUSDPerDay - l.Identities[identity].USD
	}
	if b.MaxUSDPerSession > 0 {
		left = min(left, b.MaxUSDPerSession-l.Sessions[session].USD)
	}
	if math.IsInf(left, 1) {
		return 0
	}
	return max(left, 0)
}

// cents returns an amount in US cents, rounded.
func cents(usd float64) int { return int(usd*100 + 0.5) }

// overspent returns the budget_exceeded fault of a budget. after is when the budget
// begins anew; 0 means that this is not known.
func overspent(after time.Duration, name string, limit, used int, format string, args ...any) *fault.Record {
	f := fault.New(fault.BudgetExceeded, fault.Host, engine.Operation, format, args...).
		WithReason(fault.Budget).WithLimit(name, limit, used)
	if after > 0 {
		ms := after.Milliseconds()
		f.RetryAfterMS = &ms
	}
	return f
}

// Spendings returns, by name, what each identity has spent today, and its budgets.
// Identities without a consult today are left out.
func (l *Ledger) Spendings(identities map[string]config.Identity) []control.Spending {
	list := []control.Spending{}
	for name, today := range l.Identities {
		b := identities[name].Budget
		list = append(list, control.Spending{
			Identity: name, CostUSD: today.USD, Consults: today.Consults,
			MaxUSD: b.MaxUSDPerDay, MaxConsults: b.ConsultsPerDay,
		})
	}
	slices.SortFunc(list, func(a, b control.Spending) int { return strings.Compare(a.Identity, b.Identity) })
	return list
}
