package hosted

import (
	"context"
	"time"

	"holdline/daemon/hosted/handshake"
	"holdline/daemon/hosted/upstream"
	"holdline/protocol/faultpoint"
)

// handshake introduces the daemon to a process, in its server's era, and reads the
// server's lists. It returns when the lists are stored. Calls may follow after
// [Manager.serve].
func (inst *instance) handshake(ctx context.Context, u *upstream.Process) error {
	era, failed := handshake.Introduce(ctx, u, inst.m.o.Info, inst.era())
	var lists handshake.Lists
	if failed == nil {
		var err error
		if lists, err = inst.listAll(ctx, u); err != nil {
			return err
		}
		faultpoint.At("hosted.listed")
	}
	inst.m.hub.Mu.Lock()
	inst.srv.era = era
	inst.m.hub.Mu.Unlock()
	if failed == nil {
		inst.take(u, lists)
	}
	return failed
}

// era returns the era of the instance's server, or "" if it is not known.
func (inst *instance) era() string {
	inst.m.hub.Mu.Lock()
	defer inst.m.hub.Mu.Unlock()
	return inst.srv.era
}

// listAll reads all lists of a process.
func (inst *instance) listAll(ctx context.Context, u *upstream.Process) (handshake.Lists, error) {
	m := inst.m
	m.hub.Mu.Lock()
	about, before := u.Result, inst.srv.offersOfLocked(inst.key).Lists()
	m.hub.Mu.Unlock()
	lists, err := handshake.ReadLists(ctx, u, u.Log, about, before)
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
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
	up      *upstream.Process
	state   relistState
	last    time.Time     // when all lists were read
	wait    time.Duration // before they are read once more
	unheard bool          // a list was not answered when it was read last
}

// ListsChanged makes a goroutine read the lists of the instance's process again. If one
// is reading them already, it reads once more.
func (inst *instance) ListsChanged() {
	r := inst.relisting
	if r.state != relistIdle {
		r.state = relistAgain
		return
	}
	r.state = relistRunning
	inst.m.hub.WG.Go(func() { r.up.Contain("listed what a process offers", func() { inst.relistChanged(r) }) })
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
		m.hub.Mu.Lock()
		wait := r.pauseLocked(time.Now())
		m.hub.Mu.Unlock()
		if m.hub.Pause(wait, u.Exited) != nil {
			return // the next daemon asks
		}
		inst.readLists(u)
		m.hub.Mu.Lock()
		r.last = time.Now()
		if r.unheard {
			unheard++
		}
		again := (r.state == relistAgain || r.unheard && unheard < maxUnheard) && u.State != upstream.Exited && !m.hub.Closed
		if r.state = relistIdle; again {
			r.state = relistRunning
		}
		m.hub.Mu.Unlock()
		if !again {
			return
		}
	}
}

// readLists reads all lists of the process and publishes them. If that fails, the
// earlier lists stay.
func (inst *instance) readLists(u *upstream.Process) {
	ctx, cancel := context.WithTimeout(inst.m.hub.Life, relistTimeout)
	defer cancel()
	lists, err := inst.listAll(ctx, u)
	if err == nil {
		inst.take(u, lists)
	} else if inst.m.hub.Life.Err() == nil {
		u.Log.Warn("what the server offers cannot be read again", "err", err)
	}
}
