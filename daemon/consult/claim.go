package consult

import (
	"time"

	"holdline/daemon/calls"
)

// A claim is a client's right to fetch the answer to its line again: it asked,
// and has not yet confirmed that it holds the answer. A nil claim is none.
type claim struct {
	key     calls.Key
	expires time.Time // zero while the client is connected
}

// isOpen reports whether the client may still come back for the answer.
func (c *claim) isOpen(now time.Time) bool {
	return c != nil && (c.expires.IsZero() || now.Before(c.expires))
}

// restoreClaim returns the claim to a job of an earlier daemon. Its client is
// expected back, unless its process is gone: then there is no claim.
func (m *Manager) restoreClaim(rec *record) *claim {
	if rec.deserted() {
		return nil
	}
	return &claim{key: rec.key(), expires: m.begun.Add(m.opt.Return)}
}

// reviewed returns what is left of the claim after its owner was asked. It is nil
// if the client has confirmed. An owner that has not is connected: the claim does
// not expire.
func (c *claim) reviewed(o calls.Owner) *claim {
	if c == nil || o.HasConfirmed(c.key) {
		return nil
	}
	return &claim{key: c.key}
}

// review asks the owner of all claims of a session.
func (m *Manager) review(session string, o calls.Owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.live {
		if j.rec.Session == session {
			j.claim = j.claim.reviewed(o)
		}
	}
	for _, k := range m.kept {
		if k.claim != nil && k.claim.key.Session == session {
			k.claim = k.claim.reviewed(o)
		}
	}
}

// Resumed takes the lines that a client which is back lists as pending. Its jobs
// for other lines end, unless they were detached: it holds their answers, or has
// cancelled them.
func (m *Manager) Resumed(session string, pending map[int64]struct{}) {
	o := calls.Resumed(pending)
	m.review(session, o)
	m.mu.Lock()
	var jobs []*job
	for _, j := range m.live {
		if j.rec.Session == session && o.HasConfirmed(j.rec.key()) {
			jobs = append(jobs, j)
		}
	}
	m.mu.Unlock()
	for _, j := range jobs {
		j.endUnattended("its client cancelled it")
	}
}

// Confirmed drops the claim to the answer of line n: the client holds it, or
// does not want it any more.
func (m *Manager) Confirmed(session string, n int64) {
	id := ID(session, n)
	m.mu.Lock()
	if j := m.live[id]; j != nil {
		j.claim = nil
	}
	k := m.kept[id]
	if k != nil {
		k.claim = nil
	}
	m.mu.Unlock()
	if k != nil {
		m.pruneOver()
	}
}

// Closed drops all claims of a session that is over.
func (m *Manager) Closed(session, _ string) {
	m.review(session, calls.Gone{})
	m.pruneOver()
}

// pruneOver prunes if more is kept than the settings allow, or if nothing is to
// be kept for long.
func (m *Manager) pruneOver() {
	set := m.settings.Load()
	m.mu.Lock()
	over := len(m.kept) > set.KeepCount || set.KeepAge == 0
	m.mu.Unlock()
	if over {
		m.prune()
	}
}

// agePause is the pause between looks for answers that are too old to be kept.
const agePause = time.Hour

// expire prunes once the clients of an earlier daemon are expected no more, and
// then again and again: answers become too old while nothing else happens.
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
