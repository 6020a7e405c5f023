package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/handshake"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// source returns what makes offers from the server's lists, by the present
// configuration.
func (s *server) source() *listing.Source {
	spec := s.now()
	return &listing.Source{
		Server: s.spec.Name, Offers: spec.Offers, Contract: spec.Contract,
		Handle: func(ctx context.Context, o *listing.Offer, rc *tool.RemoteCall) (tool.RemoteResult, error) {
			return s.m.calls.Handle(ctx, s, o, rc)
		},
		Warn: func(kind string, err error) {
			s.m.hub.Log.Warn("left out, its listing is malformed", "server", s.spec.Name, "list", kind, "err", err)
		},
	}
}

// remember reads the server's pins and, if its entry has not changed, what it offered
// last. Call it before other goroutines know the server.
func (s *server) remember() error {
	mem, err := listing.ReadMemory(s.file())
	if err != nil || mem == nil {
		return err
	}
	s.pins = listing.NewPins(mem.Pins)
	if mem.Key != s.spec.Key {
		return nil
	}
	s.era = mem.Era
	// an older daemon has listed them, and pinned nothing
	s.pins.Compare(listing.Likenesses(mem.Lists[listing.Tools]), time.Now())
	s.latest = s.source().Offering(mem.Lists, mem.About, mem.Cut)
	return nil
}

// storeOffers writes what the server offers to its file in the catalog directory.
// It logs a failure.
func (s *server) storeOffers() error {
	s.m.filing.Lock()
	defer s.m.filing.Unlock()
	s.m.hub.Mu.Lock()
	if s.m.servers[s.spec.Name] != s { // its successor writes to that file
		s.m.hub.Mu.Unlock()
		return nil
	}
	mem := listing.Memory{
		Key: s.spec.Key, Era: s.era, Lists: s.latest.Lists(), About: s.latest.About(), Cut: s.latest.Cut(),
		Pins: s.pins.Stored(),
	}
	s.m.hub.Mu.Unlock()
	err := mem.Write(s.file())
	if err != nil {
		s.m.hub.Log.Warn("what a server offers cannot be remembered", "server", s.spec.Name, "err", err)
	}
	return err
}

// offersLocked returns what a caller is offered: what the process that it uses has
// listed last, or else what is known of the server. It returns nil if nothing is
// known.
func (s *server) offersLocked(c *tool.Caller) *listing.Offering {
	return s.offersOfLocked(s.instanceKey(c))
}

// offersOfLocked returns what sessions of an instance are offered: what the instance
// has listed, or else what any process of the server has listed last. It returns nil
// if neither is known.
func (s *server) offersOfLocked(key instanceKey) *listing.Offering {
	return cmp.Or(s.ownLocked(key), s.latest)
}

// ownLocked returns what the processes of an instance have listed last, or nil.
func (s *server) ownLocked(key instanceKey) *listing.Offering {
	if inst := s.m.instances[key]; inst != nil && inst.own != nil {
		return inst.own
	}
	return s.inheritedLocked(key)
}

// inheritedLocked returns what the youngest process of an earlier daemon has listed
// for an instance, as long as that process or its directory exists; else nil.
func (s *server) inheritedLocked(key instanceKey) *listing.Offering {
	var last *upstream.Process
	for u := range s.m.hub.Processes {
		if instanceOf(u).key == key && instanceOf(u).srv == s && instanceOf(u).own != nil &&
			(last == nil || u.Generation > last.Generation) {
			last = u
		}
	}
	if last == nil {
		return nil
	}
	return instanceOf(last).own
}

// take makes the lists of a process the offering of its instance. It writes them to
// the worker's directory and the server's file, and notifies the sessions whose lists
// have changed by that. Lists of a process that was replaced meanwhile are dropped.
func (inst *instance) take(u *upstream.Process, lists handshake.Lists) {
	s, m, raw, cut := inst.srv, inst.m, lists.Raw, lists.Cut
	list := listing.Likenesses(raw[listing.Tools])
	m.hub.Mu.Lock()
	about := u.Result
	m.hub.Mu.Unlock()
	inst.keepLists(u, raw, about, cut) // before they are used: the next daemon finds there what was called
	m.hub.Mu.Lock()
	replaced := m.servers[s.spec.Name] != s && inst.use != onTrial // its entry was edited meanwhile
	if replaced || inst.up != nil && inst.up != u {                // or it has a successor
		m.hub.Mu.Unlock()
		return
	}
	before, latest, listed := s.offersOfLocked(inst.key), s.latest, inst.own
	now := s.offeringLocked(inst, raw, about, cut)
	inst.own, s.latest = now, now
	altered, pinned := s.pins.Compare(list, time.Now())
	changes := s.changedListsLocked(inst, listing.Differing(before, now), listing.Differing(latest, now))
	if inst.use == onTrial { // sessions are notified when it takes the place of the other
		changes = nil
	}
	m.hub.Mu.Unlock()
	s.warnChanged(altered)
	if latest != now || pinned {
		_ = s.storeOffers() // it is logged
	}
	if listed != nil && listed != now {
		m.calls.Cache().Forget(s.spec.Name)
	}
	for _, one := range changes {
		one.client.ListChanged(one.kind.MCP().Changed)
	}
}

