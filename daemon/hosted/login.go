package hosted

import (
	"holdline/daemon/hosted/signin"
	"holdline/daemon/hosted/upstream"
	"holdline/protocol/fault"
)

// A server to which a user must log in first needs a login: it gets no process, its calls
// fail at once with the command that helps, and nothing of that counts as a failure of the
// server. It is looked at again when a call comes and the files of the login have changed, or
// when a command says so. If it never had a login, a call asks it again once in a while: it may
// want none any more. What is known of it is in [server.login].

// lookBeforeCall looks at the login of a server if its files have changed: a login
// need not be reported to this daemon. The caller must not hold the hub's mutex.
func (s *server) lookBeforeCall() {
	login := s.Entry().Login
	if login == nil {
		return
	}
	s.m.hub.Mu.Lock()
	id, stamp, should := s.login.ShouldLook()
	s.m.hub.Mu.Unlock()
	if should && login.Stamp(id) != stamp {
		s.lookAgain()
	}
}

// look reads the files of the login, of a server that has one. The caller must not hold the
// hub's mutex.
func (s *server) look() signin.Sight {
	s.m.hub.Mu.Lock()
	id := s.login.Last().Login
	s.m.hub.Mu.Unlock()
	return signin.Look(s.Entry().Login, id)
}

// lookBeforeStart looks at the login before a process is started: [instance.refusalLocked] says
// afterwards whether it may be. The caller must not hold the hub's mutex.
func (s *server) lookBeforeStart() {
	if s.Entry().Login == nil {
		return
	}
	now := s.look()
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	s.seeLocked(now)
}

// lookAfterStart looks at the login once a process serves: a server that needed one may have answered
// without. The caller must not hold the hub's mutex.
func (s *server) lookAfterStart() {
	s.m.hub.Mu.Lock()
	missing := s.login.Missing()
	s.m.hub.Mu.Unlock()
	if missing != nil && s.look().Missing == nil {
		s.lookAgain()
	}
}

// seeLocked takes what the files of the login say now. A process belongs to the login with which
// it was started, since so does its session with the server: seeLocked drains those of another
// login, and forgets cached answers. A process that was started without a login stays: it may
// have made the login itself.
func (s *server) seeLocked(now signin.Sight) {
	s.login.Update(now)
	if now.Missing == nil && s.leaveLocked(func(u *upstream.Process) bool {
		return u.Owner.Login != "" && u.Owner.Login != now.Who
	}) {
		s.m.calls.Cache().Forget(s.spec.Name)
	}
}

// NotLoggedIn records that a process of the server, u, has answered with f because there is no
// login. Then all its processes are drained: their calls would all fail.
func (s *server) NotLoggedIn(u *upstream.Process, f *fault.Record) {
	if s.Entry().Login == nil || u == nil {
		return
	}
	now := s.look()
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	if s.login.Refused(f, u.Login, now) {
		s.leaveLocked(nil)
	}
}

// leaveLocked drains the processes of all instances of the server that ought to leave; nil
// stands for all. It reports whether there was one.
func (s *server) leaveLocked(ought func(*upstream.Process) bool) (left bool) {
	for inst := range s.instancesLocked() {
		if ought == nil || inst.up != nil && ought(inst.up) {
			inst.leaveLocked()
			left = true
		}
	}
	return left
}

// LoginsChanged looks at the logins of all servers anew: a user has logged in or out.
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
// forgotten, and sessions that use the server get their processes.
func (s *server) lookAgain() {
	m, now := s.m, s.look()
	m.hub.Mu.Lock()
	before, isStopped := s.login.Missing(), s.verdict.Stopped
	s.seeLocked(now)
	if now.Missing != nil {
		s.leaveLocked(nil)
	} else if before != nil {
		s.pardonLocked()
		s.verdict.Stopped = isStopped
	}
	if !m.hub.Closed && m.servers[s.spec.Name] == s {
		for _, c := range m.hub.Clients {
			m.eagerLocked(c.Caller())
		}
	}
	m.hub.Mu.Unlock()
	if before != nil || now.Missing != nil {
		m.calls.Cache().Forget(s.spec.Name)
	}
	if before != nil {
		s.persist()
	}
}
