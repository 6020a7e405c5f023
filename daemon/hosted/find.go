package hosted

import (
	"context"
	"slices"
	"strings"
	"sync"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Discover returns the tools that a caller may use of each server that it sees, by
// name, and what is wrong with the server. It asks servers that have never listed,
// all at the same time and at most for [firstList]. It asks lazy servers only if
// start is true.
func (m *Manager) Discover(ctx context.Context, c tool.Caller, start bool) []control.ServerOffers {
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, fault.New(fault.Timeout, fault.Server, mcp.ToolsList,
		"it has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	asked := m.visible(&c)
	all := make([]control.ServerOffers, len(asked))
	var asking sync.WaitGroup
	for i, s := range asked {
		if f := s.rests(&c, start); f != nil {
			all[i] = noTools(s.spec.Name, f)
			continue
		}
		asking.Go(func() {
			all[i] = s.offered(ctx, c)
			if all[i].Fault == nil {
				all[i].Fault = s.trouble(&c)
			}
			listing.KeepUsable(&all[i], m.o.Rules, c.Identity)
		})
	}
	asking.Wait()
	return all
}

// rests returns why a server is not asked for its tools: it is lazy and does not run.
// It returns nil if the server is to be asked, or if its tools are known.
func (s *server) rests(c *tool.Caller, start bool) *fault.Record {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if start || !s.now().Lazy || s.offersLocked(c) != nil {
		return nil
	}
	for key, inst := range s.m.instances {
		if key.server == s.spec.Name && inst.up != nil {
			return nil // it runs already
		}
	}
	return fault.New(fault.InvalidInput, fault.Server, operation(s.spec.Name),
		"what it offers is not known, since it was never started: ask with start=true, or call a tool of it")
}

// trouble returns why a call to the server would fail at once, or nil if no reason is
// known.
func (s *server) trouble(c *tool.Caller) *fault.Record {
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if s.stopped {
		return s.stoppedFault()
	}
	inst := s.m.instances[s.instanceKey(c)]
	switch {
	case inst == nil && slices.Contains(s.ejected, s.instanceKey(c).of):
		return newGuards(s.now()).restarts.Fault(s.spec.Name, "")
	case inst == nil || inst.up != nil && inst.up.State == upstream.Serving:
		return nil
	case inst.guards.restarts.Ejected():
		return inst.ejectedLocked()
	case inst.failedToStartLocked():
		return fault.From(inst.err, fault.Server, operation(s.spec.Name))
	}
	return nil
}

// Inner returns a tool of a server by the server's name for it, or by the name that
// sessions see. It first asks a server that has never listed; if that fails, the
// returned tool's calls fail with the reason. The error is a fault unknown_tool that
// suggests similar names which the caller may use.
func (m *Manager) Inner(ctx context.Context, c tool.Caller, name, own string) (*tool.Remote, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, firstList,
		fault.New(fault.Timeout, fault.Server, mcp.ToolsCall+":"+own,
			"its server has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	view := m.view(&c)
	offered := view.Server(name)
	if offered == nil {
		return nil, view.UnknownServer(name)
	}
	if offered.Offering == nil {
		shown := tool.Shown(name, strings.TrimPrefix(own, name+"__"))
		s, err := m.server(name)
		if err == nil {
			err = dispatch.Try(ctx, s, c, shown)
		}
		if err != nil {
			return &listing.Unknown(name, listing.Tools, shown, err).Remote, nil
		}
		view = m.view(&c)
		if offered = view.Server(name); offered == nil { // it was removed meanwhile
			return nil, view.UnknownServer(name)
		}
	}
	if o := offered.Offering.Tool(own); o != nil {
		return &o.Remote, nil
	}
	return nil, view.UnknownTool(name, own)
}