// offeringLocked returns an offering of these lists. It returns an existing one if
// that is equal, so that callers can compare pointers to see changes.
func (s *server) offeringLocked(
	inst *instance, raw listing.Lists, about json.RawMessage, cut []string,
) *listing.Offering {
	for _, of := range []*listing.Offering{inst.own, s.latest} {
		if of.Equal(&raw, about, cut) {
			return of
		}
	}
	return s.source().Offering(raw, about, cut)
}

// changedList is a session's list of a kind that is not what it was.
type changedList struct {
	client tool.Client
	kind   listing.Kind
}

// changedListsLocked returns which lists of which sessions have changed: the kinds
// shared for sessions that share the instance, and the kinds others for those whose
// own instance has never listed.
func (s *server) changedListsLocked(inst *instance, shared, others []listing.Kind) []changedList {
	var all []changedList
	for _, c := range s.m.hub.Clients {
		who := c.Caller()
		if !s.visible(&who) {
			continue
		}
		key, differ := s.instanceKey(&who), others
		switch {
		case key == inst.key:
			differ = shared
		case s.ownLocked(key) != nil:
			continue
		}
		for _, k := range differ {
			all = append(all, changedList{c, k})
		}
	}
	return all
}

// remakeLocked makes all offerings again, by the present configuration. It reports
// whether one differs from what it was.
func (s *server) remakeLocked() bool {
	source, changed, made := s.source(), false, map[*listing.Offering]*listing.Offering{}
	remake := func(of *listing.Offering) *listing.Offering {
		if of == nil || made[of] != nil {
			return made[of]
		}
		made[of] = of.Remake(source)
		changed = changed || len(listing.Differing(of, made[of])) > 0
		return made[of]
	}
	s.latest = remake(s.latest)
	each := map[*instance]struct{}{}
	for u := range s.m.hub.Processes {
		each[instanceOf(u)] = struct{}{}
	}
	for _, inst := range s.m.instances {
		each[inst] = struct{}{}
	}
	for inst := range each {
		if inst.srv == s {
			inst.own = remake(inst.own)
		}
	}
	return changed
}

// keepLists writes what a process lists to its worker's directory, so that the next
// daemon goes on with the same lists. It logs a failure.
func (inst *instance) keepLists(u *upstream.Process, raw listing.Lists, about json.RawMessage, cut []string) {
	mem := listing.Memory{Key: inst.key.key, Lists: raw, About: about, Cut: cut}
	if err := mem.Write(filepath.Join(u.Dir, process.FileLists)); err != nil {
		u.Log.Warn("what a server lists cannot be written down", "err", err)
	}
}

// CheckBlocked returns the fault of a tool that differs from its pin and is blocked,
// else nil. It looks at what the caller is offered now, since the server may have
// listed the tool again after the offer was made: see [listing.ServerView.Blocked].
func (s *server) CheckBlocked(c *tool.Caller, o *listing.Offer) error {
	if o.Method != mcp.ToolsCall {
		return nil
	}
	view := s.View(c)
	if f := view.Blocked(cmp.Or(view.Offering.Find(listing.Tools, o.Own, true), o)); f != nil {
		return f
	}
	return nil
}

// warnChanged logs the names of tools that differ from their pins, at most 20 of
// them.
func (s *server) warnChanged(changed []string) {
	if len(changed) == 0 {
		return
	}
	const most = 20
	s.m.hub.Log.Warn("tools are not what they were when they were first seen",
		"server", s.spec.Name, "tools", changed[:min(len(changed), most)], "count", len(changed))
}

// Accept pins the tools of a server as the caller is offered them now, and returns
// the names of those that were pinned otherwise. It first asks a server that has
// never listed. Pins of tools that only other processes list stay.
func (m *Manager) Accept(ctx context.Context, c tool.Caller, name string) ([]string, error) {
	s, err := m.lookup(name)
	if err != nil {
		return nil, err
	}
	if out := catalog.Tools(ctx, s, c); out.Fault != nil {
		return nil, out.Fault
	}
	m.hub.Mu.Lock()
	keep := map[string]bool{}
	for _, inst := range m.instances {
		if inst.srv != s {
			continue
		}
		for _, o := range inst.own.All(listing.Tools) {
			keep[o.Own] = true
		}
	}
	accepted := s.pins.Accept(listing.Likenesses(s.offersLocked(&c).Lists()[listing.Tools]), keep, time.Now())
	blocks := s.now().BlockChanged
	m.hub.Mu.Unlock()
	err = s.storeOffers()
	if blocks && len(accepted) > 0 {
		m.Changed()
	}
	return accepted, err
}
