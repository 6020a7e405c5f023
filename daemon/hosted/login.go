package hosted

import (
	"time"

	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/startup"
	"holdline/protocol/fault"
)

// A server to which somebody must log in first needs a login: it gets no process, its calls
// fail at once with the command that helps, and nothing of that counts as a failure of the
// server. It is looked at again when a call comes and the files of the login have changed, or
// when a command says so.

// relook is how long a refusal counts that the files of the login do not explain: the key that
// seals them could not be had, or the server refuses a login that they have.
const relook = 10 * time.Second

// A loginView is what is known of a server's login. It is guarded by the hub's mutex.
type loginView struct {
	refusal *fault.Record    // why calls fail at once; nil if they do not
	since   time.Time        // of refusal
	until   time.Time        // when the refusal ends by itself; zero for never
	stamp   entry.LoginStamp // of the files when the refusal began
	state   entry.LoginState // when a process was started last, or the login has changed
}

// loginRefusalLocked returns the fault of calls to a server that needs a login, or nil.
func (s *server) loginRefusalLocked() *fault.Record {
	if r := s.login.refusal; r != nil && (s.login.until.IsZero() || time.Now().Before(s.login.until)) {
		return r
	}
	return nil
}

// lookBeforeCall looks at the login of a server that needs one, if its files have changed. The
// caller must not hold the hub's mutex.
func (s *server) lookBeforeCall() {
	login := s.Entry().Login
	s.m.hub.Mu.Lock()
	view := s.login
	s.m.hub.Mu.Unlock()
	if login != nil && view.refusal != nil && login.Stamp(view.state.Login) != view.stamp {
		s.lookAgain()
	}
}

// loginForStart returns the refusal of a server that needs a login, before a process is started.
// The caller must not hold the hub's mutex.
func (s *server) loginForStart() error {
	login := s.Entry().Login
	if login == nil {
		return nil
	}
	now := login.State()
	stamp := login.Stamp(now.Login)
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	s.login.state = now
	if now.Missing == nil {
		s.login.refusal = nil
		return nil
	}
	s.refuseLocked(now.Missing, stamp, now.Passes)
	return now.Missing
}

// refuseLocked puts the server into the state in which it needs a login. A refusal that passes
// ends after [relook].
func (s *server) refuseLocked(f *fault.Record, stamp entry.LoginStamp, passes bool) {
	own := *f
	own.Operation = startup.Operation(s.spec.Name)
	if s.login.refusal == nil {
		s.m.hub.Log.Warn("server needs a login", "server", s.spec.Name, "err", &own)
		s.login.since = time.Now()
	}
	s.login.refusal, s.login.stamp, s.login.until = &own, stamp, time.Time{}
	if passes {
		s.login.until = time.Now().Add(relook)
	}
}

// NotLoggedIn takes up that a process of the server has answered with f because there is no
// login. Its processes are drained: their calls would all fail.
func (s *server) NotLoggedIn(f *fault.Record) {
	login := s.Entry().Login
	if login == nil {
		return
	}
	now := login.State()
	stamp := login.Stamp(now.Login)
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if now.Missing != nil {
		s.refuseLocked(now.Missing, stamp, now.Passes)
	} else {
		s.refuseLocked(f, stamp, true)
	}
	s.login.state = now
	s.leaveAllLocked()
}

// leaveAllLocked drains the processes of all instances of the server.
func (s *server) leaveAllLocked() {
	for key, inst := range s.m.instances {
		if key.server == s.spec.Name {
			inst.leaveLocked()
		}
	}
}

// LoginsChanged looks at the logins of all servers anew: somebody has logged in or out.
func (m *Manager) LoginsChanged() {
	m.hub.Mu.Lock()
	var all []*server
	for _, s := range m.servers {
		if s.Entry().Login != nil {
			all = append(all, s)
		}
	}
	m.hub.Mu.Unlock()
	for _, s := range all {
		s.lookAgain()
	}
}

// lookAgain looks at the login of a server. If calls can be made now, what has failed before is
// forgotten, and sessions that use the server get their processes. A process belongs to the login
// with which it was started, since so does its session with the server.
func (s *server) lookAgain() {
	m, login := s.m, s.Entry().Login
	now := login.State()
	stamp := login.Stamp(now.Login)
	m.hub.Mu.Lock()
	before, isStopped := s.login, s.verdict.Stopped
	isOther := now.Who != before.state.Who
	s.login = loginView{state: now}
	if now.Missing != nil {
		s.refuseLocked(now.Missing, stamp, now.Passes)
	} else if before.refusal != nil {
		s.pardonLocked()
		s.verdict.Stopped = isStopped
	}
	if now.Missing != nil || isOther {
		s.leaveAllLocked()
	}
	if !m.hub.Closed && m.servers[s.spec.Name] == s {
		for _, c := range m.hub.Clients {
			m.eagerLocked(c.Caller())
		}
	}
	m.hub.Mu.Unlock()
	if isOther {
		m.calls.Cache().Forget(s.spec.Name)
	}
	if before.refusal != nil {
		s.persist()
	}
}
