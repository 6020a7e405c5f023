package hosted

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// resource is the listed resource of that URI, or what is made of the template
// that it is most likely made of. A session for one server may ask that server
// for any. A resource that is known waits for no other server.
func (m *Manager) resource(ctx context.Context, c tool.Caller, uri string) *offer {
	if _, all := m.listed(c, resources); all[uri] != nil {
		return all[uri]
	}
	_, all, unasked := m.listing(ctx, c, resources)
	if o := all[uri]; o != nil {
		return o
	}
	best := m.template(&c, uri)
	if best == nil {
		best = m.unlisted(c)
	}
	if best == nil && len(unasked) > 0 {
		s := slices.MinFunc(slices.Collect(maps.Keys(unasked)), func(a, b *server) int { return cmp.Compare(a.spec.Name, b.spec.Name) })
		return s.unknown(resources, uri, asFault(unasked[s], &offer{s: s, method: mcp.ResourcesRead}))
	}
	if best == nil {
		return nil
	}
	own := *best // what is asked for is not the template itself
	own.name, own.remote.Name, own.remote.Names = uri, uri, best.s.namesOf(&c, uri)
	own.remote.Handle = func(ctx context.Context, rc tool.RemoteCall) (tool.RemoteResult, error) {
		return m.handle(ctx, own.s, &own, &rc)
	}
	return &own
}

// template is the template that a URI is most likely made of: of those whose
// words before the first variable it begins with, the one with the most. One of
// a server of which the caller may use the resource goes before others.
func (m *Manager) template(c *tool.Caller, uri string) (best *offer) {
	allowed := false
	for _, o := range m.offered(c, templates) {
		if !madeOf(uri, o.name) {
			continue
		}
		may := m.o.Rules == nil || m.o.Rules.May(c.Identity, o.s.spec.Name, o.s.namesOf(c, uri)...)
		if best == nil || may && !allowed || may == allowed && len(fixed(o.name)) > len(fixed(best.name)) {
			best, allowed = o, may
		}
	}
	return best
}

// fixed is what stands in a template before its first variable.
func fixed(template string) string {
	words, _, _ := strings.Cut(template, "{")
	return words
}

// madeOf reports whether a URI may be made of a template.
func madeOf(uri, template string) bool {
	return strings.HasPrefix(uri, fixed(template)) || uri == template
}

// namesOf returns the names by which rules know a resource: its URI, and all
// templates that the server lists of which it may be made, offered or not.
func (s *server) namesOf(c *tool.Caller, uri string) []string {
	s.m.mu.Lock()
	raw := s.offersLocked(c).lists()[templates]
	s.m.mu.Unlock()
	names := []string{uri}
	for _, listing := range raw {
		if name, ok := mcp.String(jsonrpc.Field(listing, templates.sort().key)); ok && madeOf(uri, name) {
			names = append(names, name)
		}
	}
	return names
}

// unlisted is the offer of what is in no list, for a session for one server: it
// may have resources all the same, and what it has not it refuses in its own
// words.
func (m *Manager) unlisted(c tool.Caller) *offer {
	m.awaitSights(m.life, &c)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.servers[c.Only]
	if s == nil || !s.visible(&c) || !can(s.offersLocked(&c).says(), "resources") {
		return nil
	}
	return &offer{s: s, method: mcp.ResourcesRead, remote: tool.Remote{Server: s.spec.Name, Contract: tool.Convergent}}
}
