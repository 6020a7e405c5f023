package proxy

import (
	"net"
	"sync"
	"time"

	"holdline/protocol/faultpoint"
)

// Bounds of the time between two looks at a connection that has a call.
const (
	minLook = 50 * time.Millisecond
	maxLook = 5 * time.Second
)

// moment is a point in time on two clocks.
type moment struct {
	at   time.Time
	boot time.Duration // since boot, sleep of the machine included
}

func (p *proxy) now() moment { return moment{time.Now(), p.o.sinceBoot()} }

// since is how long ago m was; with the time that the machine slept, if asleep
// is to count.
func (p *proxy) since(m moment, asleep bool) time.Duration {
	d := time.Since(m.at)
	if asleep {
		d = max(d, p.o.sinceBoot()-m.boot)
	}
	return d
}

// watch knows when the daemon certainly held a connection, while a tool call
// is on its way on it. A process that stood still, or whose client did not
// read, notices late that the daemon is gone, and for a call the time since
// then counts: its record may have expired. Without a call nothing is watched,
// and an idle proxy has nothing to wake up for.
type watch struct {
	woke chan struct{} // one token: a call began
	each time.Duration // between two looks

	mu   sync.Mutex // guards all below
	on   bool
	held moment
}

// watched makes the watch of a connection that has stood since m. A call that
// a resume repeats is on its way already.
func (p *proxy) watched(m moment, within time.Duration) *watch {
	return &watch{
		woke: make(chan struct{}, 1), each: min(max(within/12, minLook), maxLook),
		on: p.store.calling() > 0, held: m,
	}
}

// begin notes a call that was taken from the store; call it before it is written.
// If it is the only one, what was before it does not count.
func (w *watch) begin(p *proxy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on && p.store.calling() > 1 {
		return
	}
	w.held = p.now()
	if !w.on {
		w.on = true
		poke(w.woke)
	}
}

// look checks the connection, and reports whether to look again.
func (w *watch) look(p *proxy, conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = p.store.calling() > 0
	if !w.on {
		return false
	}
	now := p.now() // before the look: the process may stand still in between
	if p.o.HungUp == nil || !p.o.HungUp(conn) {
		w.held = now
	}
	return true
}

// lost is the moment from which the time for a resume counts, told when the
// connection's end was noticed: now, unless a call was on its way and the
// connection has not been looked after as it should have been. late tells that.
func (w *watch) lost(p *proxy) (m moment, late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := p.now()
	if !faultpoint.Broken("proxy.late") && w.on && now.at.Sub(w.held.at) > 2*w.each && p.store.calling() > 0 {
		return w.held, true
	}
	return now, false
}
