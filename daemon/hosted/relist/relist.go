// Package relist reads the lists of a process, and reads them again when the process says
// that they have changed, or did not answer.
package relist

import (
	"context"
	"time"

	"holdline/daemon/hosted/handshake"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
)

// Pauses between two looks at the lists of a server that goes on saying that
// they have changed: some say so whenever they are asked for them.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 10 * time.Second
)

// timeout bounds the time for reading all lists of a process that serves.
const timeout = time.Minute

// maxUnheard is how often a list that the server does not answer is asked for before
// the daemon gives up.
const maxUnheard = 3

// state says whether a process is being asked for its lists again.
type state int8

const (
	idle    state = iota
	running       // the lists are read, or a pause before that is under way
	again         // so, and since then the process said that they have changed
)

// A Reader reads the lists of one process. Its methods are safe for concurrent use; the
// caller of those whose names end in Locked holds the hub's mutex.
type Reader struct {
	hub   *upstream.Hub
	up    *upstream.Process
	known func() listing.Lists // what sessions are offered now; called with the hub's mutex
	take  func(handshake.Lists)

	// Guarded by the hub's mutex.
	state   state
	last    time.Time     // when all lists were read
	wait    time.Duration // before they are read once more
	unheard bool          // a list was not answered when it was read last
	missed  bool          // they have changed while the process started
}

// New returns a reader for a process. known returns what sessions are offered, which
// stands for lists that the process does not answer; it is called with the hub's mutex
// held. take publishes lists that were read again.
func New(hub *upstream.Hub, up *upstream.Process, known func() listing.Lists, take func(handshake.Lists)) *Reader {
	return &Reader{hub: hub, up: up, known: known, take: take}
}

// Read reads all lists of the process.
func (r *Reader) Read(ctx context.Context) (handshake.Lists, error) {
	r.hub.Mu.Lock()
	about, before := r.up.Result, r.known()
	r.hub.Mu.Unlock()
	lists, err := handshake.ReadLists(ctx, r.up, r.up.Log, about, before)
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	if err == nil {
		r.unheard = lists.Unheard
	}
	return lists, err
}

// ReadAgain reads all lists of the process and publishes them. If that fails, the
// earlier lists stay.
func (r *Reader) ReadAgain() {
	ctx, cancel := context.WithTimeout(r.hub.Life, timeout)
	defer cancel()
	lists, err := r.Read(ctx)
	if err == nil {
		r.take(lists)
	} else if r.hub.Life.Err() == nil {
		r.up.Log.Warn("what the server offers cannot be read again", "err", err)
	}
}

// ChangedLocked makes a goroutine of the hub read the lists again. If one is reading them
// already, it reads once more. While the process starts, its start reads them: then
// [Reader.RetryLocked] does it.
func (r *Reader) ChangedLocked() {
	if r.up.State == stage.Starting {
		r.missed = true
		return
	}
	if r.state != idle {
		r.state = again
		return
	}
	r.state = running
	r.hub.WG.Go(func() { r.up.Contain("listed what a process offers", r.follow) })
}

// RetryLocked is [Reader.ChangedLocked] for a process that has left a list without an
// answer, or whose lists have changed while it started; for others it does nothing. Call it
// once the process serves.
func (r *Reader) RetryLocked() {
	if r.unheard || r.missed {
		r.missed = false
		r.ChangedLocked()
	}
}

// pauseLocked returns how long to wait before the lists are read again: 0 if the last
// time was long ago, else longer each time.
func (r *Reader) pauseLocked(now time.Time) time.Duration {
	since := now.Sub(r.last)
	if r.last.IsZero() || since > 2*maxWait {
		r.wait = 0
		return 0
	}
	r.wait = min(max(2*r.wait, firstWait), maxWait)
	return r.wait - since
}

// follow reads the lists until none has changed meanwhile and all were answered. However
// often the server announces changes, it only reads once for all announcements during a
// pause.
func (r *Reader) follow() {
	for unheard := 0; ; {
		r.hub.Mu.Lock()
		wait := r.pauseLocked(time.Now())
		r.hub.Mu.Unlock()
		if r.hub.Pause(wait, r.up.Exited) != nil {
			return // the next daemon asks
		}
		r.ReadAgain()
		r.hub.Mu.Lock()
		r.last = time.Now()
		if r.unheard {
			unheard++
		}
		more := (r.state == again || r.unheard && unheard < maxUnheard) &&
			r.up.State != stage.Exited && !r.hub.Closed
		if r.state = idle; more {
			r.state = running
		}
		r.hub.Mu.Unlock()
		if !more {
			return
		}
	}
}
