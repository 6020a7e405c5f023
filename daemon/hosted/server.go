package hosted

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/statedir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of a list of tools.
const (
	maxPages = 64
	maxTools = 10_000
)

// firstList is how long a list of tools waits for servers that nobody has ever
// asked for theirs; those that take longer appear by a change of the list.
const firstList = 10 * time.Second

// maxName is the most characters of a tool's name.
const maxName = 128

// server is a configured server: what it offers, and its instances.
type server struct {
	m    *Manager
	spec *Spec // name, scope, key and process hold; the rest is how it was made: see now

	limits atomic.Pointer[Spec] // what is configured now

	era     string        // "" until it is known; guarded by m.mu
	listed  bool          // guarded by m.mu
	stopped bool          // by a user; guarded by m.mu
	ejected []string      // scopes that an earlier daemon has ejected; guarded by m.mu
	fault   *fault.Record // of the last process that ended or did not start; guarded by m.mu
	faultAt time.Time
	raw     []json.RawMessage
	tools   []*offer
	byName  map[string]*offer // by exposed name; guarded by m.mu
}

// offer is one tool of a server.
type offer struct {
	remote  tool.Remote
	name    string // the server's own
	listing json.RawMessage
}

// memory is the file in the catalog directory: what a server offered last, so
// that a list starts nothing.
type memory struct {
	Version int               `json:"version"`
	Key     string            `json:"key"`
	Era     string            `json:"era"`
	Tools   []json.RawMessage `json:"tools"` // as the server lists them
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

// remember reads what the server offered last, if that was the same server. It
// is called before anybody else knows of the server.
func (s *server) remember() error {
	b, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var mem memory
	if err == nil {
		err = json.Unmarshal(b, &mem)
	}
	if err != nil || mem.Version != memoryVersion || mem.Key != s.spec.Key {
		return err
	}
	s.era = mem.Era
	s.setLocked(mem.Tools)
	return nil
}

// keep writes down what the server offers.
func (s *server) keep(raw []json.RawMessage) {
	s.m.mu.Lock()
	mem := memory{Version: memoryVersion, Key: s.spec.Key, Era: s.era, Tools: raw}
	s.m.mu.Unlock()
	b, err := json.Marshal(mem)
	if err == nil {
		err = statedir.WriteFile(s.file(), append(b, '\n'))
	}
	if err != nil {
		s.m.log.Warn("what a server offers cannot be remembered", "server", s.spec.Name, "err", err)
	}
}

// setLocked makes the offers of a server's own list.
func (s *server) setLocked(raw []json.RawMessage) {
	s.listed, s.raw, s.tools, s.byName = true, raw, nil, map[string]*offer{}
	spec := s.now()
	for _, listing := range raw {
		own, ok := mcp.String(jsonrpc.Field(listing, "name"))
		if !ok || spec.May != nil && !spec.May(own) {
			continue
		}
		o := &offer{name: own}
		o.remote = tool.Remote{Name: exposed(s.spec.Name, own), Server: s.spec.Name, Contract: s.contract(own, listing)}
		if s.byName[o.remote.Name] != nil {
			continue // a server that lists a name twice
		}
		o.remote.Handle = func(ctx context.Context, c tool.RemoteCall) (tool.RemoteResult, error) {
			return s.m.handle(ctx, s, o, &c)
		}
		quoted, err := json.Marshal(o.remote.Name)
		if err == nil {
			o.listing, err = jsonrpc.Rewrite(listing, func(key string, value []byte) []byte {
				if key == "name" {
					return quoted
				}
				return value
			})
		}
		if err != nil {
			s.m.log.Warn("tool left out, its listing is malformed", "server", s.spec.Name, "tool", own, "err", err)
			continue
		}
		s.tools = append(s.tools, o)
		s.byName[o.remote.Name] = o
	}
	slices.SortFunc(s.tools, func(a, b *offer) int { return cmp.Compare(a.remote.Name, b.remote.Name) })
}

// contract is the replay contract of a tool: the operator's word, else what
// its annotations say.
func (s *server) contract(name string, listing json.RawMessage) tool.Contract {
	if operator := s.now().Contract; operator != nil {
		if c := operator(name); c != "" {
			return c
		}
	}
	hints := jsonrpc.Field(listing, "annotations")
	for _, hint := range []string{"readOnlyHint", "idempotentHint"} {
		if string(jsonrpc.Field(hints, hint)) == "true" {
			return tool.Convergent
		}
	}
	return tool.NeverReplay
}

// exposed is the name under which sessions see a server's tool: characters
// that clients refuse are replaced, and a name that was changed or is too long
// ends with a hash of what it was.
func exposed(server, own string) string {
	name := []byte(server + "__" + own)
	changed := len(name) > maxName
	for i, c := range name {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '.', c == '-':
		default:
			name[i], changed = '_', true
		}
	}
	if !changed {
		return string(name)
	}
	sum := sha256.Sum256([]byte(server + "__" + own))
	return string(name[:min(len(name), maxName-9)]) + "-" + hex.EncodeToString(sum[:4])
}

