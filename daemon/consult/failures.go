package consult

import (
	"errors"
	"slices"
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

// noteFailure remembers that a consult failed at that time, unless its caller has caused or
// wanted that. It takes m.mu.
func (m *Manager) noteFailure(at time.Time, err error) {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.IsOwn() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = append(m.failures, failure{at, f.Fault.Detail})
	// Those of kept answers are not read in the order of their times.
	slices.SortStableFunc(m.failures, func(a, b failure) int { return a.at.Compare(b.at) })
	if len(m.failures) > maxFailures {
		m.failures = append(m.failures[:0], m.failures[1:]...)
	}
}

// Failures returns how many consults have failed within that time, and why the last of them
// did. It counts at most [maxFailures]; those of earlier daemons only if an answer is kept.
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
