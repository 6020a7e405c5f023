package hosted

import (
	"context"
	"iter"
	"sync/atomic"

	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/sight"
	"holdline/daemon/hosted/signin"
	"holdline/daemon/hosted/verdict"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
)

// A server is a configured server with what is known of it for all its callers. A
// server whose entry is edited is replaced by another one: spec never changes. Its
// fields are guarded by the hub's mutex.
type server struct {
	m    *Manager
	spec *entry.Server // name, scope, key and process hold; the rest is how it was made: see Entry

	limits atomic.Pointer[entry.Server] // what is configured now

	era        string          // "" until it is known
	verdict    verdict.Verdict // Ejected has the scopes that an earlier daemon has ejected
	succession *succession     // by the server that its entry describes now; nil if none has begun
	beyond     string          // method that a process asked for and its scope does not offer; "" if none
	sights     *sight.Table    // which projects see it; has a lock of its own
	offers     listing.Offers
	login      signin.View
}

// newServer makes a server without reading its files.
func (m *Manager) newServer(spec *entry.Server) *server {
	s := &server{m: m, spec: spec, login: signin.View{Server: spec.Name, Log: m.hub.Log}}
	s.sights = sight.New(spec.Visible, s.looked)
	s.limits.Store(spec)
	return s
}

// Entry returns the server as it is configured now. Its limits may change while its
// processes go on; name, scope, key and process do not.
func (s *server) Entry() *entry.Server { return s.limits.Load() }

// instancesLocked returns the instances of the server.
func (s *server) instancesLocked() iter.Seq[*instance] {
	return func(yield func(*instance) bool) {
		for key, inst := range s.m.instances {
			if key.server == s.spec.Name && !yield(inst) {
				return
			}
		}
	}
}

// visible reports whether a session sees the server, as far as that is known. The
// caller must hold the hub's mutex.
func (s *server) visible(c *tool.Caller) bool {
	if c.Only != "" && c.Only != s.spec.Name || s.m.o.Rules != nil && !s.m.o.Rules.Reaches(c.Who(), s.spec.Name) {
		return false
	}
	seen, _ := s.sights.Sees(c.Place())
	return seen
}

// Waits reports whether [Manager.List] may have to start a server and wait for it.
func (m *Manager) Waits() bool {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	for _, s := range m.servers {
		if s.offers.Latest() == nil {
			return true
		}
	}
	return false
}

// awaitSights waits, up to [sight.Wait], until it is known which servers a caller sees, of those
// that may offer what is shown by that name. The caller must not hold the hub's mutex.
func (m *Manager) awaitSights(ctx context.Context, c *tool.Caller, shown string) {
	var tables []*sight.Table
	m.hub.Mu.Lock()
	for name, s := range m.servers {
		if (c.Only == "" || c.Only == name) && s.mayOffer(c, shown) {
			tables = append(tables, s.sights)
		}
	}
	m.hub.Mu.Unlock()
	if !sight.Await(ctx, c.Place(), tables) {
		m.hub.Log.WarnContext(ctx,
			"it takes long to find out whether a project sees all servers: its sessions go on without",
			"root", c.Place())
	}
}

// looked starts what the sessions of a project need, since it is known now whether they
// see the server. With news it notifies them: their requests went by another answer.
func (s *server) looked(root string, news bool) {
	m := s.m
	var changed []tool.Client
	defer func() {
		for _, c := range changed {
			listing.Announce(c)
		}
	}()
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
		if news {
			changed = append(changed, c)
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
