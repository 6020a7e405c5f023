package consult

import (
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/budget"
	"holdline/protocol/control"
)

// sumsWithout returns what all consults but self have cost: those whose answers are
// removed, the kept ones, and the live ones as far as their programs have reported it.
// self may be nil.
func (m *Manager) sumsWithout(self *job) *budget.Ledger {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.With(func(yield func(budget.Cost) bool) {
		for _, k := range m.kept {
			if !yield(k.cost) {
				return
			}
		}
		for _, j := range m.live {
			if j != self && !yield(j.soFar(now)) {
				return
			}
		}
	}, now)
}

// soFar returns what the job has cost as far as its program has reported it.
func (j *job) soFar(now time.Time) budget.Cost {
	j.mu.Lock()
	defer j.mu.Unlock()
	return budget.Cost{Identity: j.rec.Identity, Session: j.rec.Session, USD: j.cost, Ended: now}
}

// afford returns what a run may cost: see [budget.Ledger.Afford]. self is the job if it
// is live already, else nil.
func (m *Manager) afford(
	cfg *config.Config, identity, session string, eng engine.Engine, req engine.Request, self *job,
) (float64, error) {
	return m.sumsWithout(self).Afford(cfg.Identities[identity].Budget, identity, session, eng, req, time.Now())
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

// keepWindow keeps the latest window of the subscription that a program has reported; nil
// changes nothing.
func (m *Manager) keepWindow(w *engine.Window) {
	if w == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.window = w
}

// Window returns the latest window of the subscription that a program has reported. It
// returns nil if there was none, or if the window has begun anew since.
func (m *Manager) Window() *engine.Window {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.window == nil || m.window.ResetUnixMS > 0 && m.window.ResetUnixMS < time.Now().UnixMilli() {
		return nil
	}
	return m.window
}
