package policy

import (
	"sync"
	"time"

	"holdline/protocol/fault"
)

// Back-off before a restart.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Restarts is the restart budget of one server's process. It is safe for
// concurrent use.
type Restarts struct {
	most   int
	window time.Duration
	jitter func() float64

	mu      sync.Mutex
	at      []time.Time // of the restarts in the window, never more than the budget; guarded by mu
	ejected bool        // guarded by mu
}

// NewRestarts allows so many restarts in any span of the length window; one
// more, and the server is ejected until [Restarts.Reset]. Jitter gives numbers
// in [0, 1), such as [math/rand/v2.Float64]; it is called with a lock held.
func NewRestarts(most int, window time.Duration, jitter func() float64) *Restarts {
	return &Restarts{most: most, window: window, jitter: jitter}
}

// Failed counts a process that has ended of itself or could not be started,
// and tells how long to wait before the next is started: 100 ms × 2^(n-1) for
// the nth restart in the window, at most 5 s, of which jitter takes up to a
// half. Not ok is an ejection, now or earlier.
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

// prune forgets what is out of the window.
func (r *Restarts) prune(now time.Time) {
	old := 0
	for old < len(r.at) && now.Sub(r.at[old]) >= r.window {
		old++
	}
	r.at = append(r.at[:0], r.at[old:]...)
}

// Count is the number of restarts in the window that ends now.
func (r *Restarts) Count(now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune(now)
	return len(r.at)
}

// Ejected tells whether the budget was spent since the last reset.
func (r *Restarts) Ejected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ejected
}

// Eject ejects at once: how a daemon goes on that finds a server ejected.
func (r *Restarts) Eject() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ejected = true
}

// Reset gives a fresh budget.
func (r *Restarts) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.ejected = nil, false
}

// Fault is what callers of an ejected server are told.
func (r *Restarts) Fault(server, tool string) *fault.Record {
	return fault.New(fault.Ejected, fault.Host, operation(tool),
		"server %s is ejected: it ended or did not start more than %d times in %v; once it is mended: holdline servers reload %s",
		server, r.most, r.window, server)
}
