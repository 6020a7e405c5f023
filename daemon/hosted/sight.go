package hosted

import (
	"context"

	"holdline/daemon/hosted/sight"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
)

// sees reports whether a caller sees a server. It waits up to [sight.Wait] if that is
// not known yet. The caller must not hold the manager's mutex.
func (m *Manager) sees(ctx context.Context, s *server, c *tool.Caller) bool {
	m.awaitSights(ctx, c)
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	return s.visible(c)
}

// awaitSights waits, up to [sight.Wait], until it is known which servers a caller
// sees. The caller must not hold the manager's mutex.
func (m *Manager) awaitSights(ctx context.Context, c *tool.Caller) {
	var tables []*sight.Table
	m.hub.Mu.Lock()
	for name, s := range m.servers {
		if c.Only == "" || c.Only == name {
			tables = append(tables, s.sights)
		}
	}
	m.hub.Mu.Unlock()
	if !sight.Await(ctx, c.Place(), tables) {
		m.hub.Log.WarnContext(ctx, "it takes long to find out whether a project sees all servers: its sessions go on without",
			"root", c.Place())
	}
}

// looked starts what the sessions of a project need, since it is known now whether they
// see the server. With news it notifies them: their requests went by another answer.
func (s *server) looked(root string, news bool) {
	m := s.m
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if m.hub.Closed || m.servers[s.spec.Name] != s {
		return
	}
	for _, c := range m.hub.Clients {
		who := c.Caller()
		if who.Place() != root {
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
	m.hub.ReconcileLocked()
}

// forgetSightsLocked forgets projects without sessions.
func (m *Manager) forgetSightsLocked() {
	used := map[string]struct{}{}
	for _, c := range m.hub.Clients {
		who := c.Caller()
		used[who.Place()] = struct{}{}
	}
	for _, s := range m.servers {
		s.sights.Keep(used)
	}
}
