package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/policy"
	"holdline/daemon/statedir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// standing is the file in the state directory that outlives every process of a
// server: the user's word, and what its processes have come to.
type standing struct {
	Version int      `json:"version"`
	Stopped bool     `json:"stopped,omitempty"` // by a user; stays so until it is started
	Ejected []string `json:"ejected,omitempty"` // scopes whose process ended too often
}

func (s *server) standingFile() string { return filepath.Join(s.m.o.StateDir, s.spec.Name+".json") }

// recall reads how the server stood.
func (s *server) recall() error {
	b, err := os.ReadFile(s.standingFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var st standing
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.stopped, s.ejected = st.Stopped, st.Ejected
	return err
}

// persist writes down how the server stands. The caller does not hold the
// lock.
func (s *server) persist() {
	s.m.mu.Lock()
	st := standing{Version: memoryVersion, Stopped: s.stopped}
	for key, inst := range s.m.instances {
		if key.server == s.spec.Name && key.scope != Session && inst.guards.restarts.Ejected() {
			st.Ejected = append(st.Ejected, key.of)
		}
	}
	slices.Sort(st.Ejected)
	path := s.standingFile()
	s.m.mu.Unlock()
	var err error
	if !st.Stopped && len(st.Ejected) == 0 {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		var b []byte
		if b, err = json.Marshal(st); err == nil {
			err = statedir.WriteFile(path, append(b, '\n'))
		}
	}
	if err != nil {
		s.m.log.Warn("how a server stands cannot be written down", "server", s.spec.Name, "err", err)
	}
}

// stoppedFault is what callers of a stopped server are told.
func (s *server) stoppedFault() *fault.Record {
	return fault.New(fault.Ejected, fault.Host, operation(s.spec.Name),
		"server %s was stopped: holdline servers start %s", s.spec.Name, s.spec.Name)
}

// errNoServer says that no server of that name is configured.
func (m *Manager) errNoServer(name string) error {
	return fault.New(fault.InvalidInput, fault.Host, operation(name),
		"no server %q is hosted here: holdline servers list shows those that are", name)
}

func (m *Manager) server(name string) (*server, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.servers[name]; s != nil {
		return s, nil
	}
	return nil, m.errNoServer(name)
}

// Stop ends all processes of a server, and starts none until [Manager.Start]
// or [Manager.Reload], in this life of the daemon and those that follow. Calls
// in flight end as if the server had died.
func (m *Manager) Stop(ctx context.Context, name string) error {
	s, err := m.server(name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	s.stopped = true
	ending := s.endAllLocked()
	m.mu.Unlock()
	s.persist()
	return waitDead(ctx, ending)
}

// endAllLocked begins to end all processes of a server.
func (s *server) endAllLocked() []*upstream {
	var ending []*upstream
	for key, inst := range s.m.instances {
		if u := inst.up; key.server == s.spec.Name && u != nil && !u.dead {
			u.endLocked()
			ending = append(ending, u)
		}
	}
	return ending
}

func waitDead(ctx context.Context, all []*upstream) error {
	for _, u := range all {
		select {
		case <-u.deadCh:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Start lets a server that was stopped or ejected be used again, and starts a
// process for the caller, or returns why it does not come up.
func (m *Manager) Start(ctx context.Context, name string, c tool.Caller) error {
	s, err := m.server(name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	s.pardonLocked()
	m.mu.Unlock()
	s.persist()
	_, err = s.ready(ctx, c)
	return err
}

// pardonLocked forgets what a server's processes have come to.
func (s *server) pardonLocked() {
	s.stopped, s.ejected = false, nil
	for key, inst := range s.m.instances {
		if key.server == s.spec.Name {
			inst.guards.restarts.Reset()
			inst.guards.breaker.Reset()
			inst.notUntil = time.Time{}
		}
	}
}

// Reload ends all processes of a server and starts new ones, with nothing held
// against them. Calls in flight end as if the server had died.
func (m *Manager) Reload(ctx context.Context, name string, c tool.Caller) error {
	s, err := m.server(name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	ending := s.endAllLocked()
	s.pardonLocked()
	s.era, s.listed = "", false
	m.mu.Unlock()
	if err := waitDead(ctx, ending); err != nil {
		return err
	}
	m.cache.Forget(name)
	s.persist()
	_, err = s.ready(ctx, c)
	return err
}

// Configure takes another list of servers. A server that is configured as
// before goes on; one that is not any more, or otherwise, lets its calls end
// and is ended then; its successor begins with nothing held against it.
func (m *Manager) Configure(specs []Spec) {
	m.mu.Lock()
	wanted := map[string]*Spec{}
	for i := range specs {
		wanted[specs[i].Name] = &specs[i]
	}
	changed := false
	var fresh []*server
	for name, s := range m.servers {
		spec := wanted[name]
		if spec != nil && spec.Key == s.spec.Key && spec.Scope == s.spec.Scope {
			s.spec = spec // its limits count for what begins now
			delete(wanted, name)
			continue
		}
		changed = true
		m.retireLocked(s)
	}
	for name, spec := range wanted {
		s := m.newServer(spec)
		m.servers[name] = s
		fresh = append(fresh, s)
		changed = true
	}
	m.mu.Unlock()
	for _, s := range fresh {
		m.cache.Forget(s.spec.Name)
		if err := s.remember(); err != nil {
			m.log.Warn("what a server offered is forgotten", "server", s.spec.Name, "err", err)
		}
	}
	if changed {
		m.changed()
	}
}

// retireLocked takes a server out of use.
func (m *Manager) retireLocked(s *server) {
	delete(m.servers, s.spec.Name)
	for key, inst := range m.instances {
		if key.server != s.spec.Name {
			continue
		}
		inst.retired = true
		delete(m.instances, key)
		if u := inst.up; u != nil && !u.dead {
			u.serving, u.leaving = false, true
			u.nudge()
		}
	}
}

// usersLocked counts the sessions that share an instance.
func (inst *instance) usersLocked() int {
	n := 0
	for session, c := range inst.m.clients {
		switch inst.key.scope {
		case Session:
			if session == inst.key.of {
				n++
			}
		case Project:
			if c.Caller().Project == inst.key.of {
				n++
			}
		case Shared:
			n++
		}
	}
	return n
}

// idleLocked ends, after a while, the processes that no session shares any
// more.
func (m *Manager) idleLocked() {
	for _, inst := range m.instances {
		if m.closed || inst.adopted && !m.expected || inst.key.scope == Session || inst.srv == nil || inst.leavingSoon || inst.usersLocked() > 0 {
			continue
		}
		inst.leavingSoon = true
		wait := inst.srv.spec.KeepAlive
		m.wg.Go(func() {
			err := pause(m.life, wait)
			m.mu.Lock()
			defer m.mu.Unlock()
			inst.leavingSoon = false
			if u := inst.up; err == nil && u != nil && !u.dead && inst.usersLocked() == 0 {
				u.serving, u.leaving = false, true
				inst.up = nil
				u.nudge()
			}
		})
	}
}

// eagerLocked starts what a new session will want.
func (m *Manager) eagerLocked(c tool.Caller) {
	for _, s := range m.servers {
		if s.spec.Lazy || s.stopped || !s.visible(&c) || m.closed {
			continue
		}
		inst := s.instanceLocked(&c)
		if inst.up == nil && inst.starting == nil && !inst.guards.restarts.Ejected() {
			inst.startLocked()
		}
	}
}

// Status is a server as people see it.
type Status struct {
	Name         string
	Scope        Scope
	State        string // idle, starting, ready, recovering, ejected, stopped or failed
	Active       bool   // a process of it runs
	Lazy         bool
	Users        int // sessions that share its processes
	Processes    int
	Restarts     int // in the window
	Failures     int // in a row
	Circuit      policy.State
	Ejected      bool
	CacheEntries int
	Tools        int // -1 if it was never listed
	Noise        int64
	Fault        *fault.Record // of the last start, if it failed
}

// Status lists the servers, by name.
func (m *Manager) Status() []Status {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Status, 0, len(m.servers))
	for _, s := range m.servers {
		list = append(list, s.statusLocked(now))
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (s *server) statusLocked(now time.Time) Status {
	st := Status{
		Name: s.spec.Name, Scope: s.spec.Scope, State: "idle", Lazy: s.spec.Lazy, Circuit: policy.Closed, Tools: -1,
		CacheEntries: s.m.cache.Entries(s.spec.Name),
	}
	if s.listed {
		st.Tools = len(s.tools)
	}
	worst := func(state string) {
		order := []string{"idle", "ready", "starting", "recovering", "failed", "ejected"}
		if slices.Index(order, state) > slices.Index(order, st.State) {
			st.State = state
		}
	}
	for key, inst := range s.m.instances {
		if key.server != s.spec.Name {
			continue
		}
		st.Users += inst.usersLocked()
		st.Restarts += inst.guards.restarts.Count(now)
		circuit, failures := inst.guards.breaker.State(now)
		if st.Failures = max(st.Failures, failures); circuit != policy.Closed {
			st.Circuit = circuit
		}
		switch {
		case inst.guards.restarts.Ejected():
			st.Ejected = true
			worst("ejected")
		case inst.up != nil && inst.up.serving:
			worst("ready")
		case inst.starting != nil && inst.guards.restarts.Count(now) > 0:
			worst("recovering")
		case inst.starting != nil || inst.up != nil:
			worst("starting")
		case inst.err != nil:
			worst("failed")
		}
		if u := inst.up; u != nil && !u.dead {
			st.Active = true
			st.Processes++
			st.Noise += u.noise
		}
		if f, ok := errors.AsType[*fault.Record](inst.err); ok {
			st.Fault = f
		}
	}
	if s.stopped {
		st.State = "stopped"
	}
	return st
}
