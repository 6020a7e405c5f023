package consult

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
)

// maxLedger bounds the identities, and the sessions, of a ledger.
const maxLedger = 4096

// spent is a sum of costs.
type spent struct {
	USD      float64 `json:"usd"`
	Consults int     `json:"consults"`
	Day      string  `json:"day,omitempty"` // of a session: when it was last booked
}

// ledger holds what removed answers have cost. Kept answers name their own cost and are
// not in it. Budgets need both; without the ledger the budget of a day would grow back
// as answers are pruned.
type ledger struct {
	Day        string           `json:"day"`        // of Identities
	Identities map[string]spent `json:"identities"` // on that day
	Sessions   map[string]spent `json:"sessions"`   // ever, by hash
}

// day returns the local date of a time. Budgets of a day begin anew at the user's
// midnight.
func day(t time.Time) string { return t.Local().Format(time.DateOnly) }

// readLedger returns the ledger that earlier daemons have written. A file that is
// missing or cannot be read gives an empty ledger: the daemon starts all the same.
func readLedger(path string) ledger {
	var l ledger
	if b, err := ownfile.Read(path, ownfile.MaxDocument); err != nil || json.Unmarshal(b, &l) != nil {
		return ledger{}
	}
	return l
}

// add books the cost of an answer that is about to be removed. The day's table starts
// anew with the first booking of a day. If the table of sessions or identities is full,
// the entry that was booked least recently is dropped.
func (l *ledger) add(k *kept, now time.Time) {
	today := day(now)
	book := func(m *map[string]spent, key string) {
		if *m == nil {
			*m = map[string]spent{}
		}
		s, known := (*m)[key]
		if key == "" {
			return
		}
		if !known && len(*m) >= maxLedger { // the one that was quiet for longest goes
			delete(*m, slices.MinFunc(slices.Collect(maps.Keys(*m)), func(a, b string) int {
				return cmp.Or(strings.Compare((*m)[a].Day, (*m)[b].Day), strings.Compare(a, b))
			}))
		}
		s.Consults, s.Day = s.Consults+1, today
		if k.info.CostUSD != nil {
			s.USD += *k.info.CostUSD
		}
		(*m)[key] = s
	}
	book(&l.Sessions, k.session)
	if l.Day != today {
		l.Day, l.Identities = today, nil
	}
	if day(time.UnixMilli(k.ended)) == today {
		book(&l.Identities, k.info.Identity)
	}
}

// writeLedgerLocked writes the ledger to disk. Call it before the booked answers are
// removed. A daemon that dies in between counts these twice; the other order could
// count them not at all. The caller must hold m.mu.
func (m *Manager) writeLedgerLocked() {
	b, err := json.Marshal(m.ledger)
	if err == nil {
		err = statedir.WriteFile(m.opt.Ledger, append(b, '\n'))
	}
	if err != nil {
		m.opt.Log.Warn("what consults have cost cannot be written down", "err", err)
	}
}

// spentLocked returns what the consults of an identity have cost today, and what those
// of a session have cost. It adds up the ledger, the kept answers and the live jobs,
// the last as far as their programs have reported a cost. The caller must hold m.mu.
func (m *Manager) spentLocked(identity, session string, now time.Time) (today, inSession spent) {
	add := func(s *spent, cost *float64) {
		s.Consults++
		if cost != nil {
			s.USD += *cost
		}
	}
	date := day(now)
	if m.ledger.Day == date {
		today = m.ledger.Identities[identity]
	}
	inSession = m.ledger.Sessions[session]
	for _, k := range m.kept {
		if k.info.Identity == identity && day(time.UnixMilli(k.ended)) == date {
			add(&today, k.info.CostUSD)
		}
		if session != "" && k.session == session {
			add(&inSession, k.info.CostUSD)
		}
	}
	for _, j := range m.live {
		j.mu.Lock()
		cost := j.cost
		j.mu.Unlock()
		if j.rec.Identity == identity {
			add(&today, cost)
		}
		if session != "" && j.rec.Session == session {
			add(&inSession, cost)
		}
	}
	return today, inSession
}

