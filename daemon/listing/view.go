package listing

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// ServerView is what one caller is offered by one server. It does not change: Pins
// and offerings that others use are replaced, never written to.
type ServerView struct {
	Server        string
	Offering      *Offering // nil if the server has never listed anything
	Pins          Pins
	BlocksChanged bool // tools that differ from their pins are neither listed nor called
	Unasked       bool // it has never listed anything, and does so when a client asks for a list
}

// Blocked returns the fault of a tool that cannot be used because it differs from
// its pin and the configuration blocks that; nil for all others.
func (s *ServerView) Blocked(o *Offer) *fault.Record {
	if !s.BlocksChanged {
		return nil
	}
	what, blocked := s.Pins.Blocked(o)
	if !blocked {
		return nil
	}
	if s.Pins.lost != "" {
		return fault.New(fault.Denied, fault.Host, o.Operation(),
			"tool %s of server %s may have changed since it was first seen (%s), and is blocked until the user accepts it: "+
				"holdline servers tools %s shows it, --accept takes it", o.Own, s.Server, what, s.Server)
	}
	return fault.New(fault.Denied, fault.Host, o.Operation(),
		"tool %s of server %s has changed since it was first seen (%s), and is blocked until the user accepts it: "+
			"holdline servers tools %s --changes shows how, --accept in its place takes it",
		o.Own, s.Server, what, s.Server)
}

// View is what one caller sees of all servers at one moment: the offerings of the
// servers that it may see, under the rules of its identity. It never changes, so
// its methods need no lock.
type View struct {
	caller  tool.Caller
	rules   tool.Rules   // nil lets the caller use everything
	version any          // of the rules
	servers []ServerView // by name
}

// NewView returns the view that a caller has of the servers that it sees. It takes
// servers over. rules may be nil.
func NewView(c *tool.Caller, rules tool.Rules, servers []ServerView) *View {
	slices.SortFunc(servers, func(a, b ServerView) int { return cmp.Compare(a.Server, b.Server) })
	v := &View{caller: *c, rules: rules, servers: servers}
	if rules != nil {
		v.version = rules.Version()
	}
	return v
}

// Server returns the view of one server, or nil if the caller does not see it.
func (v *View) Server(name string) *ServerView {
	i := slices.IndexFunc(v.servers, func(s ServerView) bool { return s.Server == name })
	if i < 0 {
		return nil
	}
	return &v.servers[i]
}

// Servers returns the names of the servers that the caller sees, in order.
func (v *View) Servers() []string {
	var names []string
	for i := range v.servers {
		names = append(names, v.servers[i].Server)
	}
	return names
}

// mayUse reports whether the rules let the caller use what a server knows by these
// names.
func (v *View) mayUse(server string, names ...string) bool {
	return v.rules == nil || v.rules.May(v.caller.Who(), server, names...)
}

// offered returns the offers of a kind that are not blocked, by server, whether or
// not the caller may use them.
func (v *View) offered(k Kind) []*Offer {
	var all []*Offer
	for i := range v.servers {
		s := &v.servers[i]
		for _, o := range s.Offering.All(k) {
			if s.Blocked(o) == nil {
				all = append(all, o)
			}
		}
	}
	return all
}

// usable returns the offers of a kind that the caller may use, without those whose
// name an earlier one has: of two servers that list one resource, the first by name
// has it.
func (v *View) usable(k Kind) []*Offer {
	var all []*Offer
	seen := map[string]bool{}
	for _, o := range v.offered(k) {
		if !seen[o.Remote.Name] && v.mayUse(o.Remote.Server, o.Remote.Names...) {
			seen[o.Remote.Name] = true
			all = append(all, o)
		}
	}
	return all
}

