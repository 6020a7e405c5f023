// Package failures remembers which consults have failed of late, and which of their files
// cannot be written or read.
package failures

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/consult/jobdir"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/lockcheck"
)

// most bounds the failures that are remembered; of more, the oldest are forgotten.
const most = 100

// failure is a consult that failed, or that could not run at all.
type failure struct {
	at   time.Time
	what string // for people
}

// Log remembers failures. It is safe for concurrent use.
type Log struct {
	mu        lockcheck.Mutex     // guards what follows
	failures  []failure           // the latest ones, oldest first
	unwritten []control.Unwritten // the latest files, oldest first; InMemory is not filled in
	unread    []string            // why directories of earlier daemons were left alone
}

// Failed remembers that a consult failed at that time, unless its caller has caused or
// wanted that.
func (l *Log) Failed(at time.Time, err error) {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.IsOwn() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, failure{at, f.Fault.Detail})
	// Those of kept answers are not read in the order of their times.
	slices.SortStableFunc(l.failures, func(a, b failure) int { return a.at.Compare(b.at) })
	if len(l.failures) > most {
		l.failures = append(l.failures[:0], l.failures[1:]...)
	}
}

// Within returns how many consults have failed within that time, and why the last of them
// did. It counts at most 100; those of earlier daemons only if an answer is kept.
func (l *Log) Within(within time.Duration) (n int, last string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.failures {
		if time.Since(f.at) < within {
			n, last = n+1, f.what
		}
	}
	return n, last
}

// Unwritten remembers that a file of a job's directory could not be written whole.
func (l *Log) Unwritten(dir, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unwritten = append(l.unwritten, control.Unwritten{
		Path: filepath.Join(dir, filepath.Base(name)), UnixMS: time.Now().UnixMilli(),
	})
	if len(l.unwritten) > most {
		l.unwritten = append(l.unwritten[:0], l.unwritten[1:]...)
	}
}

// Unread remembers why the directory of an earlier daemon's job was left alone.
func (l *Log) Unread(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unread = append(l.unread, err.Error())
}

// Files returns the answers that are only in memory, as inMemory reports it of an id, since
// their files could not be written, and the other files that could not be written whole within
// that time; and why directories of earlier daemons cannot be read. It calls inMemory without
// a lock.
func (l *Log) Files(
	within time.Duration, inMemory func(id string) bool,
) (unwritten []control.Unwritten, unread []string) {
	l.mu.Lock()
	all, unread := slices.Clone(l.unwritten), slices.Clone(l.unread)
	l.mu.Unlock()
	for _, u := range all {
		if filepath.Base(u.Path) == jobdir.FileAnswer {
			u.InMemory = inMemory(filepath.Base(filepath.Dir(u.Path)))
			if !u.InMemory { // it is written by now, or nobody wants it any more
				continue
			}
		}
		if u.InMemory || time.Since(time.UnixMilli(u.UnixMS)) < within {
			unwritten = append(unwritten, u)
		}
	}
	return unwritten, unread
}
