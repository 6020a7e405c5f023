package hosted

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/hosted/serverlog"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/daemon/spelling"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Status returns the state of each server, by name. It reads no file and asks no
// process, so it answers even if a server hangs.
func (m *Manager) Status() []control.Server {
	now := time.Now()
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	list := make([]control.Server, 0, len(m.servers))
	owners := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.servers)) {
		s := m.servers[name]
		st := s.statusLocked(now)
		latest := s.offers.Latest()
		together := func(owner string) bool {
			return slices.ContainsFunc(list, func(other control.Server) bool {
				return other.Name == owner && slices.ContainsFunc(other.Sessions, func(id string) bool {
					return slices.Contains(st.Sessions, id)
				})
			})
		}
		clashes := listing.Clashes(name, latest, owners, together)
		st.Notes = slices.Concat(latest.Cut(), clashes, s.spec.Scope.Overreach(s.beyond))
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b control.Server) int { return spelling.Compare(a.Name, b.Name) })
	return list
}

// Serving is a process of a server, with those that it serves.
type Serving struct {
	Server   string
	PID      int      // of what its worker has started on this machine
	Sessions []string // ids, without commands
}

// Serving returns the processes on this machine that serve sessions, in no order.
func (m *Manager) Serving() []Serving {
	found := map[*upstream.Process]*Serving{}
	m.hub.Mu.Lock()
	for name, s := range m.servers {
		for inst := range s.instancesLocked() {
			if inst.up == nil || inst.up.State == stage.Exited {
				continue
			}
			one := &Serving{Server: name}
			for session, c := range m.hub.Clients {
				if who := c.Caller(); who.Number != 0 && inst.sharedByLocked(session, c) {
					one.Sessions = append(one.Sessions, strconv.FormatInt(who.Number, 10))
				}
			}
			found[inst.up] = one
		}
	}
	m.hub.Mu.Unlock()
	var list []Serving
	for up, one := range found {
		if w := up.Worker(); w != nil {
			if one.PID = w.Status().ChildPID; one.PID != 0 {
				list = append(list, *one)
			}
		}
	}
	return list
}

// Cache returns what the cache of answers holds, and its hits and misses.
func (m *Manager) Cache() control.Cache { return m.calls.Cache().Stats() }

// failedToStartLocked reports whether the last start failed. A start that the daemon
// ended because no session wanted it any more has not.
func (inst *instance) failedToStartLocked() bool {
	return inst.err != nil && !errors.Is(inst.err, errEnded)
}

// statusLocked returns the state of one server. State is the worst state of its instances.
func (s *server) statusLocked(now time.Time) control.Server {
	st := control.Server{
		Name: s.spec.Name, Scope: string(s.spec.Scope), State: stage.StateIdle, Lazy: s.Entry().Lazy,
		Circuit: string(policy.Closed), CacheCount: s.m.calls.Cache().Entries(s.spec.Name), LastFault: s.verdict.Fault,
		Ejected: len(s.verdict.Ejected) > 0, Confine: s.spec.Confine, HeldBy: s.spec.HeldBy, Limits: s.spec.Limits,
	}
	if s.verdict.Fault != nil {
		st.LastFaultMS, st.FaultOver = s.verdict.FaultAt.UnixMilli(), s.verdict.Over
	}
	if latest := s.offers.Latest(); latest != nil {
		st.Tools, st.Changed = new(len(latest.All(listing.Tools))), s.offers.CountChanged()
	}
	st.PinsLost = s.offers.Lost()
	st.Blocked = s.Entry().BlockChanged && (st.Changed > 0 || st.PinsLost != "")
	for inst := range s.instancesLocked() {
		for session, c := range s.m.hub.Clients {
			if !inst.sharedByLocked(session, c) {
				continue
			}
			st.RefCount++
			if who := c.Caller(); who.Number != 0 {
				st.Sessions = append(st.Sessions, strconv.FormatInt(who.Number, 10))
			}
		}
		if !inst.gone { // see below
			inst.guards.AddTo(&st, now)
		}
		recovers := inst.guards.Restarts.Count(now) > 0 && !s.verdict.Over
		if !inst.gone { // else this is nothing that anybody could mend; who works there learns it by the call
			state := inst.stageLocked().State(inst.up != nil, recovers, inst.failedToStartLocked())
			if f, since := inst.downLocked(); f != nil {
				state, st.Unreachable = stage.StateUnreachable, f.Fault.Detail
				if at := since.UnixMilli(); st.UnreachableMS == 0 || at < st.UnreachableMS {
					st.UnreachableMS = at
				}
			}
			st.State = stage.Worse(st.State, state)
		}
		if inst.unreached.Reason() == fault.Unreachable {
			st.Unreachable = inst.unreached.Fault.Detail
		}
		if u := inst.up; u != nil && u.State != stage.Exited {
			st.Active = true
			st.Processes++
			if by := u.LimitsHeldByLocked(); by != st.LimitsHeldBy { // they mostly are by the same
				st.LimitsHeldBy = strings.TrimPrefix(st.LimitsHeldBy+"; and "+by, "; and ")
			}
			st.NoiseLines += u.Noise
			st.Suspect = st.Suspect || u.Suspect
			if since := u.SilentSinceLocked(); !since.IsZero() {
				st.State = stage.Worse(st.State, stage.StateSilent)
				if at := since.UnixMilli(); st.SilentMS == 0 || at < st.SilentMS {
					st.SilentMS = at
				}
			}
		}
	}
	slices.Sort(st.Sessions)
	if st.Ejected {
		st.State = stage.Worse(st.State, stage.StateEjected)
	}
	if f := s.login.Missing(); f != nil {
		st.State, st.LastFault, st.LastFaultMS = control.NeedsLogin, f, s.login.Since().UnixMilli()
	}
	if s.verdict.Stopped {
		st.State = "stopped"
		if s.verdict.Damaged != "" {
			st.LastFault = startup.Stopped(s.spec.Name, s.verdict.Damaged)
		}
	}
	return st
}