// visible tells whether a session sees the server.
func (s *server) visible(c *tool.Caller) bool {
	return s.now().seenBy(c)
}

func (spec *Spec) seenBy(c *tool.Caller) bool {
	return spec.Visible == nil || spec.Visible(cmp.Or(c.Root, c.Cwd))
}

// Waits tells whether [Manager.List] has to ask a server first.
func (m *Manager) Waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.servers {
		if !s.listed {
			return true
		}
	}
	return false
}

// List is what a session sees of all servers, by name. A server that was never
// listed is asked first, for a limited time.
func (m *Manager) List(ctx context.Context, c tool.Caller) []tool.Listing {
	ctx, cancel := context.WithTimeout(ctx, firstList)
	defer cancel()
	var asking sync.WaitGroup
	m.mu.Lock()
	for _, s := range m.servers {
		if s.listed || !s.visible(&c) {
			continue
		}
		asking.Go(func() {
			if _, err := s.ready(ctx, c); err != nil && ctx.Err() == nil {
				m.log.WarnContext(ctx, "server is not listed", "server", s.spec.Name, "err", err)
			}
		})
	}
	m.mu.Unlock()
	asking.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []tool.Listing{}
	for _, s := range m.servers {
		if !s.visible(&c) {
			continue
		}
		for _, o := range s.tools {
			list = append(list, tool.Listing{Name: o.remote.Name, Raw: o.listing})
		}
	}
	slices.SortFunc(list, func(a, b tool.Listing) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Find is the tool of that exposed name; false if no server offers it. A
// server whose name it bears and that was never listed is asked first; if it
// does not come up, the tool's calls fail with the reason.
func (m *Manager) Find(ctx context.Context, c tool.Caller, name string) (*tool.Remote, bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, fault.New(fault.Timeout, fault.Server, mcp.ToolsCall+":"+name,
		"its server has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	m.mu.Lock()
	var unlisted []*server
	for _, s := range m.servers {
		if !s.visible(&c) {
			continue
		}
		if o := s.byName[name]; o != nil {
			m.mu.Unlock()
			return &o.remote, true
		}
		if !s.listed && strings.HasPrefix(name, s.spec.Name+"__") {
			unlisted = append(unlisted, s)
		}
	}
	m.mu.Unlock()
	var failed *tool.Remote
	for _, s := range unlisted {
		if err := s.listFor(ctx, c, name); err != nil {
			failed = &tool.Remote{
				Name: name, Server: s.spec.Name, Contract: tool.NeverReplay,
				Handle: func(context.Context, tool.RemoteCall) (tool.RemoteResult, error) { return tool.RemoteResult{}, err },
			}
			continue
		}
		m.mu.Lock()
		o := s.byName[name]
		m.mu.Unlock()
		if o != nil {
			return &o.remote, true
		}
	}
	return failed, failed != nil
}

// changed tells all sessions that the list is not what it was.
func (m *Manager) changed() {
	m.mu.Lock()
	all := make([]tool.Client, 0, len(m.clients))
	for _, c := range m.clients {
		all = append(all, c)
	}
	m.mu.Unlock()
	for _, c := range all {
		c.ListChanged()
	}
}

// offers takes a server's list, and tells sessions if it is another one.
func (s *server) offers(raw []json.RawMessage) {
	s.m.mu.Lock()
	if s.m.servers[s.spec.Name] != s { // it was configured otherwise meanwhile
		s.m.mu.Unlock()
		return
	}
	before := s.tools
	first := !s.listed
	s.setLocked(raw)
	same := sameOffers(before, s.tools)
	s.m.mu.Unlock()
	if same && !first {
		return
	}
	s.m.cache.Forget(s.spec.Name)
	s.keep(raw)
	s.m.changed()
}

func sameOffers(a, b []*offer) bool {
	return slices.EqualFunc(a, b, func(a, b *offer) bool {
		return string(a.listing) == string(b.listing) && a.remote.Contract == b.remote.Contract
	})
}