// List returns the caller's list of a kind, by name. A [Memo] keeps it.
func (v *View) List(k Kind) []tool.Listing {
	list := []tool.Listing{}
	for _, o := range v.usable(k) {
		raw := o.Raw
		if v.caller.Only != "" {
			raw = o.Plain
		}
		name := o.Remote.Name
		if k == Tools && v.rules != nil && v.caller.Only == "" {
			if renamed := v.rules.Renamed(v.caller.Who(), o.Remote.Server, o.Own); renamed != "" {
				if again, err := shown(raw, renamed, ""); err == nil { // it was shown once, so it is
					name, raw = renamed, again
				}
			}
		}
		list = append(list, tool.Listing{Name: name, Raw: raw})
	}
	slices.SortFunc(list, func(a, b tool.Listing) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Digest returns the digest of the caller's list of a kind. White space does not count: a file
// of lists keeps none. A server that is to be asked first counts as one whose list differs.
func (v *View) Digest(list []tool.Listing) string {
	h := sha256.New()
	var line bytes.Buffer
	for _, l := range list {
		line.Reset()
		if json.Compact(&line, l.Raw) != nil { // it was shown once, so it is JSON
			line.Write(l.Raw)
		}
		_, _ = h.Write(append(line.Bytes(), '\n')) // a hash takes every write
	}
	for i := range v.servers {
		if v.servers[i].Unasked {
			_, _ = io.WriteString(h, v.servers[i].Server+"\n")
		}
	}
	return tool.Digest(h)
}

// Find returns the offer of that exposed name by the first server that has one, or
// nil. unlisted names the servers that have never listed anything and could offer
// it, by their names. Neither rules nor blocks count here: they refuse the call.
func (v *View) Find(k Kind, name string) (found *Offer, unlisted []string) {
	alone := v.caller.Only != ""
	for i := range v.servers {
		s := &v.servers[i]
		if found == nil {
			found = s.Offering.Find(k, name, alone)
		}
		if s.Offering == nil && (alone || tool.MayBeOf(s.Server, name)) {
			unlisted = append(unlisted, s.Server)
		}
	}
	return found, unlisted
}

// Has returns what the servers offer besides tools. A server that has never listed
// anything may offer everything.
func (v *View) Has() tool.Has {
	var has tool.Has
	for i := range v.servers {
		of := v.servers[i].Offering
		if of == nil {
			return tool.Has{Prompts: true, Resources: true, Updates: true, Logging: true}
		}
		lists, about := of.Lists(), of.About()
		has.Prompts = has.Prompts || len(lists[Prompts]) > 0
		has.Resources = has.Resources || len(lists[Resources])+len(lists[Templates]) > 0
		has.Updates = has.Updates || Subscribable(about)
		has.Logging = has.Logging || Has(about, "logging")
	}
	return has
}

// Listed returns the offer of a resource that the caller's list has, or nil.
func (v *View) Listed(uri string) *Offer {
	for _, o := range v.usable(Resources) {
		if o.Remote.Name == uri {
			return o
		}
	}
	return nil
}

// Resource returns the offer of a resource, or nil if no server may have it. That is
// the listed one, or one with the most likely template, whose handler is handle. A
// session for one server may ask that server for any URI: the server may have
// resources that it does not list, and it refuses others itself.
func (v *View) Resource(uri string, handle Handler) *Offer {
	if o := v.Listed(uri); o != nil {
		return o
	}
	best := v.template(uri)
	if best == nil {
		s := v.Server(v.caller.Only)
		if s == nil || !Has(s.Offering.About(), "resources") {
			return nil
		}
		best = &Offer{Method: mcp.ResourcesRead, Remote: tool.Remote{Server: s.Server, Contract: tool.Convergent}}
	}
	own := *best // what is asked for is not the template itself
	own.Own, own.Remote.Name, own.Remote.Names = uri, uri, v.names(best.Remote.Server, uri)
	own.Remote.Unlisted = !slices.Contains(own.Remote.Names[1:], uri) // else it is a template
	own.Bind(handle)
	return &own
}

// template returns the template that a URI is most likely made of. A template fits if
// the URI begins with its text before the first variable. One whose server the caller
// may ask goes before others, then the one with the longest such text.
func (v *View) template(uri string) (best *Offer) {
	allowed := false
	for _, o := range v.offered(Templates) {
		if !madeOf(uri, o.Own) {
			continue
		}
		may := v.mayUse(o.Remote.Server, v.names(o.Remote.Server, uri)...)
		if best == nil || may && !allowed || may == allowed && len(fixed(o.Own)) > len(fixed(best.Own)) {
			best, allowed = o, may
		}
	}
	return best
}

// fixed returns the text of a template before its first variable.
func fixed(template string) string {
	text, _, _ := strings.Cut(template, "{")
	return text
}

// madeOf reports whether a URI may be made of a template.
func madeOf(uri, template string) bool {
	return strings.HasPrefix(uri, fixed(template)) || uri == template
}

// names returns the names by which rules know a resource of a server: its URI, and
// all templates that it may be made of. Templates that are not offered count as well:
// otherwise a rule against a template could be evaded by its URIs.
func (v *View) names(server, uri string) []string {
	names := []string{uri}
	s := v.Server(server)
	if s == nil {
		return names
	}
	for _, listing := range s.Offering.Lists()[Templates] {
		if name, ok := mcp.String(jsonrpc.Field(listing, Templates.MCP().Key)); ok && madeOf(uri, name) {
			names = append(names, name)
		}
	}
	return names
}

// Unknown returns an offer for a name of a server that cannot be asked what it
// offers, because of err. Each use of it ends with err, so the client learns the
// reason instead of "unknown tool".
func Unknown(server string, k Kind, name string, err error) *Offer {
	return &Offer{Own: name, Method: k.MCP().Use, Remote: tool.Remote{
		Name: name, Server: server, Names: []string{strings.TrimPrefix(name, server+"__")}, Contract: tool.NeverReplay,
		Handle: func(context.Context, tool.RemoteCall) (tool.RemoteResult, error) { return tool.RemoteResult{}, err },
	}}
}

// Tools returns all tools that the server offers, also those that are blocked.
func (s *ServerView) Tools() control.ServerOffers {
	all := control.ServerOffers{Server: s.Server, Tools: []control.ServerTool{}}
	for _, o := range s.Offering.All(Tools) {
		t := control.ServerTool{
			Name: o.Own, Exposed: o.Remote.Name, Contract: string(o.Remote.Contract), Listing: o.Plain,
			Blocked: s.Blocked(o) != nil,
		}
		if pin := s.Pins.Find(o.Own); pin != nil {
			t.Pinned, t.Changed = &pin.ServerPin, pin.Changed()
		}
		all.Tools = append(all.Tools, t)
	}
	return all
}

// KeepUsable removes the tools that a session may not use, and those that are blocked. The others
// get the names that the session sees.
// If a tool was removed because it is blocked, that becomes the server's fault, unless it
// has one already. rules may be nil.
func KeepUsable(of *control.ServerOffers, rules tool.Rules, who tool.Who) {
	var blocked []string
	of.Tools = slices.DeleteFunc(of.Tools, func(one control.ServerTool) bool {
		if rules != nil && !rules.May(who, of.Server, one.Name) {
			return true
		}
		if one.Blocked {
			blocked = append(blocked, one.Name)
		}
		return one.Blocked
	})
	for i := range of.Tools {
		if rules == nil {
			break
		}
		if name := rules.Renamed(who, of.Server, of.Tools[i].Name); name != "" {
			of.Tools[i].Exposed = name
		}
	}
	if n := len(blocked); n > 0 && of.Fault == nil {
		of.Fault = fault.New(fault.Denied, fault.Host, "start:"+of.Server,
			"%d of its tools have changed since they were first seen, and are blocked until the user accepts them "+
				"(holdline servers tools %s --changes): %s",
			n, of.Server, strings.Join(blocked[:min(n, maxNear)], ", "))
	}
}

// Announce has a session look at all its lists, and announce those that have changed. The caller
// must hold no lock that the session takes to look at them.
func Announce(c tool.Client) { Notify(c, Tools, Prompts, Resources) }

// Notify is [Announce] for the lists of these kinds.
func Notify(c tool.Client, kinds ...Kind) {
	last := ""
	for _, k := range kinds {
		if changed := k.MCP().Changed; changed != last { // resources and templates have the same one
			c.ListChanged(changed)
			last = changed
		}
	}
}
