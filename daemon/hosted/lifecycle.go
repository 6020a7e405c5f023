package hosted

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/events"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/hosted/verdict"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/daemon/waiting"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// lookup returns the configured server of that name, or a fault.
func (m *Manager) lookup(name string) (*server, error) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if s := m.servers[name]; s != nil {
		return s, nil
	}
	return nil, startup.NoServer(name)
}

// Stop ends all processes of a server. No daemon starts one before [Manager.Start] or
// [Manager.Restart]: the stop is on disk before the first process ends. Calls in
// flight end as if the server had died. Stop waits until the processes have exited,
// or until ctx ends, and returns how many it has ended.
func (m *Manager) Stop(ctx context.Context, name string) (int, error) {
	s, err := m.lookup(name)
	if err != nil {
		return 0, err
	}
	m.hub.Mu.Lock()
	s.verdict.Stopped, s.verdict.Damaged = true, ""
	m.hub.Mu.Unlock()
	written := s.write() // before anything is ended: what was begun to be stopped stays so
	m.hub.Mu.Lock()
	ending := s.endAllLocked()
	m.hub.Mu.Unlock()
	m.hub.Log.InfoContext(ctx, "server stopped by the user", "server", name, "event",
		events.New(control.Stopped, name, "stopped; to start it again: holdline servers start %s", name))
	if written != nil {
		written = fmt.Errorf("server %s is stopped, but the next daemon will start it again: %w", name, written)
	}
	return len(ending), errors.Join(written, upstream.AwaitExits(ctx, ending))
}

// endAllLocked begins to end all processes of a server, except draining ones, and returns them.
func (s *server) endAllLocked() []*upstream.Process {
	var ending []*upstream.Process
	for u := range s.m.hub.Processes {
		if instanceOf(u).srv == s && u.State != stage.Exited && u.State != stage.Draining {
			u.EndLocked()
			ending = append(ending, u)
		}
	}
	return ending
}

// Start makes a stopped or ejected server usable again, and starts a process for each
// scope that has sessions; without any, for the caller's scope, unless that is its session
// alone. It returns how many serve, and the errors of the others.
func (m *Manager) Start(ctx context.Context, name string, c tool.Caller) (int, error) {
	return m.start(ctx, name, &c, endNone)
}

// Restart ends all processes of a server, clears its failures, and starts it as
// [Manager.Start] does. Calls in flight end as if the server had died. Cached answers are dropped.
func (m *Manager) Restart(ctx context.Context, name string, c tool.Caller) (int, error) {
	return m.start(ctx, name, &c, endAll)
}

// ErrBusy is returned by [Manager.RestartIdle] for a server that has calls in flight.
var ErrBusy = errors.New("calls are in flight")

// RestartIdle does the same for a server without calls in flight. With some it returns [ErrBusy], and has done
// nothing.
func (m *Manager) RestartIdle(ctx context.Context, name string, c tool.Caller) (int, error) {
	return m.start(ctx, name, &c, endIdle)
}

// isIdleLocked reports whether the server has no calls in flight that somebody waits for.
func (s *server) isIdleLocked() bool {
	for u := range s.m.hub.Processes {
		for _, c := range u.Calls {
			if instanceOf(u).srv == s && c.Up == u && c.Phase() == calls.Open && c.Claim().Wanted() {
				return false
			}
		}
	}
	return true
}

// ending says which processes of a server end before it is started.
type ending int

const (
	endNone ending = iota
	endIdle        // all, unless one has calls in flight
	endAll
)

// start is [Manager.Start], [Manager.Restart] or [Manager.RestartIdle], by which processes end before.
func (m *Manager) start(ctx context.Context, name string, c *tool.Caller, end ending) (int, error) {
	s, err := m.lookup(name)
	if err != nil {
		return 0, err
	}
	var ended []*upstream.Process
	m.hub.Mu.Lock()
	if end != endNone {
		if end == endIdle && !s.isIdleLocked() {
			m.hub.Mu.Unlock()
			return 0, ErrBusy
		}
		ended = s.endAllLocked()
		s.era = ""
	}
	s.pardonLocked()
	m.hub.Mu.Unlock()
	s.persist()
	if err := upstream.AwaitExits(ctx, ended); err != nil {
		return 0, err
	}
	if end != endNone {
		m.calls.Cache().Forget(name)
	}
	return s.startAll(ctx, c)
}

