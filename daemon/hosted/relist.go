package hosted

import (
	"context"
	"time"
)

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

// relistLocked makes a goroutine read the process's lists again. If one is reading
// them already, it reads once more.
func (u *upstream) relistLocked() {
	if u.relist != relistIdle {
		u.relist = relistAgain
		return
	}
	u.relist = relistRunning
	u.m.wg.Go(func() { u.contain("listed what a process offers", u.relistChanged) })
}

// relistIn returns how long to wait before the lists are read again: 0 if the last
// time was long ago, else longer each time.
func (u *upstream) relistIn(now time.Time) time.Duration {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	since := now.Sub(u.relisted)
	if u.relisted.IsZero() || since > 2*maxRelistWait {
		u.relistWait = 0
		return 0
	}
	u.relistWait = min(max(2*u.relistWait, firstRelistWait), maxRelistWait)
	return u.relistWait - since
}

// maxUnheard is how often a list that the server does not answer is asked for before
// the daemon gives up.
const maxUnheard = 3

// relistChanged reads the lists until none has changed meanwhile and all were
// answered. However often the server announces changes, it only reads once for all
// announcements during a pause.
func (u *upstream) relistChanged() {
	for unheard := 0; ; {
		if pause(u.m.life, u.relistIn(time.Now()), u.exited) != nil {
			return // the next daemon asks
		}
		u.readLists()
		u.m.mu.Lock()
		u.relisted = time.Now()
		if u.unheard {
			unheard++
		}
		again := (u.relist == relistAgain || u.unheard && unheard < maxUnheard) && u.state != exited && !u.m.closed
		if u.relist = relistIdle; again {
			u.relist = relistRunning
		}
		u.m.mu.Unlock()
		if !again {
			return
		}
	}
}

// readLists reads all lists of the process and publishes them. If that fails, the
// earlier lists stay.
func (u *upstream) readLists() {
	ctx, cancel := context.WithTimeout(u.m.life, relistTimeout)
	defer cancel()
	raw, cut, err := u.listAll(ctx)
	if err != nil {
		if u.m.life.Err() == nil {
			u.log.Warn("what the server offers cannot be read again", "err", err)
		}
		return
	}
	u.take(raw, cut)
}
