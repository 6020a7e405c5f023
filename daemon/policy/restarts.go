package policy

import (
	"sync"
	"time"

	"holdline/protocol/fault"
)

// Bounds of the back-off before a restart.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Restarts is the restart budget of one server's process. It is safe for concurrent
// use.
type Restarts struct {
	most   int
	window time.Duration
	jitter func() float64

	mu      sync.Mutex
	at      []time.Time // of the restarts in the window, never more than the budget; guarded by mu
	ejected bool        // guarded by mu
}

// NewRestarts returns a budget of most restarts within window. One more ejects the
// server until [Restarts.Reset]. jitter must return numbers in [0, 1), as
// [math/rand/v2.Float64] does; it is called with a lock held.
func NewRestarts(most int, window time.Duration, jitter func() float64) *Restarts {
	return &Restarts{most: most, window: window, jitter: jitter}
}

// Failed counts a process that has ended unexpectedly or could not be started. It
// returns how long to wait before the next start: 100 ms × 2^(n-1) for the nth restart
// in the window, at most 5 s, less a jitter of up to a half. The jitter keeps servers
// that fail together from starting together. ok is false if the server is ejected, by
// this failure or an earlier one.
func (r *Restarts) Failed(now time.Time) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune(now)
	if r.ejected || len(r.at) >= r.most {
		r.ejected = true
		return 0, false
	}
	r.at = append(r.at, now)
	wait = maxBackoff
	if n := len(r.at) - 1; n < 16 { // more would overflow at some time
		wait = min(maxBackoff, firstBackoff<<n)
	}
	return wait - time.Duration(r.jitter()*float64(wait/2)), true
}

// prune forgets the restarts before the window. The caller must hold mu.
func (r *Restarts) prune(now time.Time) {
	old := 0
	for old < len(r.at) && now.Sub(r.at[old]) >= r.window {
		old++
	}
	r.at = append(r.at[:0], r.at[old:]...)
}

// Count returns the number of restarts in the window that ends now.
func (r *Restarts) Count(now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune(now)
	return len(r.at)
}

// Ejected reports whether the server is ejected.
func (r *Restarts) Ejected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ejected
}

// Eject ejects the server. The daemon calls it for a server that an earlier daemon has
// ejected: a restart of the daemon must not give such servers a new budget.
func (r *Restarts) Eject() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ejected = true
}

// Reset gives the server a fresh budget.
func (r *Restarts) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.ejected = nil, false
}

// Fault returns the fault for calls of an ejected server.
func (r *Restarts) Fault(server, tool string) *fault.Record {
	return fault.New(fault.Ejected, fault.Host, operation(tool),
		"server %s is ejected: it ended or did not start more than %d times in %v; once it is fixed: holdline servers "+
			"reload %s",
		server, r.most, r.window, server)
}