// pardonLocked clears a server's stop and failures, and the back-off of its starts.
func (s *server) pardonLocked() {
	s.verdict = verdict.Verdict{}
	s.login.Pardon()
	for inst := range s.instancesLocked() {
		inst.guards.Restarts.Reset()
		inst.guards.Breaker.Reset()
		inst.notUntil, inst.err, inst.mustRecover = time.Time{}, nil, false
		inst.down, inst.downs = nil, 0
		inst.skipBackoffLocked()
	}
}

// skipBackoffLocked lets a start that is backing off begin at once.
func (inst *instance) skipBackoffLocked() {
	if inst.skipBackoff != nil {
		close(inst.skipBackoff)
		inst.skipBackoff = nil
	}
}

// startAll starts the instances that sessions use, else the caller's, and waits for them.
func (s *server) startAll(ctx context.Context, c *tool.Caller) (int, error) {
	m, name := s.m, s.spec.Name
	m.hub.Mu.Lock()
	if s = m.servers[name]; s == nil { // removed meanwhile; or else perhaps replaced
		m.hub.Mu.Unlock()
		return 0, startup.NoServer(name)
	}
	wanted := map[*instance]struct{}{}
	for _, client := range m.hub.Clients {
		if who := client.Caller(); s.visible(&who) {
			wanted[s.instanceLocked(&who)] = struct{}{}
		}
	}
	if len(wanted) == 0 && s.spec.Scope != entry.Session {
		wanted[s.instanceLocked(c)] = struct{}{}
	}
	m.hub.Mu.Unlock()
	errs := waiting.Each(maps.Keys(wanted), func(inst *instance) error {
		m.hub.Mu.Lock()
		defer m.hub.Mu.Unlock()
		_, err := inst.readyLocked(ctx, nil)
		return err
	})
	return len(wanted) - len(errs), errors.Join(errs...)
}

// Configure replaces the list of servers. A server whose configuration is unchanged
// goes on. One that is not configured any more ends when its calls have ended. One
// whose configuration has changed does so, too, once its successor has come up, see
// [Manager.Replaced]. The successor starts with no failures counted, but stays stopped
// if the server was. Sessions whose list of tools may have changed are notified.
func (m *Manager) Configure(specs []entry.Server) {
	m.configuring.Lock()
	defer m.configuring.Unlock()
	wanted := map[string]*entry.Server{}
	for i := range specs {
		wanted[specs[i].Name] = &specs[i]
	}
	fresh := m.newcomers(wanted)
	changed := false
	var written []*server
	var replaced []string
	m.hub.Mu.Lock()
	for name, s := range m.servers {
		if fresh[name] == nil && wanted[name] != nil {
			s.keepLocked() // the entry is again what it was
			changed = s.adjustLocked(wanted[name]) || changed
		} else if next := fresh[name]; next != nil {
			changed = m.replaceLocked(s, next) || changed
			delete(fresh, name)
			replaced = append(replaced, name)
		} else {
			changed = true
			m.retireLocked(s)
		}
		written = append(written, s)
	}
	changed = changed || len(fresh) > 0
	maps.Copy(m.servers, fresh)
	for _, c := range m.hub.Clients {
		m.eagerLocked(c.Caller())
	}
	m.hub.Mu.Unlock()
	for _, name := range slices.AppendSeq(replaced, maps.Keys(fresh)) {
		m.calls.Cache().Forget(name)
	}
	for _, s := range written {
		s.persist()
	}
	if changed {
		m.Changed()
	}
}

// newcomers returns, by name, a new server for each wanted spec that is not configured yet, or that
// is configured differently. It reads their files, so it must not hold the hub's mutex.
func (m *Manager) newcomers(wanted map[string]*entry.Server) map[string]*server {
	fresh := map[string]*server{}
	for name, spec := range wanted {
		old, err := m.lookup(name)
		if err == nil && old.spec.Key == spec.Key && old.spec.Scope == spec.Scope {
			continue
		}
		s := m.newServer(spec)
		s.read()
		s.verdict.Ejected, s.verdict.Fault = nil, nil // that the user has stopped it holds
		if old != nil {
			m.hub.Mu.Lock()
			s.offers.Inherit(&old.offers, s.source()) // also pins that could not be written down
			m.hub.Mu.Unlock()
		}
		fresh[name] = s
	}
	return fresh
}

