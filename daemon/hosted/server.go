package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/sight"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// firstList is how long a list of tools waits for servers that have never listed
// theirs; the tools of slower servers appear by a change of the list. It is less
// than the 10 s after which clients give up a server that is slow to start.
const firstList = 8 * time.Second

// A server is a configured server with what is known of it for all its callers. A
// server whose entry is edited is replaced by another one: spec never changes. Its
// fields are guarded by the manager's mutex.
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
// caller must hold the manager's mutex.
func (s *server) visible(c *tool.Caller) bool {
	if c.Only != "" && c.Only != s.spec.Name || !s.reached(c) {
		return false
	}
	seen, _ := s.sights.Sees(c.Place())
	return seen
}

// reached reports whether the identity of a session may use anything of the
// server.
func (s *server) reached(c *tool.Caller) bool {
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

// List returns what a session sees of the kind that a method lists, by name, and the name
// of that member in the result. It returns false if no server knows the method. The lists
// are those of the session's own processes, or else those that any process of the server
// has listed last. It starts servers that have never listed, and waits for them for a
// limited time.
func (m *Manager) List(
	ctx context.Context, c tool.Caller, method string,
) (member string, list []tool.Listing, ok bool) {
	for k := range listing.Kinds {
		if how := k.MCP(); how.List == method {
			m.askAll(ctx, c)
			return how.Member, m.view(&c).List(k), true
		}
	}
	return "", nil, false
}

// view returns what a caller sees of all servers, as far as that is known. The
// caller must not hold the manager's mutex.
func (m *Manager) view(c *tool.Caller) *listing.View {
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

// view is [server.viewLocked] for a caller that does not hold the manager's mutex.
func (s *server) view(c *tool.Caller) listing.ServerView {
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
	wait := firstList
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

// askAll starts the servers that a caller sees and that have never listed, and waits
// for their lists for a limited time. It returns the errors of those that have not
// listed, by name.
func (m *Manager) askAll(ctx context.Context, c tool.Caller) map[string]error {
	var mu sync.Mutex // guards failed
	failed := map[string]error{}
	var asking sync.WaitGroup
	m.awaitSights(ctx, &c)
	m.hub.Mu.Lock()
	for _, s := range m.servers {
		if !s.visible(&c) || s.offersLocked(&c) != nil {
			continue
		}
		patience := s.instanceLocked(&c).patienceLocked(time.Now())
		asking.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, patience,
				fault.New(fault.Timeout, fault.Server, operation(s.spec.Name),
					"server %s has not said in time what it offers: it may still be starting, try again", s.spec.Name))
			defer cancel()
			_, err := s.Ready(ctx, c)
			if err == nil {
				return
			}
			if ctx.Err() == nil {
				m.hub.Log.WarnContext(ctx, "server is not listed", "server", s.spec.Name, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			failed[s.spec.Name] = err
		})
	}
	m.hub.Mu.Unlock()
	asking.Wait()
	return failed
}

// Find returns the tool of that exposed name, or nil if no server offers it. It first
// asks the servers that have never listed and whose tool the name can be. If one of them
// does not start, calls of the tool fail with the reason.
func (m *Manager) Find(ctx context.Context, c tool.Caller, name string) *tool.Remote {
	if o := m.find(ctx, c, listing.Tools, name); o != nil {
		return &o.Remote
	}
	return nil
}

// Known returns the tool of that name if it is listed now, else nil.
func (m *Manager) Known(c tool.Caller, name string) *tool.Remote {
	if o, _ := m.view(&c).Find(listing.Tools, name); o != nil {
		return &o.Remote
	}
	return nil
}

// find returns the offer of that exposed name, or nil; see [Manager.Find].
func (m *Manager) find(ctx context.Context, c tool.Caller, k listing.Kind, name string) *listing.Offer {
	found, unlisted := m.view(&c).Find(k, name)
	if found != nil || len(unlisted) == 0 {
		return found
	}
	ctx, cancel := context.WithTimeoutCause(ctx, firstList,
		fault.New(fault.Timeout, fault.Server, mcp.ToolsCall+":"+name,
			"its server has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	var failed *listing.Offer
	for _, server := range unlisted {
		s, err := m.server(server)
		if err == nil {
			err = dispatch.Try(ctx, s, c, name)
		}
		if err != nil {
			failed = listing.Unknown(server, k, name, err)
			continue
		}
		view := s.view(&c)
		if o := view.Offering.Find(k, name, c.Only != ""); o != nil {
			return o
		}
	}
	return failed
}

// resource returns the offer of a resource, or nil if no server is concerned; see
// [listing.View.Resource]. A resource that is listed waits for no other server.
func (m *Manager) resource(ctx context.Context, c tool.Caller, uri string) *listing.Offer {
	if o := m.view(&c).Listed(uri); o != nil {
		return o
	}
	unasked := m.askAll(ctx, c)
	if o := m.view(&c).Resource(uri, m.handleOffer); o != nil || len(unasked) == 0 {
		return o
	}
	first := slices.Min(slices.Collect(maps.Keys(unasked)))
	err := dispatch.AsFault(unasked[first], &listing.Offer{Method: mcp.ResourcesRead})
	return listing.Unknown(first, listing.Resources, uri, err)
}

// aboutWait is how long a handshake waits for a server that never served: some
// clients wait for the handshake no longer than a second.
const aboutWait = 50 * time.Millisecond

// errStarting is the cause of a context that ends with [aboutWait].
var errStarting = errors.New("the server is still starting")

// About returns the description of the only server of a session. It starts a server
// that has never served. A server that is still starting is described as offering
// everything. The error says why it does not start, or did not the last time.
func (m *Manager) About(ctx context.Context, c tool.Caller) (tool.About, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, aboutWait, errStarting)
	defer cancel()
	s, err := m.server(c.Only)
	if err != nil {
		return tool.About{}, err
	}
	switch {
	case !s.reached(&c):
		return tool.About{}, fault.New(fault.Denied, fault.Host, mcp.Initialize,
			"identity %q may use no tool of server %s", c.Identity, c.Only)
	case !m.sees(ctx, s, &c):
		return tool.About{}, fault.New(fault.Denied, fault.Host, mcp.Initialize, "server %s is not for this project",
			c.Only)
	}
	view := s.view(&c)
	about := view.Offering.About()
	if about == nil {
		_, err := s.Ready(ctx, c)
		m.hub.Mu.Lock()
		about = s.offersLocked(&c).About()
		if inst := s.instanceLocked(&c); errors.Is(err, errStarting) && inst.failedToStartLocked() {
			err = inst.err
		}
		m.hub.Mu.Unlock()
		if errors.Is(err, errStarting) {
			return listing.DescribeStarting(c.Only), nil
		}
		if err != nil {
			return tool.About{}, err
		}
	}
	return listing.Describe(c.Only, about), nil
}

// Route returns the server's handler of a request other than a tool call. A prompt is
// found by its name, a resource by its URI or a matching template, a completion by
// what it completes. It returns nil if no server has it, and false if no server can
// know the method.
func (m *Manager) Route(
	ctx context.Context, c tool.Caller, method string, params json.RawMessage,
) (to *tool.Remote, ok bool) {
	var o *listing.Offer
	switch method {
	case mcp.PromptsGet:
		name, _ := mcp.String(jsonrpc.Field(params, "name"))
		o = m.find(ctx, c, listing.Prompts, name)
	case mcp.ResourcesRead:
		uri, _ := mcp.String(jsonrpc.Field(params, "uri"))
		o = m.resource(ctx, c, uri)
	case mcp.Complete:
		ref := jsonrpc.Field(params, "ref")
		if name, ok := mcp.String(jsonrpc.Field(ref, "name")); ok {
			o = m.find(ctx, c, listing.Prompts, name)
		} else if uri, ok := mcp.String(jsonrpc.Field(ref, "uri")); ok {
			o = m.resource(ctx, c, uri)
		}
		if o != nil {
			o = o.Completion(m.handleOffer)
		}
	default:
		return nil, false
	}
	if o == nil {
		return nil, true
	}
	return &o.Remote, true
}

// Has returns what the servers that a session sees offer besides tools. A server
// that has never listed may offer everything.
func (m *Manager) Has(c tool.Caller) tool.Has { return m.view(&c).Has() }
