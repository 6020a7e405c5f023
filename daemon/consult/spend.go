package consult

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/budget"
	"holdline/protocol/control"
)

// sumsLocked returns what all consults have cost but self; reserved counts live ones with what is
// reserved for them.
func (m *Manager) sumsLocked(self *Job, reserved bool) *budget.Ledger {
	now := time.Now()
	return m.ledger.With(func(yield func(budget.Cost) bool) {
		for _, j := range m.jobs {
			if j != self && !j.isPanel() && !yield(j.costLocked(now, reserved)) {
				return
			}
		}
	}, now)
}

// afford returns what a consult may cost at most, or the fault of a budget that is used up.
func (m *Manager) afford(
	cfg *config.Config, identity, session string, eng engine.Engine, req engine.Request,
) (float64, error) {
	m.beginAnew()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sumsLocked(nil, true).Afford(cfg.Identities[identity].Budget, identity, session, eng, req, time.Now())
}

// reserveLocked reserves what a new job may cost, or returns the fault of a budget that is used up.
func (m *Manager) reserveLocked(cfg *config.Config, j *Job, eng engine.Engine) error {
	rec := &j.Rec
	most, err := m.sumsLocked(nil, true).Afford(
		cfg.Identities[rec.Identity].Budget, rec.Identity, rec.Session, eng, rec.Request, time.Now())
	if err == nil && rec.Request.MaxUSD > 0 {
		rec.ReservedUSD = most
	}
	return err
}

// affordQueued returns what a job that leaves the queue may cost: what was reserved for it, or less.
func (m *Manager) affordQueued(cfg *config.Config, j *Job, eng engine.Engine, req engine.Request) (float64, error) {
	b := cfg.Identities[j.Rec.Identity].Budget
	b.ConsultsPerDay = 0 // it was counted when it was asked for
	if j.Rec.ReservedUSD > 0 {
		req.MaxUSD = j.Rec.ReservedUSD
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sumsLocked(j, true).Afford(b, j.Rec.Identity, j.Rec.Session, eng, req, time.Now())
}

// Spendings returns what each identity has spent today, and what it may.
func (m *Manager) Spendings() []control.Spending {
	m.mu.Lock()
	sums := m.sumsLocked(nil, false)
	m.mu.Unlock()
	return sums.Spendings(m.config.Load().Identities)
}

// CostsLost returns the path of the file of costs if it was found damaged today, and the user has not removed it
// since; else "".
func (m *Manager) CostsLost() string {
	m.beginAnew()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ledger.IsLost(time.Now()) {
		return ""
	}
	return m.opt.Ledger
}

// beginAnew lets budgets count again after the file of costs was damaged, if the user has removed that file.
func (m *Manager) beginAnew() {
	m.mu.Lock()
	lost := m.ledger.Lost
	m.mu.Unlock()
	if lost == "" {
		return
	}
	if _, err := os.Lstat(m.opt.Ledger); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.Lost = ""
}

// writeLedger writes what consults have cost whose answers are removed. damaged says that the file which is
// there cannot be believed.
func (m *Manager) writeLedger(damaged bool) {
	if !damaged {
		m.beginAnew()
	}
	m.ledgerFile.Lock()
	defer m.ledgerFile.Unlock()
	m.mu.Lock()
	m.ledger.Writes++
	ledger := m.ledger.Clone()
	m.mu.Unlock()
	if err := ledger.Write(m.opt.Ledger); err != nil {
		m.opt.Log.Warn("what consults have cost cannot be written down", "err", err)
	}
}

// Window returns the latest that is known of the subscription's window; nil if that is nothing.
func (m *Manager) Window() *engine.Window { return m.window.Now() }
