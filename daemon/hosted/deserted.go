package hosted

import (
	"errors"

	"holdline/protocol/process"
)

// A process of a single session is of no use once the session's proxy has ended.
// While a daemon runs it notices that, and ends the process. A daemon that starts
// finds out by the proxy's process, which is on record: otherwise the process would
// wait for [Options.Return] after each start, with all the output that it has not
// been able to get rid of.

// forsakeDeserted gives up the sessions whose proxies have ended while no daemon ran.
// found are the processes that earlier daemons have started.
func (m *Manager) forsakeDeserted(found []*earlier) {
	for _, e := range found {
		if o := &e.spec.Owner; isDeserted(o) {
			m.hub.Mu.Lock()
			m.forsakeLocked(o.Session)
			m.hub.Mu.Unlock()
		}
	}
}

// isDeserted reports whether the proxy of an owner's session has ended. If the
// proxy's process cannot be looked up, it counts as alive.
func isDeserted(o *process.Owner) bool {
	if o.Session == "" || o.ProxyPID == 0 || o.ProxyStart == 0 {
		return false
	}
	p, err := process.Lookup(o.ProxyPID)
	return errors.Is(err, process.ErrGone) || err == nil && p.Start != o.ProxyStart
}
