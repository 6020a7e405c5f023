package hosted

import (
	"holdline/daemon/calls"
	"holdline/daemon/hosted/detached"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/tasks"
)

// Tasks returns the tasks of calls that took long. Call it once [Manager.Load] has returned.
func (m *Manager) Tasks() *detached.Store { return m.calls.Tasks }

// loadTasks reads the tasks of earlier daemons, once the records of calls are known. Calls of
// tasks that work go on; a task whose call is on record nowhere has ended.
func (m *Manager) loadTasks() error {
	if m.o.TasksDir == "" {
		return nil
	}
	store, err := detached.Open(m.o.TasksDir, m.hub.Log)
	if err != nil {
		return err
	}
	m.calls.Tasks = store
	for _, rec := range store.Records() {
		m.loadTask(&rec)
	}
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	for key, c := range m.hub.Calls {
		if c.Claim().IsDetached() && !store.Has(tasks.ID(key.Session, key.N)) { // no client can ask for it
			m.withdrawLocked(c)
		}
	}
	m.hub.WG.Go(func() { store.Run(m.hub.Life) })
	return nil
}

// loadTask goes on with a task of an earlier daemon.
func (m *Manager) loadTask(rec *detached.Record) {
	m.hub.Mu.Lock()
	key := rec.Key()
	c := m.hub.Calls[key]
	final := rec.Status.IsFinal()
	switch {
	case c == nil && final:
		m.hub.Mu.Unlock()
	case c == nil:
		m.hub.Mu.Unlock()
		m.calls.Lost(rec)
	case !c.Claim().IsDetached(): // its client waits for the answer: it was never told of a task
		m.hub.Mu.Unlock()
		if !final {
			m.calls.Tasks.Forget(rec.ID)
		}
	case final:
		defer m.hub.Mu.Unlock()
		if rec.Status == tasks.Cancelled { // perhaps nobody has told the server
			for ; c != nil; c = m.hub.Calls[key] {
				m.withdrawLocked(c)
				key.Round++
			}
			return
		}
		m.calls.StoredLocked(key.Session, key.N)
	default:
		s, o := m.recallLocked(c)
		m.hub.Mu.Unlock()
		m.calls.Continue(s, o, rec)
	}
}

// withdrawLocked gives up a detached call that no client wants.
func (m *Manager) withdrawLocked(c *upstream.Call) {
	c.Withdrawn = true
	c.Demand(calls.Withdraw)
	m.hub.DropLocked(c)
}
