package hosted

import (
	"context"
	"slices"
	"strings"
	"sync"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Discover returns the tools that a caller may use of each server that it sees, by
// name, and what is wrong with the server. Servers that have never listed are asked
// at the same time, for a limited time in all; those that start with their first
// call are asked only with start.
func (m *Manager) Discover(ctx context.Context, c tool.Caller, start bool) []listing.ServerTools {
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, fault.New(fault.Timeout, fault.Server, mcp.ToolsList,
		"it has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	asked := m.visible(&c)
	all := make([]listing.ServerTools, len(asked))
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
			all[i].KeepUsable(m.o.Rules, c.Identity)
		})
	}
	asking.Wait()
	return all
}

// rests returns why a server is not asked what it offers; nil if it is asked, or if
// that is known.
func (s *server) rests(c *tool.Caller, start bool) *fault.Record {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
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

// trouble returns why a call to a server would fail at once, as far as that is
// known; nil if nothing is known to be wrong.
func (s *server) trouble(c *tool.Caller) *fault.Record {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.stopped {
		return s.stoppedFault()
	}
	inst := s.m.instances[s.instanceKey(c)]
	switch {
	case inst == nil && slices.Contains(s.ejected, s.instanceKey(c).of):
		return newGuards(s.now()).restarts.Fault(s.spec.Name, "")
	case inst == nil || inst.up != nil && inst.up.state == serving:
		return nil
	case inst.guards.restarts.Ejected():
		return inst.ejectedLocked()
	case inst.failedToStartLocked():
		return fault.From(inst.err, fault.Server, operation(s.spec.Name))
	}
	return nil
}

// Inner returns the tool of a server by its own name or by the one that sessions
// see. A server that has never listed is asked first; if it does not start, the
// tool's calls fail with the reason. An error is a fault unknown_tool, which names
// what is most like it of what the caller may use.
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
			err = s.listFor(ctx, c, shown)
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
