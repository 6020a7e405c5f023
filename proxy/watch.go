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

// now returns the present moment, on both clocks.
func (p *proxy) now() moment { return moment{time.Now(), p.o.sinceBoot()} }

// since returns the time since m. If asleep is true, the time for which the machine slept
// counts, too.
func (p *proxy) since(m moment, asleep bool) time.Duration {
	d := time.Since(m.at)
	if asleep {
		d = max(d, p.o.sinceBoot()-m.boot)
	}
	return d
}

// watch records when the daemon certainly still held a connection, while a tool call is in
// flight on it. A proxy that was stopped, or whose client did not read, notices late that
// the daemon is gone. But the daemon's records expire from the moment when it went: a resume
// after that could make the call a second time. Without a call nothing is watched, so that
// an idle proxy does not wake up.
type watch struct {
	woke chan struct{} // one token: a call began
	each time.Duration // between two looks

	mu   sync.Mutex // guards all below
	on   bool       // a call is in flight
	held moment     // when the daemon certainly still held the connection
}

// watched returns the watch of a connection that was made at m. within is the time for a
// resume: the looks are frequent enough to leave most of it. A call that a resume repeats is
// in flight already.
func (p *proxy) watched(m moment, within time.Duration) *watch {
	return &watch{
		woke: make(chan struct{}, 1), each: min(max(within/12, minLook), maxLook),
		on: p.store.calling() > 0, held: m,
	}
}

// begin records that a call was taken from the store. Call it before the call is written. If
// no other call is in flight, the watch begins now.
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

// checkConnection checks whether the daemon still holds the connection. It returns false if no call is
// in flight: then the next look comes after the next call has begun.
func (w *watch) checkConnection(p *proxy, conn net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = p.store.calling() > 0
	if !w.on {
		return false
	}
	now := p.now() // before the look: the process may stand still in between
	if !p.o.HungUp(conn) {
		w.held = now
	}
	return true
}

// lost returns the moment from which the time for a resume counts. Call it when the end of
// the connection was noticed. The moment is now, unless a call is in flight and the last look
// is too long ago: then late is true, and the moment is that of the last good look.
func (w *watch) lost(p *proxy) (m moment, late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := p.now()
	if !faultpoint.Broken("proxy.late") && w.on && now.at.Sub(w.held.at) > 2*w.each && p.store.calling() > 0 {
		return w.held, true
	}
	return now, false
}
