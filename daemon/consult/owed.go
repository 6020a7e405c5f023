package consult

import "time"

// owed says that a client may still ask again for the answer to its line: it
// has not confirmed that it holds the answer.
type owed struct {
	session string // hash of the client's
	n       int64
	until   time.Time // it does not come back after that, or so long after the end of the job; zero while its session is there
}

// open tells whether the client may still come.
func (o *owed) open(now time.Time) bool { return o != nil && (o.until.IsZero() || now.Before(o.until)) }

// owes is what is owed for a job of an earlier daemon, whose client has not
// come back yet; nil if it cannot.
func (m *Manager) owes(rec *record) *owed {
	if rec.deserted() {
		return nil
	}
	return &owed{session: rec.Session, n: rec.N, until: m.begun.Add(m.opt.Return)}
}

// eachOwedLocked is called with all that is owed to a session. What f makes
// nil is owed no more.
func (m *Manager) eachOwedLocked(session string, f func(o *owed) *owed) {
	for _, j := range m.live {
		if j.owed != nil && j.owed.session == session {
			j.owed = f(j.owed)
		}
	}
	for _, k := range m.kept {
		if k.owed != nil && k.owed.session == session {
			k.owed = f(k.owed)
		}
	}
}

// returned is told which lines a client that is back waits for: it holds the
// answers to all others, or has cancelled them.
func (m *Manager) returned(session string, pending map[int64]struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.eachOwedLocked(session, func(o *owed) *owed {
		if _, ok := pending[o.n]; !ok {
			return nil
		}
		o.until = time.Time{}
		return o
	})
}

// Confirmed is told that a client holds the answer to its line n, or does not
// want it any more: it is not asked for again.
func (m *Manager) Confirmed(session string, n int64) {
	id := ID(session, n)
	m.mu.Lock()
	if j := m.live[id]; j != nil {
		j.owed = nil
	}
	k := m.kept[id]
	if k != nil {
		k.owed = nil
	}
	m.mu.Unlock()
	if k != nil {
		m.pruneOver()
	}
}

// Closed is told that a session is over: nobody asks again for anything of it.
func (m *Manager) Closed(session, _ string) {
	m.mu.Lock()
	m.eachOwedLocked(session, func(*owed) *owed { return nil })
	m.mu.Unlock()
	m.pruneOver()
}

// pruneOver is prune, if more is kept than may be, or nothing for long.
func (m *Manager) pruneOver() {
	set := m.settings.Load()
	m.mu.Lock()
	over := len(m.kept) > set.KeepCount || set.KeepAge == 0
	m.mu.Unlock()
	if over {
		m.prune()
	}
}

// agePause is how often it is seen what has become too old to be kept.
const agePause = time.Hour

// expire removes what was kept only for clients of an earlier daemon, once
// they do not come any more, and what becomes too old while nothing else
// happens.
func (m *Manager) expire() {
	t := time.NewTimer(m.opt.Return)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			m.prune()
			t.Reset(min(agePause, max(m.settings.Load().KeepAge, m.opt.Return)))
		case <-m.closing:
			return
		}
	}
}
