package consult

import (
	"errors"
	"time"

	"holdline/protocol/fault"
)

// maxFailures bounds the failures that are remembered; of more, the oldest are forgotten.
const maxFailures = 100

// failure is a consult that failed, or that could not run at all.
type failure struct {
	at   time.Time
	what string // for people
}

// noteFailure remembers that a consult failed, unless its caller has caused or wanted that.
// It takes m.mu.
func (m *Manager) noteFailure(err error) {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.IsOwn() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failures) >= maxFailures {
		m.failures = append(m.failures[:0], m.failures[1:]...)
	}
	m.failures = append(m.failures, failure{time.Now(), f.Fault.Detail})
}

// Failures returns how many consults have failed within that time, and why the last of them
// did. It counts at most [maxFailures], and only those of this daemon.
func (m *Manager) Failures(within time.Duration) (n int, last string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.failures {
		if time.Since(f.at) < within {
			n, last = n+1, f.what
		}
	}
	return n, last
}