// adjustLocked puts other limits and lists into force for a server whose processes go
// on. It remakes all offerings, since contracts, and what is offered at all, depend
// on the configuration. It reports whether some session may see other tools now.
func (s *server) adjustLocked(spec *entry.Server) bool {
	was := s.limits.Swap(spec)
	for inst := range s.instancesLocked() {
		inst.guards.Follow(was, spec)
	}
	s.sights.Configure(spec.Visible)
	changed := s.offers.Remake(s.source()) || was.BlockChanged != spec.BlockChanged
	for _, c := range s.m.hub.Clients {
		who := c.Caller()
		s.sights.Sees(who.Place()) // this looks again, and notifies sessions whose list changes
	}
	return changed
}

// Changed notifies all sessions that their lists may have changed.
func (m *Manager) Changed() {
	m.hub.Mu.Lock()
	all := slices.Collect(maps.Values(m.hub.Clients))
	m.hub.Mu.Unlock()
	for _, c := range all {
		listing.Announce(c)
	}
}

// retireLocked removes a server from the configured ones. Its processes are drained.
func (m *Manager) retireLocked(s *server) {
	delete(m.servers, s.spec.Name)
	for inst := range s.instancesLocked() {
		inst.use = stage.Retired
		delete(m.instances, inst.key)
		inst.leaveLocked()
	}
}

// leaveLocked drains the instance's process, one that is being started as soon as it is there.
func (inst *instance) leaveLocked() {
	if u := inst.up; u != nil && u.State != stage.Exited {
		u.DrainLocked()
		inst.up, inst.left = nil, inst.starting != nil
	} else if inst.starting != nil {
		inst.abandoned = true
	}
}

// usedLocked reports whether a session shares an instance.
func (inst *instance) usedLocked() bool {
	for session, c := range inst.m.hub.Clients {
		if inst.sharedByLocked(session, c) {
			return true
		}
	}
	return false
}

// sharedByLocked reports whether a session shares the instance: it may see the
// server, and belongs to the instance's scope. If it is not known yet whether the
// session sees the server, it counts as sharing.
func (inst *instance) sharedByLocked(session string, c tool.Client) bool {
	who := c.Caller()
	if _, known := inst.srv.sights.Sees(who.Place()); known && !inst.srv.visible(&who) {
		return false
	}
	return inst.key.scope.Of(who.Project, session) == inst.key.of
}

// Uses reports whether a session shares the instance and sees its server.
func (inst *instance) Uses(session string, c tool.Client) bool {
	who := c.Caller()
	return inst.srv.visible(&who) && inst.sharedByLocked(session, c)
}

// idling is the time of an instance that no session shares.
type idling struct {
	since time.Time
	over  chan struct{} // closed when a session shares the instance again, or its process must make room
}

// end ends the wait of [Manager.endIdle]. The caller must hold the hub's mutex.
func (i *idling) end() {
	if !waiting.IsClosed(i.over) {
		close(i.over)
	}
}

// idleLocked starts the idle time of instances that no session shares. When that
// time, KeepAlive, is over and still no session shares the instance, its process is
// drained; so is that of a removed project, and the one that has waited longest if too many wait.
// A process with a detached call is not idle: the time begins anew.
func (m *Manager) idleLocked() {
	for _, inst := range m.instances {
		if m.hub.Closed || inst.inherited && !m.hub.Expected || inst.key.scope == entry.Session ||
			inst.idle != nil || inst.usedLocked() {
			continue
		}
		idle := &idling{time.Now(), make(chan struct{})}
		inst.idle = idle
		m.hub.WG.Go(func() { m.endIdle(inst, idle) })
	}
	m.boundIdleLocked()
}

// maxIdle is how many processes wait for a session at most.
const maxIdle = 20

// boundIdleLocked ends the wait of the processes that have waited longest, if too many wait.
func (m *Manager) boundIdleLocked() {
	var waits []*instance
	for _, inst := range m.instances {
		if inst.idle != nil && inst.up != nil && !waiting.IsClosed(inst.idle.over) && !inst.up.HasDetachedLocked() {
			waits = append(waits, inst)
		}
	}
	slices.SortFunc(waits, func(a, b *instance) int { return b.idle.since.Compare(a.idle.since) })
	for _, inst := range waits[min(len(waits), maxIdle):] {
		inst.idle.end()
	}
}

// Pauses of an instance that no session shares.
const (
	detachedPause = time.Second      // least pause between two looks at a process that only detached calls keep
	rootPause     = 30 * time.Second // between two looks whether the project was removed
)

