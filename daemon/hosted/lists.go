package hosted

import (
	"context"
	"time"

	"holdline/daemon/hosted/handshake"
	"holdline/protocol/faultpoint"
)

// handshake introduces the daemon to a process, in its server's era, and reads the
// server's lists. It returns when the lists are stored. Calls may follow after
// [Manager.serve].
func (inst *instance) handshake(ctx context.Context, u *upstream) error {
	era, failed := handshake.Introduce(ctx, u, inst.m.o.Info, inst.era())
	var lists handshake.Lists
	if failed == nil {
		var err error
		if lists, err = inst.listAll(ctx, u); err != nil {
			return err
		}
		faultpoint.At("hosted.listed")
	}
	inst.m.mu.Lock()
	inst.srv.era = era
	inst.m.mu.Unlock()
	if failed == nil {
		inst.take(u, lists)
	}
	return failed
}

// era returns the era of the instance's server, or "" if it is not known.
func (inst *instance) era() string {
	inst.m.mu.Lock()
	defer inst.m.mu.Unlock()
	return inst.srv.era
}

// listAll reads all lists of a process.
func (inst *instance) listAll(ctx context.Context, u *upstream) (handshake.Lists, error) {
	m := inst.m
	m.mu.Lock()
	about, before := u.result, inst.srv.offersOfLocked(inst.key).Lists()
	m.mu.Unlock()
	lists, err := handshake.ReadLists(ctx, u, u.log, about, before)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && inst.relisting != nil && inst.relisting.up == u {
		inst.relisting.unheard = lists.Unheard
	}
	return lists, err
}

// Pauses between two looks at the lists of a server that goes on saying that
// they have changed: some say so whenever they are asked for them.
const (
	firstRelistWait = 100 * time.Millisecond
	maxRelistWait   = 10 * time.Second
)

// relistState says whether a process is being asked for its lists again.
type relistState int8

const (
	relistIdle    relistState = iota
	relistRunning             // the lists are read, or a pause before that is under way
	relistAgain               // so, and since then the process said that they have changed
)

// relistTimeout bounds the time for reading all lists of a process that serves.
const relistTimeout = time.Minute

// A relisting has the lists of one process read again. It is guarded by the manager's
// mutex.
type relisting struct {
	up      *upstream
	state   relistState
	last    time.Time     // when all lists were read
	wait    time.Duration // before they are read once more
	unheard bool          // a list was not answered when it was read last
}

// relistLocked makes a goroutine read the lists of the instance's process again. If one
// is reading them already, it reads once more.
func (inst *instance) relistLocked() {
	r := inst.relisting
	if r.state != relistIdle {
		r.state = relistAgain
		return
	}
	r.state = relistRunning
	inst.m.wg.Go(func() { r.up.contain("listed what a process offers", func() { inst.relistChanged(r) }) })
}

// pauseLocked returns how long to wait before the lists are read again: 0 if the last
// time was long ago, else longer each time.
func (r *relisting) pauseLocked(now time.Time) time.Duration {
	since := now.Sub(r.last)
	if r.last.IsZero() || since > 2*maxRelistWait {
		r.wait = 0
		return 0
	}
	r.wait = min(max(2*r.wait, firstRelistWait), maxRelistWait)
	return r.wait - since
}

// maxUnheard is how often a list that the server does not answer is asked for before
// the daemon gives up.
const maxUnheard = 3

// relistChanged reads the lists until none has changed meanwhile and all were
// answered. However often the server announces changes, it only reads once for all
// announcements during a pause.
func (inst *instance) relistChanged(r *relisting) {
	m, u := inst.m, r.up
	for unheard := 0; ; {
		m.mu.Lock()
		wait := r.pauseLocked(time.Now())
		m.mu.Unlock()
		if pause(m.life, wait, u.exited) != nil {
			return // the next daemon asks
		}
		inst.readLists(u)
		m.mu.Lock()
		r.last = time.Now()
		if r.unheard {
			unheard++
		}
		again := (r.state == relistAgain || r.unheard && unheard < maxUnheard) && u.state != exited && !m.closed
		if r.state = relistIdle; again {
			r.state = relistRunning
		}
		m.mu.Unlock()
		if !again {
			return
		}
	}
}

// readLists reads all lists of the process and publishes them. If that fails, the
// earlier lists stay.
func (inst *instance) readLists(u *upstream) {
	ctx, cancel := context.WithTimeout(inst.m.life, relistTimeout)
	defer cancel()
	lists, err := inst.listAll(ctx, u)
	if err == nil {
		inst.take(u, lists)
	} else if inst.m.life.Err() == nil {
		u.log.Warn("what the server offers cannot be read again", "err", err)
	}
}
