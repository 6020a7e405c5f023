package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/stage"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// A reach is what is known of the way from a process of ours to the remote server that it stands
// for. It is guarded by hub.Mu.
type reach struct {
	lost    *fault.Record // why the server cannot be reached; nil if it can, as far as is known
	since   time.Time
	seeking bool // [Process.seek] is under way
}

// Pauses between attempts to reach a server that is down: each is twice the one before.
const (
	firstSeek = 5 * time.Second
	lastSeek  = 2 * time.Minute
	seekTime  = 30 * time.Second // for the answer to one
)

// SeekPause returns the pause before the next attempt to reach a server, after that many in vain.
func SeekPause(tries int) time.Duration {
	if tries > 8 { // more would overflow at some time
		return lastSeek
	}
	return min(firstSeek<<tries, lastSeek)
}

// IsDown reports whether a fault says that a remote server cannot be reached.
func IsDown(f *fault.Record) bool {
	return f != nil && f.Fault.Code == fault.TransportFailure && f.Reason() == fault.Unreachable
}

// ReachedLocked notes that the remote server was reached, or why not; then it is asked from time to
// time until it is there again. The caller must hold hub.Mu.
func (u *Process) ReachedLocked(lost *fault.Record) {
	switch {
	case lost == nil && u.reach.lost != nil:
		u.reach.lost = nil
		u.Instance.Reached()
		u.Log.Info("server can be reached again")
	case lost != nil:
		if u.reach.lost == nil {
			u.reach.since = time.Now()
			u.Log.Warn("server cannot be reached", "err", lost)
		}
		u.reach.lost = lost
		u.SeekLocked()
	}
}

// UnreachableLocked returns why the remote server cannot be reached, and since when; nil if it can.
// The caller must hold hub.Mu.
func (u *Process) UnreachableLocked() (*fault.Record, time.Time) { return u.reach.lost, u.reach.since }

// SeekLocked starts a goroutine that asks a server that cannot be reached, unless one is under way, or no
// session uses the process. The caller must hold hub.Mu.
func (u *Process) SeekLocked() {
	if u.reach.seeking || !u.seeksLocked() {
		return
	}
	u.reach.seeking = true
	u.hub.WG.Go(func() { u.Contain("tried to reach a server", u.seek) })
}

// seeksLocked reports whether a server that cannot be reached is to be asked. hub.Mu must be held.
func (u *Process) seeksLocked() bool {
	if u.reach.lost == nil || u.State != stage.Serving || u.hub.Closed {
		return false
	}
	for session, c := range u.hub.Clients {
		if u.Instance.Uses(session, c) {
			return true
		}
	}
	return false
}

// seek pings a server that cannot be reached until it answers, or no session uses it any more. It takes
// hub.Mu.
func (u *Process) seek() {
	for tries := 0; ; tries++ {
		_ = u.hub.Pause(SeekPause(tries), u.Exited) // whether to go on is found out below
		u.hub.Mu.Lock()
		u.reach.seeking = u.seeksLocked()
		seeking := u.reach.seeking
		u.hub.Mu.Unlock()
		if !seeking {
			return
		}
		ctx, cancel := context.WithTimeout(u.hub.Life, seekTime)
		method, params := u.lifeQuestion()
		_, err := u.Request(ctx, calls.KindProbe, method, params)
		cancel()
		refusal, refused := errors.AsType[*dialect.RefusalError](err)
		switch {
		case err == nil:
		case !refused, refused && IsDown(FaultIn(refusal.Raw)):
			continue
		}
		u.hub.Mu.Lock()
		u.ReachedLocked(nil)
		u.hub.Mu.Unlock()
	}
}

// FaultIn returns the fault in an error that our own process for a remote server has answered in the server's
// place; nil if the error is the server's.
func FaultIn(failure json.RawMessage) *fault.Record {
	var f fault.Record
	_ = json.Unmarshal(jsonrpc.Field(failure, "data"), &f) // what is no record has no code
	if !slices.Contains(fault.Codes(), f.Fault.Code) {
		return nil
	}
	return &f
}
