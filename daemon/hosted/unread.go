package hosted

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/earlier"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/question"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// An unread is what an earlier daemon has left and [Manager.Load] could not read, for an error that
// passes. The daemon serves meanwhile. Only what may be on record there waits: replayed calls, and
// starts of processes. Its fields, but for read, are guarded by the hub's mutex.
type unread struct {
	dir string        // of a worker; "" for the register of all workers
	of  calls.Loss    // whose records it may hold
	why error         // of the latest try
	got chan struct{} // closed once it was read, or given up

	responses []response // of clients to requests of its process
}

// A response is what a client has answered to a server's request, in line n.
type response struct {
	session string
	n       int64
	msg     jsonrpc.Message
}

// postpone notes that what lies in dir is to be read again, for why.
func (m *Manager) postpone(dir string, why error) {
	l := &unread{dir: dir, why: why, got: make(chan struct{})}
	if dir != "" {
		l.of = earlier.Loss(m.specOf(dir), why)
	}
	m.hub.Log.Warn("records of an earlier daemon cannot be read yet: what may be on record there waits",
		"dir", dir, "server", l.of.Server, "err", why)
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.unread = append(m.unread, l)
}

// specOf returns what is known of the worker of a directory: its id at least.
func (m *Manager) specOf(dir string) *process.Spec {
	spec, err := m.o.Workers.Spec(dir)
	if err != nil {
		return &process.Spec{ID: filepath.Base(dir)} // any server may have been called
	}
	return &spec
}

// readLater reads again what Load could not read, until nothing is left or the time for it is over.
func (m *Manager) readLater() {
	m.hub.Mu.Lock()
	left := slices.Clone(m.unread)
	m.hub.Mu.Unlock()
	for len(left) > 0 && m.hub.Pause(ownfile.PassingPause, nil) == nil {
		last := time.Since(m.loading) >= ownfile.PassingTime
		if last {
			faultpoint.At("hosted.unread")
		}
		left = slices.DeleteFunc(left, func(l *unread) bool { return m.readAgain(l, last) })
	}
}

// readAgain tries once more to read what Load could not read. With last set, what fails is damage. It
// reports whether it is settled now.
func (m *Manager) readAgain(l *unread, last bool) (settled bool) {
	var found *earlier.Process
	var lost []calls.Loss
	var err error
	if l.dir == "" {
		lost, err = m.vanished(last)
	} else {
		found, lost, err = m.look(l.dir, last)
	}
	if err != nil {
		return false
	}
	if found != nil {
		lost = append(lost, m.take(found)...)
	}
	if err := m.lose(lost); err != nil { // before what waits goes on
		m.hub.Log.Error("it cannot be written down that records are damaged", "err", err)
	}
	m.goOn(l)
	m.hub.Mu.Lock()
	whole := len(m.unread) == 0
	m.hub.Mu.Unlock()
	m.calls.LoadLateTasks(m.recall, whole)
	return true
}

// goOn lets go on what has waited for l, which is read or given up.
func (m *Manager) goOn(l *unread) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.unread = slices.DeleteFunc(m.unread, func(other *unread) bool { return other == l })
	for _, r := range l.responses {
		if c := m.hub.Clients[r.session]; !m.calls.RespondLocked(r.session, r.n, r.msg) && c != nil {
			m.hub.WG.Go(func() { c.Seen(r.n) })
		}
	}
	if len(m.unread) == 0 {
		m.back = nil
	}
	close(l.got)
	if m.hub.Closed {
		return
	}
	for session, c := range m.hub.Clients {
		m.hub.BoundLocked(session)
		if c.Era() != "" {
			m.hub.MetLocked(session)
		}
		m.eagerLocked(c.Caller())
	}
	m.idleLocked()
	m.hub.ReconcileLocked()
}

// take restores a process that was found while sessions are served. Its calls are settled by what
// their clients have said since they came back.
func (m *Manager) take(e *earlier.Process) []calls.Loss {
	return m.contain(e.Dir, func() []calls.Loss {
		m.hub.Mu.Lock()
		defer m.hub.Mu.Unlock()
		u, lost := m.restoreLocked(e)
		for _, c := range slices.Collect(maps.Values(u.Calls)) {
			if pending, back := m.back[c.Key.Session]; back {
				m.hub.ContainLocked(u, "settled a call", func() { m.hub.ReviewLocked(c, calls.Resumed(pending)) })
			}
		}
		for session, pending := range m.back {
			if pending == nil {
				m.forsakeLocked(session)
			}
		}
		m.calls.FoundLocked(u)
		return lost
	})
}

// Unread returns a channel that is closed once more is read of the records that may hold a call of a
// server, from that project and session; nil if all are read.
func (m *Manager) Unread(server, project, session string, _ int64) <-chan struct{} {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	return m.unreadLocked(server, project, session)
}

// unreadLocked is [Manager.Unread] for a caller that holds the hub's mutex.
func (m *Manager) unreadLocked(server, project, session string) <-chan struct{} {
	for _, l := range m.unread {
		if server != "" && l.of.Concerns(server, project, session) {
			return l.got
		}
	}
	return nil
}

// unreadLocked returns what the instance waits for before it starts a process: an earlier daemon's
// may live. It returns nil if it need not wait.
func (inst *instance) unreadLocked() <-chan struct{} {
	project, session := inst.project, ""
	if inst.key.scope == entry.Session {
		session = inst.key.of
	}
	return inst.m.unreadLocked(inst.key.server, project, session)
}

// Resumed settles the calls of a session whose client is back, except the calls of the lines that
// the client lists as pending: see [dispatch.Dispatcher.Resumed].
func (m *Manager) Resumed(session string, pending map[int64]struct{}) {
	m.hub.Mu.Lock()
	if len(m.unread) > 0 {
		m.noteLocked(session, maps.Clone(pending))
	}
	m.hub.Mu.Unlock()
	m.calls.Resumed(session, pending)
}

// noteLocked notes for which lines a session waits; nil says that it is over.
func (m *Manager) noteLocked(session string, pending map[int64]struct{}) {
	if m.back == nil {
		m.back = map[string]map[int64]struct{}{}
	}
	m.back[session] = pending
}

// Confirmed settles the calls of line n of a session: its client holds the answer.
func (m *Manager) Confirmed(session string, n int64) {
	m.hub.Mu.Lock()
	delete(m.back[session], n)
	m.hub.Mu.Unlock()
	m.calls.Confirmed(session, n)
}

// Respond takes the answer of a session's client, its line n, to the server that asked. It reports
// whether a server did, or may have: its process is yet to be read.
func (m *Manager) Respond(session string, n int64, msg jsonrpc.Message) bool {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if m.calls.RespondLocked(session, n, msg) {
		return true
	}
	id, _ := mcp.String([]byte(msg.ID))
	worker, _, _ := strings.Cut(id, ":")
	for _, l := range m.unread {
		if filepath.Base(l.dir) == worker && len(l.responses) < question.Max {
			l.responses = append(l.responses, response{session, n, msg.Clone()})
			return true
		}
	}
	return false
}