// endIdle waits until the idle time of an instance is over, and drains its process unless a session shares it. The
// configuration may change that time meanwhile.
func (m *Manager) endIdle(inst *instance, idle *idling) {
	gone := inst.rootIsGone()
	for !gone && !waiting.IsClosed(idle.over) {
		rest := inst.srv.Entry().KeepAlive - time.Since(idle.since)
		if rest <= 0 {
			break
		}
		if m.hub.Pause(min(rest, rootPause), idle.over) != nil {
			return
		}
		gone = inst.rootIsGone()
	}
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	for inst.idle == idle && inst.up != nil && inst.up.HasDetachedLocked() {
		again, over := max(inst.srv.Entry().KeepAlive, detachedPause), idle.over
		if gone || waiting.IsClosed(over) {
			again, over = detachedPause, nil
		}
		m.hub.Mu.Unlock()
		err := m.hub.Pause(again, over)
		m.hub.Mu.Lock()
		if err != nil {
			return
		}
	}
	if inst.idle != idle { // a session came meanwhile, and may have left again
		return
	}
	inst.idle = nil
	if !inst.usedLocked() {
		inst.leaveLocked()
		if gone {
			inst.forgetLocked()
		}
	}
}

// eagerLocked starts the servers that a session sees and that are not lazy.
func (m *Manager) eagerLocked(c tool.Caller) {
	for _, s := range m.servers {
		if s.Entry().Lazy || s.verdict.Stopped || s.login.Refusal() != nil || !s.visible(&c) || m.hub.Closed {
			continue
		}
		inst := s.instanceLocked(&c)
		if inst.stageLocked() == stage.Idle && inst.introducesLocked() {
			inst.startLocked()
		}
		if inst.up != nil {
			inst.up.SeekLocked()
		}
	}
}

// introducesLocked reports whether the capabilities to declare to the server are known.
// For a process of one session they are its client's, which are not known before the
// client's first request.
func (inst *instance) introducesLocked() bool {
	if inst.key.scope != entry.Session {
		return true
	}
	c := inst.m.hub.Clients[inst.key.of]
	return c != nil && c.Capabilities() != nil
}

// stageLocked returns what the instance is doing.
func (inst *instance) stageLocked() stage.Stage {
	f := stage.Facts{
		Adopting: inst.adopting != nil || inst.unreadLocked() != nil,
		Starting: inst.starting != nil, BackingOff: inst.skipBackoff != nil,
		Ejected: inst.guards.Restarts.Ejected(), Up: inst.up != nil,
	}
	if f.Up {
		f.Process = inst.up.State
	}
	return stage.Of(f)
}

// Limits returns the time that a call may take without progress, and in all.
func (inst *instance) Limits() (answer, most time.Duration) {
	spec := inst.srv.Entry()
	return spec.Timeout, spec.MaxTimeout
}

// Reached lets calls to the remote server through again: its process can reach it.
func (inst *instance) Reached() { inst.guards.Breaker.Reset() }

// downLocked returns why the remote server cannot be reached, and since when; nil if it can, as far
// as is known.
func (inst *instance) downLocked() (*fault.Record, time.Time) {
	if inst.up != nil {
		if f, since := inst.up.UnreachableLocked(); f != nil {
			return f, since
		}
	}
	return inst.down, inst.downSince
}

// Blame records why Holdline ends the process of the instance.
func (inst *instance) Blame(f *fault.Record) { inst.srv.verdict.Blame(f) }

// Exited forgets a process that has exited.
func (inst *instance) Exited(u *upstream.Process) {
	if inst.up == u {
		inst.up = nil
	}
}

// Died counts a failure if neither Holdline nor the user wanted the end of a process
// that was in the state before. It starts the instance again if sessions use it.
func (inst *instance) Died(u *upstream.Process, before stage.State) {
	if u.Condemned != nil {
		inst.guards.Breaker.Reset() // what was wrong ended with the process
	}
	if before != stage.Ending || u.Condemned != nil {
		// a start that fails is counted as such
		if (before == stage.Serving || u.Condemned != nil) && inst.use != stage.Retired {
			inst.quit = inst.isDirect && u.EndedBy == upstream.EndedByItself && time.Since(inst.begun) < probation
			inst.failedLocked(u.Death)
			inst.mustRecover = true
		}
		inst.m.o.Watch.WorkerLost(inst.name, inst.use != stage.Retired)
		u.Log.Warn("server is gone", "err", u.Death)
	}
	inst.recoverLocked()
	inst.missedLocked()
}

// instanceOf returns the instance that a process belongs to.
func instanceOf(u *upstream.Process) *instance {
	return u.Instance.(*instance) //nolint:forcetypeassert // no other is made
}
