package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of a list of tools.
const (
	maxPages = 64
	maxTools = 10_000

	maxListBytes = 16 << 20
)

// firstList is how long a list of tools waits for servers that nobody has ever
// asked for theirs; those that take longer appear by a change of the list. It is
// less than the 10 s after which clients give up a server that is slow to begin.
const firstList = 8 * time.Second

// kind is a sort of thing that servers list.
type kind int

const (
	tools kind = iota
	prompts
	resources
	templates
	kinds
)

// sort says how a kind is asked for.
type sort struct {
	list    string // method that lists it
	member  string // of the list's result
	needs   string // capability of a server that has it
	changed string // notification that the list is another one
	get     string // method that uses one of it
	key     string // member of a listing that names it
	hidden  bool   // the name bears the server's before it
}

func (k kind) sort() sort {
	switch k {
	case tools:
		return sort{mcp.ToolsList, "tools", "tools", mcp.ToolsChanged, mcp.ToolsCall, "name", true}
	case prompts:
		return sort{mcp.PromptsList, "prompts", "prompts", mcp.PromptsChanged, mcp.PromptsGet, "name", true}
	case resources:
		return sort{mcp.ResourcesList, "resources", "resources", mcp.ResourcesChanged, mcp.ResourcesRead, "uri", false}
	case templates, kinds:
	}
	return sort{mcp.TemplatesList, "resourceTemplates", "resources", mcp.ResourcesChanged, mcp.ResourcesRead, "uriTemplate", false}
}

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
	latest     *offering         // of the process that listed last, whoever used it; nil until one has
	pins       map[string]*pin   // tools as they were first seen, by the server's own name, with any process
}

// offer is one tool, prompt, resource or template of a server.
type offer struct {
	s       *server
	remote  tool.Remote
	method  string // of the request that uses it
	name    string // the server's own
	alone   string // as a session of this server alone sees it: its own, unless that is too long
	hash    string // of a tool, as it is pinned
	listing json.RawMessage
	plain   json.RawMessage // the same under the name alone
}

// memory is the file in the catalog directory: what a server offered last, so
// that a list starts nothing. A process has one like it in its directory, with
// what that process lists.
type memory struct {
	Version   int               `json:"version"`
	Key       string            `json:"key"`
	Era       string            `json:"era,omitempty"`
	Tools     []json.RawMessage `json:"tools"` // as the server lists them, as all that follows
	Prompts   []json.RawMessage `json:"prompts,omitempty"`
	Resources []json.RawMessage `json:"resources,omitempty"`
	Templates []json.RawMessage `json:"templates,omitempty"`
	About     json.RawMessage   `json:"about,omitempty"` // result of the handshake
	Pins      []pin             `json:"pins,omitempty"`
	Cut       []string          `json:"cut,omitempty"` // which lists are longer, in words
}

const memoryVersion = 1

func (m *Manager) newServer(spec *Spec) *server {
	s := &server{m: m, spec: spec}
	s.limits.Store(spec)
	return s
}

// now is the server as it is configured now.
func (s *server) now() *Spec { return s.limits.Load() }

func (s *server) file() string { return filepath.Join(s.m.o.CatalogDir, s.spec.Name+".json") }

// remember reads what the server offered last, if its entry was the same, and
// its pins in any case: an edit of the entry is how most servers change. It is
// called before anybody else knows of the server.
func (s *server) remember() error {
	mem, err := readMemory(s.file())
	if err != nil || mem.Version != memoryVersion {
		return err
	}
	s.pins = map[string]*pin{}
	for _, p := range mem.Pins {
		s.pins[p.Tool] = &p
	}
	if mem.Key != s.spec.Key {
		return nil
	}
	s.era = mem.Era
	s.pinLocked(likenesses(mem.Tools), time.Now()) // an older daemon has listed them, and pinned nothing
	s.latest = s.offering(mem.lists(), mem.About, mem.Cut)
	return nil
}

// keep writes down what the server offers.
func (s *server) keep() {
	if err := s.store(); err != nil {
		s.m.log.Warn("what a server offers cannot be remembered", "server", s.spec.Name, "err", err)
	}
}

// store is [server.keep] with its error.
func (s *server) store() error {
	s.m.filing.Lock()
	defer s.m.filing.Unlock()
	s.m.mu.Lock()
	if s.m.servers[s.spec.Name] != s { // its successor writes to that file
		s.m.mu.Unlock()
		return nil
	}
	mem := memory{Version: memoryVersion, Key: s.spec.Key, Era: s.era, Pins: s.pinsLocked()}
	if s.latest != nil {
		mem.setLists(s.latest.raw)
		mem.About, mem.Cut = s.latest.about, s.latest.cut
	}
	path := s.file()
	s.m.mu.Unlock()
	return mem.write(path)
}

