package catalog

import (
	"context"
	"strings"
	"sync"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Offers returns the tools of one server or, without a name, those of each server
// that the caller sees. Servers that have never listed are asked at the same time.
func (d *Catalog) Offers(ctx context.Context, c tool.Caller, name string) ([]control.ServerOffers, error) {
	var asked []Server
	if name != "" {
		s, err := d.s.Find(name)
		if err != nil {
			return nil, err
		}
		asked = append(asked, s)
	} else {
		asked = d.visible(ctx, &c)
	}
	all := make([]control.ServerOffers, len(asked))
	var asking sync.WaitGroup
	for i, s := range asked {
		asking.Go(func() { all[i] = Tools(ctx, s, c) })
	}
	asking.Wait()
	return all, nil
}

// Tools returns the tools that the server offers a caller. It first asks a server
// that has never listed.
func Tools(ctx context.Context, s Server, c tool.Caller) control.ServerOffers {
	view := s.View(&c)
	if view.Offering == nil {
		if err := dispatch.Try(ctx, s, c, view.Server); err != nil {
			return noTools(view.Server, fault.From(err, fault.Server, startup.Operation(view.Server)))
		}
		view = s.View(&c)
	}
	return view.Tools()
}

// noTools returns the entry of a server whose tools are not known, with the reason.
func noTools(server string, why *fault.Record) control.ServerOffers {
	return control.ServerOffers{Server: server, Tools: []control.ServerTool{}, Fault: why}
}

// Tool returns a tool of a server by its own name, or by the one that sessions see.
// A server that has never listed is asked first.
func (d *Catalog) Tool(ctx context.Context, c tool.Caller, server, name string) (*tool.Remote, error) {
	s, err := d.s.Find(server)
	if err != nil {
		return nil, err
	}
	if out := Tools(ctx, s, c); out.Fault != nil {
		return nil, out.Fault
	}
	view := s.View(&c)
	if o := view.Offering.Tool(name); o != nil {
		return &o.Remote, nil
	}
	return nil, fault.New(fault.UnknownTool, fault.Server, mcp.ToolsCall+":"+name,
		"server %s offers no tool %q: holdline servers tools %s shows those that it does", server, name, server)
}

// Discover returns the tools that a caller may use of each server that it sees, by
// name, and what is wrong with the server. It asks servers that have never listed,
// all at the same time and at most for [Servers.FirstList]. It asks lazy servers only if
// start is true.
func (d *Catalog) Discover(ctx context.Context, c tool.Caller, start bool) []control.ServerOffers {
	ctx, cancel := d.withFirstList(ctx, mcp.ToolsList)
	defer cancel()
	asked := d.visible(ctx, &c)
	all := make([]control.ServerOffers, len(asked))
	var asking sync.WaitGroup
	for i, s := range asked {
		if f := s.Rests(&c, start); f != nil {
			all[i] = noTools(s.Entry().Name, f)
			continue
		}
		asking.Go(func() {
			all[i] = Tools(ctx, s, c)
			if all[i].Fault == nil {
				all[i].Fault = s.Trouble(&c)
			}
			listing.KeepUsable(&all[i], d.rules, c.Who())
		})
	}
	asking.Wait()
	return all
}

// Inner returns a tool of a server by the server's name for it, or by the name that
// sessions see. It first asks a server that has never listed; if that fails, the
// returned tool's calls fail with the reason. The error is a fault unknown_tool that
// suggests similar names which the caller may use.
func (d *Catalog) Inner(ctx context.Context, c tool.Caller, name, own string) (*tool.Remote, error) {
	ctx, cancel := d.withFirstList(ctx, mcp.ToolsCall+":"+own)
	defer cancel()
	view := d.s.View(ctx, &c)
	offered := view.Server(name)
	if offered == nil {
		return nil, view.UnknownServer(name)
	}
	if offered.Offering == nil {
		shown := tool.Shown(name, strings.TrimPrefix(own, name+"__"))
		pick := func(of *listing.Offering) *listing.Offer { return of.Tool(own) }
		if _, err := d.start(ctx, c, name, shown, pick); err != nil {
			return &d.unlisted(name, listing.Tools, shown, pick, err).Remote, nil
		}
		view = d.s.View(ctx, &c)
		if offered = view.Server(name); offered == nil { // it was removed meanwhile
			return nil, view.UnknownServer(name)
		}
	}
	if o := offered.Offering.Tool(own); o != nil {
		return &o.Remote, nil
	}
	return nil, view.UnknownTool(name, own)
}
