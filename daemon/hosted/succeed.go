package hosted

import (
	"context"
	"errors"

	"holdline/daemon/hosted/stage"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// A server whose entry was edited, and that serves, goes on until a process of its
// successor has come up: an edit that does not work takes no server from any session.

// A succession is the attempt to replace a server by the one that its edited entry
// describes. It is guarded by the hub's mutex.
type succession struct {
	next  *server
	done  chan struct{} // closed when it has, or will not
	err   error         // why it will not; read once done is closed
	fault *fault.Record // the same, as it stands with the server that goes on
}

// keepLocked ends the succession of a server, because its entry is again as before.
// The fault of the successor's start is cleared.
func (s *server) keepLocked() {
	if x := s.succession; x != nil && x.fault == s.verdict.Fault {
		s.verdict.Fault = nil
	}
	s.succession = nil
}

// servesLocked returns an instance of the server that serves a session, and that
// session; nil if there is none.
func (s *server) servesLocked() (*instance, tool.Client) {
	for inst := range s.instancesLocked() {
		if inst.up == nil || inst.up.State != stage.Serving {
			continue
		}
		for session, c := range s.m.hub.Clients {
			if inst.Uses(session, c) {
				return inst, c
			}
		}
	}
	return nil, nil
}

// replaceLocked replaces a server by another one of its name. If the old one serves a
// session, a process of the new one must come up first; a goroutine sees to that. It
// reports whether the server is replaced already.
func (m *Manager) replaceLocked(old, next *server) bool {
	next.verdict.Stopped, next.verdict.Damaged = old.verdict.Stopped, old.verdict.Damaged
	inst, c := old.servesLocked()
	if inst == nil || old.verdict.Stopped || m.hub.Closed {
		m.retireLocked(old)
		m.servers[next.spec.Name] = next
		return true
	}
	who := c.Caller()
	trial := next.newInstance(next.instanceKey(&who), who.Project, who.Place(), stage.OnTrial)
	x := &succession{next: next, done: make(chan struct{})}
	old.succession = x
	m.hub.WG.Go(func() {
		defer close(x.done)
		x.err = m.succeed(old, trial, trial.startContained())
	})
	return false
}

// succeed replaces a server after the trial start of its successor ended with err. If
// that failed, or the configuration has changed again, the old server goes on and the
// trial is ended. It returns why the old server was not replaced.
func (m *Manager) succeed(old *server, trial *instance, err error) error {
	next := trial.srv
	m.hub.Mu.Lock()
	wanted := m.servers[next.spec.Name] == old && old.succession != nil && old.succession.next == next
	if next.login.Refusal() != nil {
		err = nil // the entry is right, and says what is missing
	}
	if f, ok := errors.AsType[*fault.Record](err); wanted && ok {
		f.Fault.Detail = "its entry was edited, and what that says now does not start, " +
			"so the server goes on as it was: " + f.Fault.Detail
		old.succession.fault = f
		old.verdict.Blame(f)
	}
	if err != nil || !wanted || m.hub.Closed {
		trial.use = stage.Retired
		if u := trial.up; u != nil {
			u.EndLocked()
		}
		m.hub.Mu.Unlock()
		if err == nil && !wanted {
			return nil // by now the configuration wants another one
		}
		return err
	}
	trial.use = stage.InUse
	next.verdict.Stopped, next.verdict.Damaged = old.verdict.Stopped, old.verdict.Damaged
	m.retireLocked(old)
	m.servers[next.spec.Name] = next
	m.instances[trial.key] = trial
	if next.verdict.Stopped {
		trial.retireLocked()
	}
	for _, c := range m.hub.Clients {
		m.eagerLocked(c.Caller())
	}
	m.idleLocked() // the last session may have left during the start
	m.hub.ReconcileLocked()
	m.hub.Mu.Unlock()
	m.hub.Log.Info("server replaced by what its entry says now", "server", next.spec.Name)
	m.calls.Cache().Forget(next.spec.Name)
	next.persist()
	_ = next.storeOffers() // only the server that has the name writes that file
	m.Changed()
	return nil
}

// Replaced waits until the servers whose entries were edited are replaced. It returns for each that
// is not, by name, why it goes on as before. If ctx ends first it returns the cause. Commands that
// change the configuration call it to report to the user.
func (m *Manager) Replaced(ctx context.Context) (map[string]error, error) {
	m.hub.Mu.Lock()
	pending := map[string]*succession{}
	for name, s := range m.servers {
		if s.succession != nil {
			pending[name] = s.succession
		}
	}
	m.hub.Mu.Unlock()
	failed := map[string]error{}
	for name, x := range pending {
		select {
		case <-x.done:
		case <-ctx.Done():
			return failed, context.Cause(ctx)
		}
		if x.err != nil {
			failed[name] = x.err
		}
	}
	return failed, nil
}