// offer makes the offer of a listing; nil if it is not to be seen.
func (s *server) offer(k kind, listing json.RawMessage) (*offer, error) {
	how := k.sort()
	own, ok := mcp.String(jsonrpc.Field(listing, how.key))
	if !ok {
		return nil, fmt.Errorf("%s is no string", how.key)
	}
	if !s.offers(own) {
		return nil, nil //nolint:nilnil // it does not exist
	}
	o := &offer{s: s, name: own, method: how.get, listing: listing, plain: listing}
	o.remote = tool.Remote{Name: own, Server: s.spec.Name, Names: []string{own}, Contract: tool.Convergent}
	if k == tools {
		o.hash = likenesses([]json.RawMessage{listing})[0].hash
		o.remote.Contract = s.contract(own, listing)
	}
	if how.hidden {
		o.remote.Name = tool.Shown(s.spec.Name, own)
		o.alone = tool.ShownAlone(s.spec.Name, own)
	}
	o.remote.Handle = func(ctx context.Context, c tool.RemoteCall) (tool.RemoteResult, error) {
		return s.m.handle(ctx, s, o, &c)
	}
	if !how.hidden {
		return o, nil
	}
	contract := o.remote.Contract
	if k != tools {
		contract = ""
	}
	var err error
	if o.listing, err = shown(listing, o.remote.Name, contract); err == nil && (k == tools || o.alone != own) {
		o.plain, err = shown(listing, o.alone, contract)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// shown returns a listing as clients see it: with another name and, of a tool,
// with its contract, which stands where Holdline's own tools have theirs.
func shown(listing json.RawMessage, name string, contract tool.Contract) (json.RawMessage, error) {
	note := fmt.Sprintf(`"holdline":{"replayContract":%q}`, contract)
	annotated := contract == ""
	out, err := jsonrpc.Rewrite(listing, func(key string, value []byte) []byte {
		switch {
		case key == "name":
			return jsonrpc.AppendString(nil, name)
		case key == "annotations" && contract != "":
			annotated = true
			return annotate(value, note)
		}
		return value
	})
	if err == nil && !annotated {
		out = jsonrpc.Prepend(out, `"annotations":{`+note+`}`)
	}
	return out, err
}

// annotate returns the annotations of a tool with a note of Holdline's in them;
// what is no object is left as it is.
func annotate(annotations []byte, note string) []byte {
	if len(annotations) == 0 || annotations[0] != '{' {
		return annotations
	}
	out, err := jsonrpc.Rewrite(annotations, func(key string, value []byte) []byte {
		if key == "holdline" { // the server is a Holdline, too, or pretends to be
			return nil
		}
		return value
	})
	if err != nil {
		return annotations
	}
	return jsonrpc.Prepend(out, note)
}

// metaEffect is the key in the _meta of a tool's listing under which a server
// made with libmcp says whether a call may run again.
const metaEffect = "io.libmcp/effect"

// contract is the replay contract of a tool: the operator's word, else what
// its listing says.
func (s *server) contract(name string, listing json.RawMessage) tool.Contract {
	if operator := s.now().Contract; operator != nil {
		if c := operator(name); c != "" {
			return c
		}
	}
	if effect := jsonrpc.Field(jsonrpc.Field(listing, "_meta"), metaEffect); effect != nil {
		// A call that the server would tell from its repetition, or of which it
		// could be asked, is made once all the same: only some calls have the key.
		if kind, _ := mcp.String(jsonrpc.Field(jsonrpc.Field(effect, "recovery"), "kind")); kind == "replay_safe" {
			return tool.Convergent
		}
		return tool.NeverReplay
	}
	hints := jsonrpc.Field(listing, "annotations")
	for _, hint := range []string{"readOnlyHint", "idempotentHint"} {
		if string(jsonrpc.Field(hints, hint)) == "true" {
			return tool.Convergent
		}
	}
	return tool.NeverReplay
}

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

// offers reports whether the server's own rules let something pass.
func (s *server) offers(names ...string) bool {
	offers := s.now().Offers
	return offers == nil || offers(names...)
}

// isFor reports whether the identity of a session may use the offer.
func (o *offer) isFor(c *tool.Caller) bool {
	return o.s.m.o.Rules == nil || o.s.m.o.Rules.May(c.Identity, o.remote.Server, o.remote.Names...)
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
	list, _, _ := m.listing(ctx, c, tools)
	return list
}

// Items is what a session sees of all servers that the method lists; false if
// it is none that servers know.
func (m *Manager) Items(ctx context.Context, c tool.Caller, method string) (member string, list []tool.Listing, ok bool) {
	for k := range kinds {
		if how := k.sort(); how.list == method && k != tools {
			list, _, _ := m.listing(ctx, c, k)
			return how.member, list, true
		}
	}
	return "", nil, false
}

// listing is what a session sees of a kind. Of two servers that list one
// resource the first by name has it. unasked has, by server, why it is not known
// what that offers.
func (m *Manager) listing(ctx context.Context, c tool.Caller, k kind) (list []tool.Listing, all map[string]*offer, unasked map[*server]error) {
	unasked = m.askAll(ctx, c)
	list, all = m.listed(c, k)
	return list, all, unasked
}

// listed is [Manager.listing] as far as it is known.
func (m *Manager) listed(c tool.Caller, k kind) ([]tool.Listing, map[string]*offer) {
	list, seen := []tool.Listing{}, map[string]*offer{}
	for _, o := range m.offered(&c, k) {
		if seen[o.remote.Name] != nil || !o.isFor(&c) {
			continue
		}
		seen[o.remote.Name] = o
		raw := o.listing
		if c.Only != "" {
			raw = o.plain
		}
		list = append(list, tool.Listing{Name: o.remote.Name, Raw: raw})
	}
	slices.SortFunc(list, func(a, b tool.Listing) int { return cmp.Compare(a.Name, b.Name) })
	return list, seen
}

// offered is what the servers that a caller sees offer of a kind, by server, as
// far as it is known, but for what is blocked, and whether or not the caller may
// use it.
func (m *Manager) offered(c *tool.Caller, k kind) []*offer {
	m.awaitSights(m.life, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*offer
	for _, s := range m.inOrderLocked() {
		if !s.visible(c) {
			continue
		}
		for _, o := range s.offersLocked(c).all(k) {
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
	slices.SortFunc(all, func(a, b *server) int { return cmp.Compare(a.spec.Name, b.spec.Name) })
	return all
}

// nextList is the same for a server whose last start has failed: it may be
// mended, but probably is not.
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
	if o := m.find(ctx, c, tools, name); o != nil {
		return &o.remote, true
	}
	return nil, false
}

// find is what bears that exposed name.
func (m *Manager) find(ctx context.Context, c tool.Caller, k kind, name string) *offer {
	found, unlisted := m.known(&c, k, name)
	if found != nil || len(unlisted) == 0 {
		return found
	}
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, fault.New(fault.Timeout, fault.Server, mcp.ToolsCall+":"+name,
		"its server has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	var failed *offer
	for _, s := range unlisted {
		if err := s.listFor(ctx, c, name); err != nil {
			failed = s.unknown(k, name, err)
			continue
		}
		m.mu.Lock()
		o := s.offersLocked(&c).named(k, &c, name)
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
func (m *Manager) known(c *tool.Caller, k kind, name string) (found *offer, unlisted []*server) {
	m.awaitSights(m.life, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	for server, s := range m.servers {
		if !s.visible(c) {
			continue
		}
		of := s.offersLocked(c)
		if o := of.named(k, c, name); o != nil && (found == nil || server < found.s.spec.Name) {
			found = o
		}
		if of == nil && (c.Only != "" || tool.MayBeOf(s.spec.Name, name)) {
			unlisted = append(unlisted, s)
		}
	}
	slices.SortFunc(unlisted, func(a, b *server) int { return cmp.Compare(a.spec.Name, b.spec.Name) })
	return found, unlisted
}

// unknown is what stands for that which a server may offer under a name: what
// it offers is not known, for that error, with which the use of it ends.
func (s *server) unknown(k kind, name string, err error) *offer {
	return &offer{s: s, name: name, method: k.sort().get, remote: tool.Remote{
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
	about := s.offersLocked(&c).says()
	m.mu.Unlock()
	if about == nil {
		_, err := s.ready(ctx, c)
		m.mu.Lock()
		about = s.offersLocked(&c).says()
		if inst := s.instanceLocked(&c); errors.Is(err, errStarting) && inst.failedToStartLocked() {
			err = inst.err
		}
		m.mu.Unlock()
		if errors.Is(err, errStarting) {
			return tool.About{
				Capabilities: json.RawMessage(everything), Info: unknownVersion(c.Only),
				Instructions: "The MCP server " + c.Only + " was still starting when this session began. Its tools appear when it is up.",
			}, nil
		}
		if err != nil {
			return tool.About{}, err
		}
	}
	a := tool.About{Capabilities: jsonrpc.Field(about, "capabilities"), Info: jsonrpc.Field(about, "serverInfo")}
	if a.Info == nil { // a modern server may say it beside the result
		a.Info = jsonrpc.Field(jsonrpc.Field(about, "_meta"), mcp.MetaServer)
	}
	if a.Info == nil || jsonrpc.DeeperThan(a.Info, maxListingDepth) || len(a.Info) > maxListing {
		a.Info = unknownVersion(c.Only)
	}
	a.Capabilities = passed(a.Capabilities)
	instructions, _ := clipText(jsonrpc.Field(about, "instructions"), maxDescription)
	a.Instructions, _ = mcp.String(instructions)
	return a, nil
}

// unknownVersion returns the serverInfo of a server that has not said what it
// is. Clients want a version that is not empty.
func unknownVersion(server string) json.RawMessage {
	return fmt.Appendf(nil, `{"name":%q,"version":"unknown"}`, server)
}

// everything are the capabilities of a server of which it is not known yet what
// it offers.
const everything = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},` +
	`"completions":{},"logging":{}}`

// passed is what holdline passes on of a server's capabilities.
func passed(capabilities json.RawMessage) json.RawMessage {
	if len(capabilities) == 0 || capabilities[0] != '{' || len(capabilities) > maxListing || jsonrpc.DeeperThan(capabilities, maxListingDepth) {
		return json.RawMessage(`{"tools":{"listChanged":true}}`)
	}
	out, err := jsonrpc.Rewrite(capabilities, func(key string, value []byte) []byte {
		switch key {
		case "tools", "prompts":
			return []byte(`{"listChanged":true}`)
		case "resources":
			if string(jsonrpc.Field(value, "subscribe")) == "true" {
				return []byte(`{"subscribe":true,"listChanged":true}`)
			}
			return []byte(`{"listChanged":true}`)
		case "completions", "experimental", "logging":
			return value
		}
		return nil
	})
	if err != nil {
		return json.RawMessage(`{"tools":{"listChanged":true}}`)
	}
	return out
}

// Route finds where a request goes that is no call of a tool: for a prompt by
// its name, for a resource by its URI or the template that it begins like, for
// a completion by what it is for. It is nil if no server is concerned, and not
// ok if no server knows such requests.
func (m *Manager) Route(ctx context.Context, c tool.Caller, method string, params json.RawMessage) (to *tool.Remote, ok bool) {
	var o *offer
	switch method {
	case mcp.PromptsGet:
		name, _ := mcp.String(jsonrpc.Field(params, "name"))
		o = m.find(ctx, c, prompts, name)
	case mcp.ResourcesRead:
		uri, _ := mcp.String(jsonrpc.Field(params, "uri"))
		o = m.resource(ctx, c, uri)
	case mcp.Complete:
		ref := jsonrpc.Field(params, "ref")
		if name, ok := mcp.String(jsonrpc.Field(ref, "name")); ok {
			o = m.find(ctx, c, prompts, name)
		} else if uri, ok := mcp.String(jsonrpc.Field(ref, "uri")); ok {
			o = m.resource(ctx, c, uri)
		}
		if o != nil {
			o = o.s.completion(o)
		}
	default:
		return nil, false
	}
	if o == nil {
		return nil, true
	}
	return &o.remote, true
}

// completion is the offer of a completion for another offer.
func (s *server) completion(of *offer) *offer {
	o := &offer{s: s, name: of.name, method: mcp.Complete}
	o.remote = tool.Remote{Name: of.remote.Name, Server: s.spec.Name, Names: of.remote.Names, Contract: tool.Convergent}
	o.remote.Handle = func(ctx context.Context, rc tool.RemoteCall) (tool.RemoteResult, error) {
		return s.m.handle(ctx, s, o, &rc)
	}
	return o
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
		has.Prompts = has.Prompts || len(of.raw[prompts]) > 0
		has.Resources = has.Resources || len(of.raw[resources])+len(of.raw[templates]) > 0
		has.Updates = has.Updates || subscribable(of.about)
		has.Logging = has.Logging || can(of.about, "logging")
	}
	return has
}
