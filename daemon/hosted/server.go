package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// firstList is how long a list of tools waits for servers that nobody has ever
// asked for theirs; those that take longer appear by a change of the list. It is
// less than the 10 s after which clients give up a server that is slow to begin.
const firstList = 8 * time.Second

// server is a configured server, and what is known of it whoever uses it. Its
// fields are guarded by the manager's mutex.
type server struct {
	m    *Manager
	spec *Spec // name, scope, key and process hold; the rest is how it was made: see now

	limits atomic.Pointer[Spec] // what is configured now

	era        string        // "" until it is known
	stopped    bool          // by a user
	succession *succession   // by the server that its entry describes now; nil if it is the same, or none has been begun
	ejected    []string      // scopes that an earlier daemon has ejected
	fault      *fault.Record // of the last process that ended or did not start
	faultAt    time.Time
	beyond     string            // method that a process has asked its client for, which its scope does not offer; "" if none has
	sights     map[string]*sight // by a project's root: whether its sessions see the server
	latest     *listing.Offering // of the process that listed last, whoever used it; nil until one has
	pins       listing.Pins      // tools as they were first seen, with any process
}

func (m *Manager) newServer(spec *Spec) *server {
	s := &server{m: m, spec: spec}
	s.limits.Store(spec)
	return s
}

func compareNames(a, b *server) int { return cmp.Compare(a.spec.Name, b.spec.Name) }

// now is the server as it is configured now.
func (s *server) now() *Spec { return s.limits.Load() }

func (s *server) file() string { return filepath.Join(s.m.o.CatalogDir, s.spec.Name+".json") }

// visible tells whether a session sees the server, as far as that is known. The
// caller must hold the manager's mutex.
func (s *server) visible(c *tool.Caller) bool {
	return (c.Only == "" || c.Only == s.spec.Name) && s.reached(c) && s.seenByLocked(c)
}

// reached tells whether the identity of a session may use anything of the
// server.
func (s *server) reached(c *tool.Caller) bool {
	return s.m.o.Rules == nil || s.m.o.Rules.Reaches(c.Identity, s.spec.Name)
}

// mayUse reports whether the identity of a session may use an offer.
func (m *Manager) mayUse(c *tool.Caller, o *listing.Offer) bool {
	return m.o.Rules == nil || m.o.Rules.May(c.Identity, o.Remote.Server, o.Remote.Names...)
}

// Waits tells whether [Manager.List] has to ask a server first.
func (m *Manager) Waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.servers {
		if s.latest == nil {
			return true
		}
	}
	return false
}

// List is what a session sees of all servers' tools, by name: what the processes
// that it uses have listed, and, of a server whose process has not yet, what is
// known of that server. One that was never listed is asked first, for a limited
// time.
func (m *Manager) List(ctx context.Context, c tool.Caller) []tool.Listing {
	list, _, _ := m.listing(ctx, c, listing.Tools)
	return list
}

// Items is what a session sees of all servers that the method lists; false if
// it is none that servers know.
func (m *Manager) Items(ctx context.Context, c tool.Caller, method string) (member string, list []tool.Listing, ok bool) {
	for k := range listing.Kinds {
		if how := k.MCP(); how.List == method && k != listing.Tools {
			list, _, _ := m.listing(ctx, c, k)
			return how.Member, list, true
		}
	}
	return "", nil, false
}

// listing is what a session sees of a kind. Of two servers that list one
// resource the first by name has it. unasked has, by server, why it is not known
// what that offers.
func (m *Manager) listing(ctx context.Context, c tool.Caller, k listing.Kind) (list []tool.Listing, all map[string]*listing.Offer, unasked map[*server]error) {
	unasked = m.askAll(ctx, c)
	list, all = m.listed(c, k)
	return list, all, unasked
}

// listed is [Manager.listing] as far as it is known.
func (m *Manager) listed(c tool.Caller, k listing.Kind) ([]tool.Listing, map[string]*listing.Offer) {
	list, seen := []tool.Listing{}, map[string]*listing.Offer{}
	for _, o := range m.offered(&c, k) {
		if seen[o.Remote.Name] != nil || !m.mayUse(&c, o) {
			continue
		}
		seen[o.Remote.Name] = o
		raw := o.Raw
		if c.Only != "" {
			raw = o.Plain
		}
		list = append(list, tool.Listing{Name: o.Remote.Name, Raw: raw})
	}
	slices.SortFunc(list, func(a, b tool.Listing) int { return cmp.Compare(a.Name, b.Name) })
	return list, seen
}

