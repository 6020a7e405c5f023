package consult

import (
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/budget"
	"holdline/daemon/consult/job"
	"holdline/protocol/control"
)

// sumsWithout returns what all consults but self have cost: those whose answers are
// removed, the kept ones, and the live ones as far as their programs have reported it.
// self may be nil.
func (m *Manager) sumsWithout(self *job.Job) *budget.Ledger {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sumsLocked(self, (*job.Job).SoFar)
}

// sumsLocked is [Manager.sumsWithout] with another cost of those that are live. A panel costs
// nothing beside its members. The caller must hold m.mu.
func (m *Manager) sumsLocked(self *job.Job, cost func(*job.Job, time.Time) budget.Cost) *budget.Ledger {
	now := time.Now()
	return m.ledger.With(func(yield func(budget.Cost) bool) {
		for _, k := range m.kept {
			if !yield(k.Cost) {
				return
			}
		}
		for _, j := range m.live {
			if j != self && j.Rec.Members == nil && !yield(cost(j, now)) {
				return
			}
		}
	}, now)
}

// affordLocked returns what a run may cost within the budget b: see [budget.Ledger.Afford].
// What is reserved for jobs other than self counts as spent; self may be nil. The caller must
// hold m.mu.
func (m *Manager) affordLocked(
	b config.Budget, identity, session string, eng engine.Engine, req engine.Request, self *job.Job,
) (float64, error) {
	return m.sumsLocked(self, (*job.Job).Reserved).Afford(b, identity, session, eng, req, time.Now())
}

// afford returns what the run of a new job may cost.
func (m *Manager) afford(
	cfg *config.Config, identity, session string, eng engine.Engine, req engine.Request,
) (float64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.affordLocked(cfg.Identities[identity].Budget, identity, session, eng, req, nil)
}

// reserveLocked gives a new job its place in the budgets of its identity and session: one of
// the day's consults, and the dollars that its run may cost at most. Without a limit of its
// own nothing is reserved, since that would be all that is left. The error is a
// budget_exceeded fault. The caller must hold m.mu, and m.live must not have the job yet.
func (m *Manager) reserveLocked(cfg *config.Config, j *job.Job, eng engine.Engine) error {
	b := cfg.Identities[j.Rec.Identity].Budget
	most, err := m.affordLocked(b, j.Rec.Identity, j.Rec.Session, eng, j.Rec.Request, nil)
	if err == nil && j.Rec.Request.MaxUSD > 0 {
		j.Rec.ReservedUSD = most
	}
	return err
}

// affordQueued returns what the run of a job that was queued may cost. It has its place among
// the day's consults already.
func (m *Manager) affordQueued(cfg *config.Config, j *job.Job, eng engine.Engine, req engine.Request) (float64, error) {
	b := cfg.Identities[j.Rec.Identity].Budget
	b.ConsultsPerDay = 0
	if j.Rec.ReservedUSD > 0 {
		req.MaxUSD = j.Rec.ReservedUSD
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.affordLocked(b, j.Rec.Identity, j.Rec.Session, eng, req, j)
}

// Spendings returns, by name, what the consults of each identity have cost today.
// Identities without a consult today are left out.
func (m *Manager) Spendings() []control.Spending {
	return m.sumsWithout(nil).Spendings(m.config.Load().Identities)
}

// writeLedger writes the ledger of now to disk. Call it after the costs of answers are
// booked, and before the answers are removed. The caller must not hold m.mu.
func (m *Manager) writeLedger() {
	m.ledgerFile.Lock()
	defer m.ledgerFile.Unlock()
	m.mu.Lock()
	ledger := m.ledger.Clone()
	m.mu.Unlock()
	if err := ledger.Write(m.opt.Ledger); err != nil {
		m.opt.Log.Warn("what consults have cost cannot be written down", "err", err)
	}
}

// Window returns the latest window of the subscription that a program has reported; see
// [budget.Window.Now].
func (m *Manager) Window() *engine.Window { return m.window.Now() }