// spentWith returns what all consults of the job's session have cost, and those of its
// identity today, if the job has cost that much. What a live job has reported so far is
// in the sums already and is not counted twice.
func (m *Manager) spentWith(j *job, cost *float64) (session, today float64) {
	m.mu.Lock()
	t, s := m.spentLocked(j.rec.Identity, j.rec.Session, time.Now())
	live := m.live[j.rec.ID] == j
	m.mu.Unlock()
	more := 0.0
	if cost != nil {
		more = *cost
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if live && j.cost != nil { // the sums have what the program had reported
		more -= *j.cost
	}
	return s.USD + more, t.USD + more
}

// afford returns what a run may cost in US dollars: what it asks for, or what is left
// of the budgets if that is less. 0 means no limit. The error is a budget_exceeded
// fault. self is the job if it is live already, else nil.
//
// An engine that cannot hold a limit on its cost is held to the number of consults
// alone. Runs that go on at the same time do not know what each other will cost, so
// together they may exceed a budget by what one run may cost each.
func (m *Manager) afford(
	cfg *config.Config, identity, session string, eng engine.Engine, req engine.Request, self *job,
) (float64, error) {
	b := cfg.Identities[identity].Budget
	now := time.Now()
	m.mu.Lock()
	today, inSession := m.spentLocked(identity, session, now)
	m.mu.Unlock()
	if self != nil { // spentLocked has counted this job, too
		today.Consults--
	}
	tomorrow := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, now.Location())
	switch {
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
	least := func(left float64) {
		if capped.MaxUSD == 0 || left < capped.MaxUSD {
			capped.MaxUSD = left
		}
	}
	if b.MaxUSDPerDay > 0 {
		least(b.MaxUSDPerDay - today.USD)
	}
	if b.MaxUSDPerSession > 0 {
		least(b.MaxUSDPerSession - inSession.USD)
	}
	// Not every engine can hold a limit on its cost.
	if eng.Fits(capped) == nil {
		return capped.MaxUSD, nil
	}
	return req.MaxUSD, nil
}

// cents returns an amount in US cents, rounded.
func cents(usd float64) int { return int(usd*100 + 0.5) }

// overspent returns the budget_exceeded fault of a budget. after is when the budget
// begins anew; 0 means that this is not known.
func overspent(after time.Duration, name string, limit, used int, format string, args ...any) *fault.Record {
	f := fault.New(fault.BudgetExceeded, fault.Host, operation, format, args...).
		WithReason(fault.Budget).WithLimit(name, limit, used)
	if after > 0 {
		ms := after.Milliseconds()
		f.RetryAfterMS = &ms
	}
	return f
}

// Spendings returns, by name, what the consults of each identity have cost today.
// Identities without a consult today are left out.
func (m *Manager) Spendings() []control.Spending {
	now, cfg := time.Now(), m.config.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]bool{}
	if m.ledger.Day == day(now) {
		for name := range m.ledger.Identities {
			names[name] = true
		}
	}
	for _, k := range m.kept {
		names[k.info.Identity] = true
	}
	for _, j := range m.live {
		names[j.rec.Identity] = true
	}
	list := []control.Spending{}
	for name := range names {
		today, _ := m.spentLocked(name, "", now)
		if today.Consults > 0 {
			list = append(list, control.Spending{
				Identity: name, CostUSD: today.USD, Consults: today.Consults,
				MaxUSD: cfg.Identities[name].Budget.MaxUSDPerDay, MaxConsults: cfg.Identities[name].Budget.ConsultsPerDay,
			})
		}
	}
	slices.SortFunc(list, func(a, b control.Spending) int { return strings.Compare(a.Identity, b.Identity) })
	return list
}

// hear keeps the latest window of the subscription that a program has reported; nil
// changes nothing.
func (m *Manager) hear(w *engine.Window) {
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
