package upstream

import (
	"context"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/hang"
	"holdline/daemon/hosted/stage"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// hearing is what is known of when a process has sent a message. The reader changes it without a
// lock for each message; the rest is guarded by hub.Mu.
type hearing struct {
	watched bool      // [Process.lookAfter] is under way
	at      int64     // how many messages were read of the process when it was pinged last
	since   time.Time // of that ping, which had no answer in time; zero if there is no such ping
}

// programBegun is a time from which others are counted, so that setting the clock changes nothing.
var programBegun = time.Now()

// hear notes that the process has sent a message. Only the reader calls it. It needs no lock.
func (u *Process) hear() {
	u.heard.Add(1)
	u.heardAt.Store(int64(time.Since(programBegun)))
	if u.listening.Load() {
		select {
		case u.sign <- struct{}{}:
		default:
		}
	}
}

// SilentSinceLocked returns since when the process has left a ping without an answer and has sent
// nothing else; the zero time if it has not. One that waits for a client's answer may be silent. The
// caller must hold hub.Mu.
func (u *Process) SilentSinceLocked() time.Time {
	if u.hearing.since.IsZero() || u.heard.Load() != u.hearing.at || !u.mayBeAskedLocked() {
		return time.Time{}
	}
	return u.hearing.since
}

// mayBeAskedLocked reports whether silence of the process says something of it: its worker can be
// reached, and it does not wait for a client's answer. The caller must hold hub.Mu.
func (u *Process) mayBeAskedLocked() bool {
	if u.attached == nil || u.questions.AwaitClient() {
		return false
	}
	w := u.attached.Status()
	return w.Host == "" || w.Attached
}

// lookAfterLocked starts a goroutine that pings the process while it is silent during calls, unless
// one is under way. The caller must hold hub.Mu.
func (u *Process) lookAfterLocked() {
	if u.hearing.watched || u.hub.Closed || u.State >= stage.Ending || !u.hasOpenLocked() {
		return
	}
	u.hearing.watched = true
	u.hub.WG.Go(func() { u.Contain("looked after a process", u.lookAfter) })
}

// hasOpenLocked reports whether the process has a call to answer. The caller must hold hub.Mu.
func (u *Process) hasOpenLocked() bool {
	for _, c := range u.Calls {
		if c.Up == u && c.Phase() == calls.Open {
			return true
		}
	}
	return false
}

// lookAfter is [hang.Watch] for the process. It takes hub.Mu.
func (u *Process) lookAfter() {
	hang.Watch(hang.Busy{
		Limits: u.Instance.Limits,
		Silent: func() (time.Duration, bool) {
			u.hub.Mu.Lock()
			defer u.hub.Mu.Unlock()
			if u.hub.Closed || u.State >= stage.Ending || !u.hasOpenLocked() {
				u.hearing.watched = false
				return 0, false
			}
			if !u.mayBeAskedLocked() {
				return 0, true
			}
			return time.Since(programBegun) - time.Duration(u.heardAt.Load()), true
		},
		Pause: func(d time.Duration) bool {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-t.C:
				return true
			case <-u.Exited:
			case <-u.hub.Life.Done():
			}
			return false
		},
		Ping: u.awaitSign,
	})
}

// awaitSign pings the process and waits for a message of it. After wait the process counts as one
// that does not answer. It reports false if the process exited, or the daemon stops. It takes hub.Mu.
func (u *Process) awaitSign(wait time.Duration) bool {
	u.listening.Store(true)
	defer u.listening.Store(false)
	select {
	case <-u.sign: // it is of an earlier ping
	default:
	}
	before, begun := u.heard.Load(), time.Now()
	ctx, cancel := context.WithTimeout(u.hub.Life, wait)
	defer cancel()
	method, params := u.lifeQuestion()
	take := func(jsonrpc.Message) {} // that there is an answer is enough, and the reader says so
	write, err := u.ask(ctx, calls.Record{Kind: calls.KindProbe, Name: method}, method, params, inquiry{take: take},
		func(int64) {})
	if err == nil {
		defer u.forgetInquiry(write)
	}
	select {
	case <-u.sign:
		return true
	case <-u.Exited:
		return false
	case <-ctx.Done():
	}
	if u.hub.Life.Err() != nil {
		return false
	}
	u.hub.Mu.Lock()
	u.hearing.at, u.hearing.since = before, begun
	u.hub.Mu.Unlock()
	select {
	case <-u.sign:
		return true
	case <-u.Exited:
	case <-u.hub.Life.Done():
	}
	return false
}

// lifeQuestion returns the request by which the process is asked for a sign of life: a modern
// server knows no ping, and must know the other one.
func (u *Process) lifeQuestion() (method string, params []byte) {
	e := u.Envelope()
	if e.Era == dialect.Legacy {
		return mcp.Ping, nil
	}
	return mcp.Discover, e.OwnParams()
}
