package hosted

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/handshake"
	"holdline/daemon/hosted/relist"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/hosted/verdict"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// source returns what makes offers from the server's lists, by the present configuration.
func (s *server) source() *listing.Source {
	spec := s.Entry()
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

// read reads the files of the server: its verdict, its pins and, if its entry has not
// changed, what it offered last. Call it before other goroutines know the server.
func (s *server) read() {
	var mem *listing.Memory
	s.verdict, mem = s.m.files.Read(s.spec.Name, s.spec.Key)
	switch {
	case mem == nil:
	case mem.Lost == "" && mem.Key == s.spec.Key:
		s.era = mem.Era
		fallthrough
	default:
		s.offers.Load(mem, s.source(), mem.Lost == "" && mem.Key == s.spec.Key)
	}
}

// storeOffers writes what the server offers to its file, unless its successor writes to that. It
// logs a failure.
func (s *server) storeOffers() error {
	return s.m.files.WriteOffers(s.spec.Name, func() *listing.Memory {
		s.m.hub.Mu.Lock()
		defer s.m.hub.Mu.Unlock()
		if s.m.servers[s.spec.Name] != s {
			return nil
		}
		return s.offers.Memory(s.spec.Key, s.era)
	})
}

// take makes the lists of a process what the sessions of its instance are offered. It writes them
// to the worker's directory and the server's file, and notifies the sessions whose lists have
// changed by that. Lists of a process that was replaced meanwhile are dropped.
func (inst *instance) take(u *upstream.Process, lists handshake.Lists) {
	s, m := inst.srv, inst.m
	tools := listing.Likenesses(lists.Raw[listing.Tools])
	m.hub.Mu.Lock()
	is := &listing.Memory{Key: inst.key.key, Lists: lists.Raw, About: u.Result, Cut: lists.Cut}
	m.hub.Mu.Unlock()
	// Before they are used: the next daemon finds there what was called.
	if err := is.Write(filepath.Join(u.Dir, process.FileLists)); err != nil {
		u.Log.Warn("what a server lists cannot be written down", "err", err)
	}
	m.hub.Mu.Lock()
	replaced := m.servers[s.spec.Name] != s && inst.use != stage.OnTrial // its entry was edited meanwhile
	if replaced || inst.use == stage.Retired || inst.up != nil && inst.up != u {
		m.hub.Mu.Unlock()
		return
	}
	taken := s.offers.Take(inst.key.of, s.source(), is, tools, time.Now())
	if taken.Relisted {
		m.calls.Cache().Forget(s.spec.Name)
	}
	var changed map[tool.Client][]listing.Kind
	if inst.use != stage.OnTrial { // else sessions are notified when it takes the place of the other
		changed = s.changedLocked(inst.key.of, &taken)
	}
	m.hub.Mu.Unlock()
	for c, kinds := range changed {
		listing.Notify(c, kinds...) // without the mutex: the session looks at its lists
	}
	startup.WarnChanged(m.hub.Log, s.spec.Name, taken.Altered)
	if taken.Store {
		_ = s.storeOffers() // it is logged
	}
}

// changedLocked returns the kinds of which the lists of sessions have changed: of sessions
// of the scope, and of those whose own scope has never listed.
func (s *server) changedLocked(scope string, taken *listing.Taken) map[tool.Client][]listing.Kind {
	changed := map[tool.Client][]listing.Kind{}
	for _, c := range s.m.hub.Clients {
		who := c.Caller()
		if !s.visible(&who) {
			continue
		}
		own, differ := s.Scope(&who), taken.Others
		switch {
		case own == scope:
			differ = taken.Shared
		case s.offers.Own(own) != nil:
			continue
		}
		changed[c] = differ
	}
	return changed
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
	accepted := s.offers.Accept(s.Scope(&c))
	blocks := s.Entry().BlockChanged
	m.hub.Mu.Unlock()
	err = s.storeOffers()
	if blocks && len(accepted) > 0 {
		m.Changed()
	}
	return accepted, err
}

// handshake introduces the daemon to a process, in its server's era, and reads the server's lists.
// It returns when the lists are stored. Calls may follow after [Manager.serve]. heard is called with what the server has
// said before that is stored.
func (inst *instance) handshake(ctx context.Context, u *upstream.Process, heard func(handshake.Lists) error) error {
	era, failed := handshake.Introduce(ctx, u, inst.m.o.Info, inst.era())
	var lists handshake.Lists
	if failed == nil {
		var err error
		if lists, err = inst.lists.Read(ctx); err != nil {
			return err
		}
		if err := heard(lists); err != nil {
			return err
		}
		faultpoint.At("hosted.listed")
	}
	inst.m.hub.Mu.Lock()
	inst.srv.era = era
	inst.m.hub.Mu.Unlock()
	if failed == nil {
		inst.take(u, lists)
	}
	return failed
}

// era returns the era of the instance's server, or "" if it is not known.
func (inst *instance) era() string {
	inst.m.hub.Mu.Lock()
	defer inst.m.hub.Mu.Unlock()
	return inst.srv.era
}

// runLocked makes u the process of the instance.
func (inst *instance) runLocked(u *upstream.Process) {
	known := func() listing.Lists { return inst.srv.offers.Of(inst.key.of).Lists() }
	inst.up = u
	inst.lists = relist.New(inst.m.hub, u, known, func(lists handshake.Lists) { inst.take(u, lists) })
}

// ListsChanged makes a goroutine read the lists of the instance's process again, if it has one.
func (inst *instance) ListsChanged() {
	if inst.lists != nil {
		inst.lists.ChangedLocked()
	}
}

// verdictLocked returns the present verdict, which also has the scopes that this daemon
// has ejected.
func (s *server) verdictLocked() verdict.Verdict {
	v := s.verdict
	v.Ejected = slices.Clone(v.Ejected)
	for inst := range s.instancesLocked() {
		if inst.key.scope != entry.Session && inst.guards.Restarts.Ejected() &&
			!slices.Contains(v.Ejected, inst.key.of) {
			v.Ejected = append(v.Ejected, inst.key.of)
		}
	}
	return v
}

// write writes the verdict on the server that has the name now. A server that was removed
// from the configuration has nothing to remember. The caller must not hold the hub's mutex.
func (s *server) write() error {
	return s.m.files.WriteVerdict(s.spec.Name, func() (v verdict.Verdict, key string) {
		s.m.hub.Mu.Lock()
		defer s.m.hub.Mu.Unlock()
		if now := s.m.servers[s.spec.Name]; now != nil {
			v, key = now.verdictLocked(), now.spec.Key
		}
		return v, key
	})
}

// persist writes the server's state file, and logs a failure.
func (s *server) persist() {
	if err := s.write(); err != nil {
		s.m.hub.Log.Warn("how a server stands cannot be written down", "server", s.spec.Name, "err", err)
	}
}