// offered is what the servers that a caller sees offer of a kind, by server, as
// far as it is known, but for what is blocked, and whether or not the caller may
// use it.
func (m *Manager) offered(c *tool.Caller, k listing.Kind) []*listing.Offer {
	m.awaitSights(m.life, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*listing.Offer
	for _, s := range m.inOrderLocked() {
		if !s.visible(c) {
			continue
		}
		for _, o := range s.offersLocked(c).All(k) {
			if s.blockedLocked(o) == nil {
				all = append(all, o)
			}
		}
	}
	return all
}

// inOrderLocked is the servers by name.
func (m *Manager) inOrderLocked() []*server {
	all := make([]*server, 0, len(m.servers))
	for _, s := range m.servers {
		all = append(all, s)
	}
	slices.SortFunc(all, compareNames)
	return all
}

// nextList is the same for a server whose last start has failed: it may be
// fixed, but probably is not.
const nextList = time.Second

// unreadyList is the same for a server whose environment is not known yet: some
// clients go on without a server that has not listed its tools within a second,
// and so would lose those of all others.
const unreadyList = 500 * time.Millisecond

// patienceLocked is how long a list waits for an instance that was never listed:
// all of them together no longer than the first.
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

// askAll asks the servers for their lists that were never asked, for a limited
// time. It returns those that have not answered, and why.
func (m *Manager) askAll(ctx context.Context, c tool.Caller) map[*server]error {
	var mu sync.Mutex // guards failed
	failed := map[*server]error{}
	var asking sync.WaitGroup
	m.awaitSights(ctx, &c)
	m.mu.Lock()
	for _, s := range m.servers {
		if !s.visible(&c) || s.offersLocked(&c) != nil {
			continue
		}
		patience := s.instanceLocked(&c).patienceLocked(time.Now())
		asking.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, patience, fault.New(fault.Timeout, fault.Server, operation(s.spec.Name),
				"server %s has not said in time what it offers: it may still be starting, try again", s.spec.Name))
			defer cancel()
			_, err := s.ready(ctx, c)
			if err == nil {
				return
			}
			if ctx.Err() == nil {
				m.log.WarnContext(ctx, "server is not listed", "server", s.spec.Name, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			failed[s] = err
		})
	}
	m.mu.Unlock()
	asking.Wait()
	return failed
}

// Find is the tool of that exposed name; false if no server offers it. A
// server whose name it bears and that was never listed is asked first; if it
// does not come up, the tool's calls fail with the reason.
func (m *Manager) Find(ctx context.Context, c tool.Caller, name string) (*tool.Remote, bool) {
	if o := m.find(ctx, c, listing.Tools, name); o != nil {
		return &o.Remote, true
	}
	return nil, false
}

// Known returns the tool of that name if it is listed now, else nil.
func (m *Manager) Known(c tool.Caller, name string) *tool.Remote {
	if o, _ := m.known(&c, listing.Tools, name); o != nil {
		return &o.Remote
	}
	return nil
}

