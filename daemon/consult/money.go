package consult

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
)

// maxLedger is how many identities, and how many sessions, a ledger has.
const maxLedger = 4096

// spent is what consults have cost.
type spent struct {
	USD      float64 `json:"usd"`
	Consults int     `json:"consults"`
	Day      string  `json:"day,omitempty"` // of a session: when it was last booked
}

// ledger is what consults have cost whose answers are not kept any more; those
// that are kept say it themselves.
type ledger struct {
	Day        string           `json:"day"`        // of Identities
	Identities map[string]spent `json:"identities"` // on that day
	Sessions   map[string]spent `json:"sessions"`   // ever, by hash
}

// day is the day of a time, by the clock on the wall: budgets begin anew when
// people expect it.
func day(t time.Time) string { return t.Local().Format(time.DateOnly) }

// readLedger reads the ledger of earlier daemons. One that is not there, or
// cannot be read, is empty.
func readLedger(path string) ledger {
	var l ledger
	if b, err := ownfile.Read(path, ownfile.MaxDocument); err != nil || json.Unmarshal(b, &l) != nil {
		return ledger{}
	}
	return l
}

// add books an answer that is about to be removed.
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

// writeLedgerLocked puts the ledger on disk. It is written before the answers
// go: a daemon that dies in between counts them twice, and never not at all.
func (m *Manager) writeLedgerLocked() {
	b, err := json.Marshal(m.ledger)
	if err == nil {
		err = statedir.WriteFile(m.opt.Ledger, append(b, '\n'))
	}
	if err != nil {
		m.opt.Log.Warn("what consults have cost cannot be written down", "err", err)
	}
}

// spentLocked is what the consults of an identity have cost today, those that
// run included as far as they have told, and what those of a session have cost.
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

// spentWith is what the consults of a job's session, and those of its identity
// today, have cost once the job has cost so much.
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
	if live && j.cost != nil { // it is counted already, as far as it had told
		more -= *j.cost
	}
	return s.USD + more, t.USD + more
}

// afford is what a run may cost: what it asks for, or what is left of the
// budgets if that is less; 0 is no limit. An engine that does not tell its cost
// is held to the number of consults alone. The error is a fault,
// budget_exceeded. self is the job if it is queued already, else nil. Runs that go on at the same time do not know what each other
// will cost.
func (m *Manager) afford(
	set *Settings, identity, session string, eng engine.Engine, req engine.Request, self *job,
) (float64, error) {
	b, limited := set.Budgets[identity]
	if !limited {
		return req.MaxUSD, nil
	}
	now := time.Now()
	m.mu.Lock()
	today, inSession := m.spentLocked(identity, session, now)
	m.mu.Unlock()
	if self != nil { // it is counted already
		today.Consults--
	}
	tomorrow := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, now.Location())
	switch {
	case b.Day > 0 && today.Consults >= b.Day:
		return 0, overspent(tomorrow.Sub(now), "consults a day", b.Day, today.Consults,
			"%s has asked for %d consults today and may ask for %d; identities.%s.budget.consults_per_day sets the "+
				"limit",
			identity, today.Consults, b.Day, identity)
	case b.DayUSD > 0 && today.USD >= b.DayUSD:
		return 0, overspent(tomorrow.Sub(now), "US cents a day", cents(b.DayUSD), cents(today.USD),
			"the consults of %s have cost $%.2f today and may cost $%.2f; identities.%s.budget.max_usd_per_day sets "+
				"the limit",
			identity, today.USD, b.DayUSD, identity)
	case b.SessionUSD > 0 && inSession.USD >= b.SessionUSD:
		return 0, overspent(0, "US cents a session", cents(b.SessionUSD), cents(inSession.USD),
			"the consults of this session have cost $%.2f and may cost $%.2f; "+
				"identities.%s.budget.max_usd_per_session sets the limit",
			inSession.USD, b.SessionUSD, identity)
	}
	capped := req
	least := func(left float64) {
		if capped.MaxUSD == 0 || left < capped.MaxUSD {
			capped.MaxUSD = left
		}
	}
	if b.DayUSD > 0 {
		least(b.DayUSD - today.USD)
	}
	if b.SessionUSD > 0 {
		least(b.SessionUSD - inSession.USD)
	}
	if eng.Fits(capped) == nil {
		return capped.MaxUSD, nil
	}
	return req.MaxUSD, nil
}

func cents(usd float64) int { return int(usd*100 + 0.5) }

// overspent returns the fault of a budget that is used up for as long as after, 0
// if that is not known.
func overspent(after time.Duration, name string, limit, used int, format string, args ...any) *fault.Record {
	f := fault.New(fault.BudgetExceeded, fault.Host, operation, format, args...).
		WithReason(fault.Budget).WithLimit(name, limit, used)
	if after > 0 {
		ms := after.Milliseconds()
		f.RetryAfterMS = &ms
	}
	return f
}

// Spending is what the consults of an identity have cost today.
type Spending struct {
	Identity string
	USD      float64
	Consults int
	Budget   Budget
}

// Spendings are those of all identities that have asked today or have a
// budget, by name.
func (m *Manager) Spendings() []Spending {
	now, set := time.Now(), m.settings.Load()
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
	list := []Spending{}
	for name := range names {
		today, _ := m.spentLocked(name, "", now)
		if today.Consults > 0 {
			list = append(list, Spending{
				Identity: name, USD: today.USD, Consults: today.Consults,
				Budget: set.Budgets[name],
			})
		}
	}
	slices.SortFunc(list, func(a, b Spending) int { return strings.Compare(a.Identity, b.Identity) })
	return list
}

// hear keeps what was last heard of the subscription's window.
func (m *Manager) hear(w *engine.Window) {
	if w == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.window = w
}

// Window is what was last heard of the subscription's window, nil if nothing
// was, or if it has begun anew since.
func (m *Manager) Window() *engine.Window {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.window == nil || m.window.ResetUnixMS > 0 && m.window.ResetUnixMS < time.Now().UnixMilli() {
		return nil
	}
	return m.window
}
