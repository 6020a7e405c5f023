package hosted

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/masked"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Offers returns the tools of one server or, without a name, those of each server
// that the caller sees. Servers that have never listed are asked at the same time.
func (m *Manager) Offers(ctx context.Context, c tool.Caller, name string) ([]control.ServerOffers, error) {
	var asked []*server
	if name != "" {
		s, err := m.server(name)
		if err != nil {
			return nil, err
		}
		asked = append(asked, s)
	} else {
		asked = m.visible(&c)
	}
	all := make([]control.ServerOffers, len(asked))
	var asking sync.WaitGroup
	for i, s := range asked {
		asking.Go(func() { all[i] = s.offered(ctx, c) })
	}
	asking.Wait()
	return all, nil
}

// visible returns the servers that a caller sees, by name.
func (m *Manager) visible(c *tool.Caller) []*server {
	m.awaitSights(m.hub.Life, c)
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	return slices.DeleteFunc(m.inOrderLocked(), func(s *server) bool { return !s.visible(c) })
}

// offered returns the tools that the server offers a caller. It first asks a server
// that has never listed.
func (s *server) offered(ctx context.Context, c tool.Caller) control.ServerOffers {
	view := s.view(&c)
	if view.Offering == nil {
		if err := dispatch.Try(ctx, s, c, s.spec.Name); err != nil {
			return noTools(s.spec.Name, fault.From(err, fault.Server, operation(s.spec.Name)))
		}
		view = s.view(&c)
	}
	return view.Tools()
}

// noTools returns the entry of a server whose tools are not known, with the reason.
func noTools(server string, why *fault.Record) control.ServerOffers {
	return control.ServerOffers{Server: server, Tools: []control.ServerTool{}, Fault: why}
}

// Tool returns a tool of a server by its own name, or by the one that sessions see.
// A server that has never listed is asked first.
func (m *Manager) Tool(ctx context.Context, c tool.Caller, server, name string) (*tool.Remote, error) {
	s, err := m.server(server)
	if err != nil {
		return nil, err
	}
	if out := s.offered(ctx, c); out.Fault != nil {
		return nil, out.Fault
	}
	view := s.view(&c)
	if o := view.Offering.Tool(name); o != nil {
		return &o.Remote, nil
	}
	return nil, fault.New(fault.UnknownTool, fault.Server, mcp.ToolsCall+":"+name,
		"server %s offers no tool %q: holdline servers tools %s shows those that it does", server, name, server)
}

// Logs returns what each process of a server wrote to stderr, with the secrets of its
// environment hidden. after has the offset in bytes at which to begin, by worker;
// other logs begin near their end. With follow an incomplete last line is left for
// the next call. The fault is that of the process that ended last, or nil.
func (m *Manager) Logs(name string, after map[string]int64, follow bool) ([]control.ServerLog, *fault.Record, error) {
	s, err := m.server(name)
	if err != nil {
		return nil, nil, err
	}
	m.hub.Mu.Lock()
	var running []*upstream.Process
	for u := range m.hub.Processes {
		if instanceOf(u).key.server == name && u.State != upstream.Exited {
			running = append(running, u)
		}
	}
	last := s.fault
	m.hub.Mu.Unlock()
	slices.SortFunc(running, func(a, b *upstream.Process) int { return cmp.Compare(a.ID, b.ID) })
	var logs []control.ServerLog
	for _, u := range running {
		from, known := after[u.ID]
		l, err := u.ReadLog(masked.Place{From: from, Known: known, Follow: follow})
		if err != nil {
			return nil, nil, fmt.Errorf("log of %s: %w", u.ID, err)
		}
		l.Root = instanceOf(u).root
		logs = append(logs, l)
	}
	return logs, last, nil
}