// find is what bears that exposed name.
func (m *Manager) find(ctx context.Context, c tool.Caller, k listing.Kind, name string) *listing.Offer {
	found, unlisted := m.known(&c, k, name)
	if found != nil || len(unlisted) == 0 {
		return found
	}
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, fault.New(fault.Timeout, fault.Server, mcp.ToolsCall+":"+name,
		"its server has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	var failed *listing.Offer
	for _, s := range unlisted {
		if err := s.listFor(ctx, c, name); err != nil {
			failed = s.unknown(k, name, err)
			continue
		}
		m.mu.Lock()
		o := s.offersLocked(&c).Find(k, name, c.Only != "")
		m.mu.Unlock()
		if o != nil {
			return o
		}
	}
	return failed
}

// known is what bears that exposed name, with the first server by name that
// offers it, as far as is known; nil if none does. unlisted are the servers, by
// name, whose name it bears and of which that is not known.
func (m *Manager) known(c *tool.Caller, k listing.Kind, name string) (found *listing.Offer, unlisted []*server) {
	m.awaitSights(m.life, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	for server, s := range m.servers {
		if !s.visible(c) {
			continue
		}
		of := s.offersLocked(c)
		if o := of.Find(k, name, c.Only != ""); o != nil && (found == nil || server < found.Remote.Server) {
			found = o
		}
		if of == nil && (c.Only != "" || tool.MayBeOf(s.spec.Name, name)) {
			unlisted = append(unlisted, s)
		}
	}
	slices.SortFunc(unlisted, compareNames)
	return found, unlisted
}

// unknown is what stands for that which a server may offer under a name: what
// it offers is not known, for that error, with which the use of it ends.
func (s *server) unknown(k listing.Kind, name string, err error) *listing.Offer {
	return &listing.Offer{Own: name, Method: k.MCP().Use, Remote: tool.Remote{
		Name: name, Server: s.spec.Name, Names: []string{strings.TrimPrefix(name, s.spec.Name+"__")}, Contract: tool.NeverReplay,
		Handle: func(context.Context, tool.RemoteCall) (tool.RemoteResult, error) { return tool.RemoteResult{}, err },
	}}
}

// aboutWait is how long a handshake waits for a server that was never up: some
// clients wait for the handshake no longer than a second.
const aboutWait = 50 * time.Millisecond

// errStarting is the cause of the end of that wait.
var errStarting = errors.New("the server is still starting")

// About is what the one server says of itself that a session is for. One that
// was never up is started. As long as it is coming up it may offer everything;
// an error says why it is not, or did not the last time.
func (m *Manager) About(ctx context.Context, c tool.Caller) (tool.About, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, aboutWait, errStarting)
	defer cancel()
	s, err := m.server(c.Only)
	if err != nil {
		return tool.About{}, err
	}
	switch {
	case !s.reached(&c):
		return tool.About{}, fault.New(fault.Denied, fault.Host, mcp.Initialize, "identity %q may use no tool of server %s", c.Identity, c.Only)
	case !m.sees(ctx, s, &c):
		return tool.About{}, fault.New(fault.Denied, fault.Host, mcp.Initialize, "server %s is not for this project", c.Only)
	}
	m.mu.Lock()
	about := s.offersLocked(&c).About()
	m.mu.Unlock()
	if about == nil {
		_, err := s.ready(ctx, c)
		m.mu.Lock()
		about = s.offersLocked(&c).About()
		if inst := s.instanceLocked(&c); errors.Is(err, errStarting) && inst.failedToStartLocked() {
			err = inst.err
		}
		m.mu.Unlock()
		if errors.Is(err, errStarting) {
			return listing.DescribeStarting(c.Only), nil
		}
		if err != nil {
			return tool.About{}, err
		}
	}
	return listing.Describe(c.Only, about), nil
}

// Route finds where a request goes that is no call of a tool: for a prompt by
// its name, for a resource by its URI or the template that it begins like, for
// a completion by what it is for. It is nil if no server is concerned, and not
// ok if no server knows such requests.
func (m *Manager) Route(ctx context.Context, c tool.Caller, method string, params json.RawMessage) (to *tool.Remote, ok bool) {
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

// Has tells what the servers that a session sees offer besides tools. One that
// was never listed may offer all.
func (m *Manager) Has(c tool.Caller) tool.Has {
	m.awaitSights(m.life, &c)
	m.mu.Lock()
	defer m.mu.Unlock()
	var has tool.Has
	for _, s := range m.servers {
		if !s.visible(&c) {
			continue
		}
		of := s.offersLocked(&c)
		if of == nil {
			return tool.Has{Prompts: true, Resources: true, Updates: true, Logging: true}
		}
		has.Prompts = has.Prompts || len(of.Lists()[listing.Prompts]) > 0
		has.Resources = has.Resources || len(of.Lists()[listing.Resources])+len(of.Lists()[listing.Templates]) > 0
		has.Updates = has.Updates || listing.Subscribable(of.About())
		has.Logging = has.Logging || listing.Has(of.About(), "logging")
	}
	return has
}
