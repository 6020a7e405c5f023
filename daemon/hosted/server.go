package hosted

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/sight"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// A server is a configured server with what is known of it for all its callers. A
// server whose entry is edited is replaced by another one: spec never changes. Its
// fields are guarded by the hub's mutex.
type server struct {
	m    *Manager
	spec *Spec // name, scope, key and process hold; the rest is how it was made: see now

	limits atomic.Pointer[Spec] // what is configured now

	era        string        // "" until it is known
	stopped    bool          // by a user
	succession *succession   // by the server that its entry describes now; nil if none has begun
	ejected    []string      // scopes that an earlier daemon has ejected
	fault      *fault.Record // of the last process that ended or did not start
	faultAt    time.Time
	beyond     string            // method that a process asked for and its scope does not offer; "" if none
	sights     *sight.Table      // which projects see it; has a lock of its own
	latest     *listing.Offering // of the process that listed last, whoever used it; nil until one has
	pins       listing.Pins      // tools as they were first seen, with any process
}

// newServer makes a server without reading its files.
func (m *Manager) newServer(spec *Spec) *server {
	s := &server{m: m, spec: spec}
	s.sights = sight.New(spec.Visible, s.looked)
	s.limits.Store(spec)
	return s
}

// compareNames orders servers by name.
func compareNames(a, b *server) int { return cmp.Compare(a.spec.Name, b.spec.Name) }

// now returns the present limits of the server. They may change while its processes
// go on; name, scope, key and process do not.
func (s *server) now() *Spec { return s.limits.Load() }

// file returns the path of the file that has the server's offers and pins.
func (s *server) file() string { return filepath.Join(s.m.o.CatalogDir, s.spec.Name+".json") }

// visible reports whether a session sees the server, as far as that is known. The
// caller must hold the hub's mutex.
func (s *server) visible(c *tool.Caller) bool {
	if c.Only != "" && c.Only != s.spec.Name || !s.Reached(c) {
		return false
	}
	seen, _ := s.sights.Sees(c.Place())
	return seen
}

// Reached reports whether the identity of a session may use anything of the
// server.
func (s *server) Reached(c *tool.Caller) bool {
	return s.m.o.Rules == nil || s.m.o.Rules.Reaches(c.Identity, s.spec.Name)
}

// Waits reports whether [Manager.List] may have to start a server and wait for it.
func (m *Manager) Waits() bool {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	for _, s := range m.servers {
		if s.latest == nil {
			return true
		}
	}
	return false
}

// View returns what a caller sees of all servers, as far as that is known. The
// caller must not hold the hub's mutex.
func (m *Manager) View(c *tool.Caller) *listing.View {
	m.awaitSights(m.hub.Life, c)
	m.hub.Mu.Lock()
	var seen []listing.ServerView
	for _, s := range m.servers {
		if s.visible(c) {
			seen = append(seen, s.viewLocked(c))
		}
	}
	m.hub.Mu.Unlock()
	return listing.NewView(c, m.o.Rules, seen)
}

// viewLocked returns what a caller is offered by the server.
func (s *server) viewLocked(c *tool.Caller) listing.ServerView {
	return listing.ServerView{
		Server: s.spec.Name, Offering: s.offersLocked(c), Pins: s.pins, BlocksChanged: s.now().BlockChanged,
	}
}

// View is [server.viewLocked] for a caller that does not hold the hub's mutex.
func (s *server) View(c *tool.Caller) listing.ServerView {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	return s.viewLocked(c)
}

// inOrderLocked returns the servers by name.
func (m *Manager) inOrderLocked() []*server {
	all := make([]*server, 0, len(m.servers))
	for _, s := range m.servers {
		all = append(all, s)
	}
	slices.SortFunc(all, compareNames)
	return all
}

// nextList is how long a list waits for a server whose last start failed. Most such
// servers fail again.
const nextList = time.Second

// unreadyList is how long a list waits for a server whose environment is not known
// yet. Some clients go on without a server that has not listed its tools within a
// second: for them, Holdline with all its servers is one.
const unreadyList = 500 * time.Millisecond

// patienceLocked returns how long a list waits for an instance that has never listed.
// All lists together wait only as long as the first one.
func (inst *instance) patienceLocked(now time.Time) time.Duration {
	wait := catalog.FirstList
	switch {
	case inst.m.o.Prepared != nil && !inst.m.o.Prepared():
		wait = unreadyList
	case inst.failedToStartLocked():
		wait = nextList
	}
	if inst.starting != nil {
		wait -= now.Sub(inst.begun)
	}
	return max(wait, 0)
}

// sees reports whether a caller sees a server. It waits up to [sight.Wait] if that is
// not known yet. The caller must not hold the hub's mutex.
func (m *Manager) sees(ctx context.Context, s *server, c *tool.Caller) bool {
	m.awaitSights(ctx, c)
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	return s.visible(c)
}

// awaitSights waits, up to [sight.Wait], until it is known which servers a caller
// sees. The caller must not hold the hub's mutex.
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
