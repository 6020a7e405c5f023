package consult

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/consult/jobdir"
	"holdline/protocol/control"
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

// noteUnwritten remembers that a file of a job's directory could not be written whole. It
// takes m.mu.
func (m *Manager) noteUnwritten(dir, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unwritten = append(m.unwritten, control.Unwritten{
		Path: filepath.Join(dir, filepath.Base(name)), UnixMS: time.Now().UnixMilli(),
	})
	if len(m.unwritten) > maxFailures {
		m.unwritten = append(m.unwritten[:0], m.unwritten[1:]...)
	}
}

// BadFiles returns the answers that are only in memory, since their files could not be
// written, and the other files that could not be written whole within that time; and why
// directories of earlier daemons cannot be read.
func (m *Manager) BadFiles(within time.Duration) (unwritten []control.Unwritten, unread []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.unwritten {
		if filepath.Base(u.Path) == jobdir.FileAnswer {
			id := filepath.Base(filepath.Dir(u.Path))
			u.InMemory = m.live[id] != nil || m.unwrittenLocked(id) != nil
			if !u.InMemory { // it is written by now, or nobody wants it any more
				continue
			}
		}
		if u.InMemory || time.Since(time.UnixMilli(u.UnixMS)) < within {
			unwritten = append(unwritten, u)
		}
	}
	return unwritten, slices.Clone(m.unread)
}
