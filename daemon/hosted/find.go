package hosted

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/daemon/words"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Discover is what each server that a caller sees offers it, by name, as far as
// it may use that, and what is wrong with the server. Servers that were never listed are asked at the
// same time, for a limited time in all; of those that are started by their
// first call alone only with start.
func (m *Manager) Discover(ctx context.Context, c tool.Caller, start bool) []Offers {
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, fault.New(fault.Timeout, fault.Server, mcp.ToolsList,
		"it has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	asked := m.visible(&c)
	all := make([]Offers, len(asked))
	var asking sync.WaitGroup
	for i, s := range asked {
		if f := s.rests(&c, start); f != nil {
			all[i] = Offers{Server: s.spec.Name, Tools: []Offered{}, Fault: f}
			continue
		}
		asking.Go(func() {
			all[i] = s.offered(ctx, c)
			all[i].Tools = slices.DeleteFunc(all[i].Tools, func(t Offered) bool { return !m.mayUse(&c, t.offer) })
			if all[i].Fault == nil {
				all[i].Fault = s.trouble(&c)
			}
			all[i].leaveOutBlocked()
		})
	}
	asking.Wait()
	return all
}

// leaveOutBlocked leaves out the tools that are blocked, which is the server's
// fault if it has no other.
func (of *Offers) leaveOutBlocked() {
	var blocked []string
	of.Tools = slices.DeleteFunc(of.Tools, func(t Offered) bool {
		if t.Blocked {
			blocked = append(blocked, t.Name)
		}
		return t.Blocked
	})
	if n := len(blocked); n > 0 && of.Fault == nil {
		of.Fault = fault.New(fault.Denied, fault.Host, operation(of.Server),
			"%d of its tools have changed since they were first seen, and are blocked until the user accepts them (holdline servers tools %s --changes): %s",
			n, of.Server, strings.Join(blocked[:min(n, maxNear)], ", "))
	}
}

// rests is why a server is not asked what it offers; nil if it is, or if that
// is known.
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

// trouble is why a call to a server would fail at once, as far as that is
// known; nil if nothing is.
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

// Inner is the tool of a server by its own name or by that which sessions see.
// A server that was never listed is asked first; if it does not come up, the
// tool's calls fail with the reason. An error is a fault unknown_tool, which
// names what is like it of that which the caller may use.
func (m *Manager) Inner(ctx context.Context, c tool.Caller, name, own string) (*tool.Remote, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, fault.New(fault.Timeout, fault.Server, mcp.ToolsCall+":"+own,
		"its server has not said within %v what it offers: it may still be starting, try again", firstList))
	defer cancel()
	all := m.visible(&c)
	i := slices.IndexFunc(all, func(s *server) bool { return s.spec.Name == name })
	if i < 0 {
		var names []string
		for _, s := range all {
			names = append(names, s.spec.Name)
		}
		return nil, unknownInner("no server "+quote(name)+" is hosted here", near(name, names))
	}
	s := all[i]
	o, listed := s.ownTool(&c, own)
	if !listed {
		shown := tool.Shown(name, strings.TrimPrefix(own, name+"__"))
		if err := s.listFor(ctx, c, shown); err != nil {
			return &s.unknown(listing.Tools, shown, err).Remote, nil
		}
		o, _ = s.ownTool(&c, own)
	}
	if o != nil {
		return &o.Remote, nil
	}
	var names []string
	m.mu.Lock()
	for _, o := range s.offersLocked(&c).All(listing.Tools) {
		if m.mayUse(&c, o) {
			names = append(names, o.Own)
		}
	}
	m.mu.Unlock()
	return nil, unknownInner("server "+name+" offers no tool "+quote(own), near(own, names))
}

// own is the tool that a caller has of the server, by the server's own name or
// else by that which sessions see; nil if there is none. It tells whether it is
// known what there is.
func (s *server) ownTool(c *tool.Caller, name string) (o *listing.Offer, listed bool) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	of := s.offersLocked(c)
	return of.Tool(name), of != nil
}

// unknownInner says what there is none of, and what there is.
func unknownInner(detail string, near []string) *fault.Record {
	switch len(near) {
	case 0:
	case 1:
		detail += "; there is " + near[0]
	default:
		detail += "; there are " + strings.Join(near, ", ")
	}
	return fault.New(fault.UnknownTool, fault.Host, mcp.ToolsCall+":"+tool.CallTool, "%s", detail)
}

// quote is a name that a caller made up, fit for an error.
func quote(name string) string {
	const most = 128
	return strconv.Quote(name[:min(len(name), most)])
}

// Limits of what is named in the place of what there is not.
const (
	maxNear     = 5
	maxCompared = 48 // characters of a name
)

// near are the names most like one, the nearest first.
func near(name string, names []string) []string {
	name = strings.ToLower(name[:min(len(name), maxCompared)])
	type rated struct {
		name string
		far  int
	}
	all := make([]rated, len(names))
	for i, other := range names {
		lower := strings.ToLower(other[:min(len(other), maxCompared)])
		all[i] = rated{other, words.Distance(name, lower)}
		if strings.Contains(lower, name) {
			all[i].far = 0
		}
	}
	slices.SortFunc(all, func(a, b rated) int { return cmp.Or(cmp.Compare(a.far, b.far), strings.Compare(a.name, b.name)) })
	var out []string
	for _, r := range all[:min(len(all), maxNear)] {
		out = append(out, r.name)
	}
	return out
}
