package hosted

import (
	"cmp"
	"context"
	"time"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
)

// Whether a session sees a server that is for some projects only depends on the
// file system, which may hang: an NFS home does. So it is found out in goroutines
// of its own, and remembered. Whoever holds the manager's mutex goes by what is
// known.

const (
	// sightWait bounds how long a request waits for what is not known yet. It is
	// waited for once: later requests go by what is known.
	sightWait = time.Second
	// sightAge is how old an answer may be before it is looked for again.
	sightAge = 10 * time.Second
)

// A sight records whether the sessions of one project see a server. It is guarded by
// the manager's mutex.
type sight struct {
	spec    *Spec // that was asked; nil if none has answered yet
	visible bool
	at      time.Time     // of the answer
	asking  chan struct{} // closed when the one asked now has answered; nil if none is
	late    bool          // a request has gone on without the answer
}

// seenByLocked reports whether the sessions of a caller's project see the server, by
// what is known now. It never blocks.
func (s *server) seenByLocked(c *tool.Caller) bool {
	if s.now().Visible == nil {
		return true
	}
	return s.sightLocked(cmp.Or(c.Root, c.Cwd)).visible
}

// unseenLocked reports whether it is still unknown if a caller sees the server.
func (s *server) unseenLocked(c *tool.Caller) bool {
	return s.now().Visible != nil && s.sightLocked(cmp.Or(c.Root, c.Cwd)).spec == nil
}

// sees reports whether a caller sees a server. It waits up to [sightWait] if that is
// not known yet. The caller must not hold the manager's mutex.
func (m *Manager) sees(ctx context.Context, s *server, c *tool.Caller) bool {
	m.awaitSights(ctx, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.visible(c)
}

// sightLocked returns what is known of a project. It starts a look in a goroutine if
// nothing is known, if the answer is older than [sightAge], or if the configuration
// has changed since. It never blocks: callers hold the mutex that all calls need.
func (s *server) sightLocked(root string) *sight {
	e := s.sights[root]
	if e == nil {
		e = &sight{}
		if s.sights == nil {
			s.sights = map[string]*sight{}
		}
		s.sights[root] = e
	}
	spec := s.now()
	if e.asking == nil && (e.spec != spec || time.Since(e.at) > sightAge) {
		e.asking = make(chan struct{})
		// Nobody waits for its end: a look that hangs cannot be cancelled. There is
		// one at most for each server and project.
		go s.look(e, spec, root)
	}
	return e
}

// look finds out whether the sessions of a project see the server; that may block on
// the file system. It then starts what the sessions need. It notifies them if their
// requests went by another answer.
func (s *server) look(e *sight, spec *Spec, root string) {
	visible := spec.Visible(root)
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	news := e.visible != visible && (e.late || e.spec != nil)
	e.spec, e.visible, e.at, e.late = spec, visible, time.Now(), false
	close(e.asking)
	e.asking = nil
	if m.closed || m.servers[s.spec.Name] != s {
		return
	}
	if s.now() != spec { // it was configured otherwise meanwhile
		s.sightLocked(root)
	}
	for _, c := range m.clients {
		who := c.Caller()
		if cmp.Or(who.Root, who.Cwd) != root {
			continue
		}
		m.eagerLocked(who)
		for k := range listing.Kinds {
			if news {
				c.ListChanged(k.MCP().Changed)
			}
		}
	}
	m.idleLocked()
	m.reconcileLocked()
}

// awaitSights waits, up to [sightWait], until it is known which servers a caller
// sees. The caller must not hold the manager's mutex.
func (m *Manager) awaitSights(ctx context.Context, c *tool.Caller) {
	pending := m.pendingSights(c)
	if len(pending) == 0 {
		return
	}
	limit := time.NewTimer(sightWait)
	defer limit.Stop()
	for _, asking := range pending {
		select {
		case <-asking:
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		m.mu.Lock()
		for e := range pending {
			e.late = e.late || e.asking != nil
		}
		m.mu.Unlock()
		if ctx.Err() == nil {
			m.log.WarnContext(ctx,
				"it takes long to find out whether a project sees all servers: its sessions go on without",
				"root", cmp.Or(c.Root, c.Cwd))
		}
		return
	}
}

// pendingSights returns the answers that a caller's request has to wait for, each
// with a channel that is closed when it is there.
func (m *Manager) pendingSights(c *tool.Caller) map[*sight]<-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	var pending map[*sight]<-chan struct{}
	for name, s := range m.servers {
		if s.now().Visible == nil || c.Only != "" && c.Only != name {
			continue
		}
		e := s.sightLocked(cmp.Or(c.Root, c.Cwd))
		if e.asking == nil || e.late || e.spec == s.now() {
			continue
		}
		if pending == nil {
			pending = map[*sight]<-chan struct{}{}
		}
		pending[e] = e.asking
	}
	return pending
}

// forgetSightsLocked forgets projects without sessions.
func (m *Manager) forgetSightsLocked() {
	used := map[string]struct{}{}
	for _, c := range m.clients {
		who := c.Caller()
		used[cmp.Or(who.Root, who.Cwd)] = struct{}{}
	}
	for _, s := range m.servers {
		for root, e := range s.sights {
			if _, ok := used[root]; !ok && e.asking == nil {
				delete(s.sights, root)
			}
		}
	}
}