// Overreaches records that a process asks for what the scope of its server does not
// offer. The status then names the scope that does.
func (inst *instance) Overreaches(method string) {
	if s := inst.srv; s.beyond == "" {
		s.beyond = fault.Quote([]byte(method))
		s.m.hub.Log.Warn("server asks for what its scope does not offer", "server", s.spec.Name, "method", s.beyond)
	}
}

// Logs returns what each process of a server, or of all, wrote to stderr, with the secrets of its
// environment hidden. The fault is that of the process of the one server that ended last, or nil.
func (m *Manager) Logs(p *control.ServerLogsParams) (logs []control.ServerLog, last *fault.Record, err error) {
	m.hub.Mu.Lock()
	names := slices.Collect(maps.Keys(m.servers))
	if s := m.servers[p.Name]; s != nil {
		names, last = []string{p.Name}, s.verdict.Fault
	} else if p.Name != "" {
		err = startup.NoServer(p.Name)
	}
	m.hub.Mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	logs, err = serverlog.Logs(m.hub, names, p)
	if err != nil || !p.Ended {
		return logs, last, err
	}
	for _, name := range names {
		if slices.ContainsFunc(logs, func(l control.ServerLog) bool { return l.Server == name }) {
			continue
		}
		if l := m.LastLog(name, p.SinceMS); l != nil {
			logs = append(logs, *l)
		}
	}
	return logs, last, nil
}

// LastLog returns what the process of a server that ended last wrote to stderr since a Unix time in ms;
// nil if that is not known. The name must be one of the configuration.
func (m *Manager) LastLog(server string, since int64) *control.ServerLog {
	l, err := serverlog.Last(m.files.Log(server), since)
	if err != nil {
		m.hub.Log.Warn("the log of a server's last process cannot be read", "server", server, "err", err)
	}
	return l
}

// keepLog keeps the end of the log of a process that has ended.
func (m *Manager) keepLog(u *upstream.Process) {
	if err := serverlog.Keep(m.hub, u, m.files.Log(u.Server)); err != nil {
		m.hub.Log.Warn("the log of a server's last process is not kept", "server", u.Server, "err", err)
	}
}

// ForgetLogs removes the logs of last processes of servers that the configuration does not have any
// more.
func (m *Manager) ForgetLogs(cfg *config.Config) {
	paths, _ := filepath.Glob(m.files.Log("*"))
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		if _, ok := cfg.Server(name); ok || cfg.Unusable()[name] != nil {
			continue
		}
		if err := os.Remove(path); err != nil {
			m.hub.Log.Warn("the log of a removed server is left", "file", path, "err", err)
		}
	}
}
