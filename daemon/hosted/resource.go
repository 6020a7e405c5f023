package hosted

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// resource is the listed resource of that URI, or what is made of the template
// that it is most likely made of. A session for one server may ask that server
// for any. A resource that is known waits for no other server.
func (m *Manager) resource(ctx context.Context, c tool.Caller, uri string) *listing.Offer {
	if _, all := m.listed(c, listing.Resources); all[uri] != nil {
		return all[uri]
	}
	_, all, unasked := m.listing(ctx, c, listing.Resources)
	if o := all[uri]; o != nil {
		return o
	}
	best := m.template(&c, uri)
	if best == nil {
		best = m.unlisted(c)
	}
	if best == nil && len(unasked) > 0 {
		s := slices.MinFunc(slices.Collect(maps.Keys(unasked)), compareNames)
		return s.unknown(listing.Resources, uri, asFault(unasked[s], &listing.Offer{Method: mcp.ResourcesRead}))
	}
	if best == nil {
		return nil
	}
	own := *best // what is asked for is not the template itself
	own.Own, own.Remote.Name, own.Remote.Names = uri, uri, m.namesOf(&c, best.Remote.Server, uri)
	own.Bind(m.handleOffer)
	return &own
}

// template is the template that a URI is most likely made of: of those whose
// words before the first variable it begins with, the one with the most. One of
// a server of which the caller may use the resource goes before others.
func (m *Manager) template(c *tool.Caller, uri string) (best *listing.Offer) {
	allowed := false
	for _, o := range m.offered(c, listing.Templates) {
		if !madeOf(uri, o.Own) {
			continue
		}
		server := o.Remote.Server
		may := m.o.Rules == nil || m.o.Rules.May(c.Identity, server, m.namesOf(c, server, uri)...)
		if best == nil || may && !allowed || may == allowed && len(fixed(o.Own)) > len(fixed(best.Own)) {
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

// namesOf returns the names by which rules know a resource of a server: its URI,
// and all templates of the server that it may be made of, offered or not.
func (m *Manager) namesOf(c *tool.Caller, server, uri string) []string {
	m.mu.Lock()
	var raw []json.RawMessage
	if s := m.servers[server]; s != nil {
		raw = s.offersLocked(c).Lists()[listing.Templates]
	}
	m.mu.Unlock()
	names := []string{uri}
	for _, one := range raw {
		if name, ok := mcp.String(jsonrpc.Field(one, listing.Templates.MCP().Key)); ok && madeOf(uri, name) {
			names = append(names, name)
		}
	}
	return names
}

// unlisted is the offer of what is in no list, for a session for one server: it
// may have resources all the same, and what it has not it refuses in its own
// words.
func (m *Manager) unlisted(c tool.Caller) *listing.Offer {
	m.awaitSights(m.life, &c)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.servers[c.Only]
	if s == nil || !s.visible(&c) || !listing.Has(s.offersLocked(&c).About(), "resources") {
		return nil
	}
	return &listing.Offer{Method: mcp.ResourcesRead, Remote: tool.Remote{Server: s.spec.Name, Contract: tool.Convergent}}
}
