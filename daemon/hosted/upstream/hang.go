package upstream

import (
	"context"
	"errors"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// A server may hang: it is stopped, or deadlocked, and will never answer
// anything again. It may as well be busy with one call, and read nothing
// meanwhile. Only time tells the two apart. So a call that had no answer only
// makes the process suspect; then it is asked for a sign of life, and is ended
// if it says nothing at all for longer than it may take for a call. One that
// computes meanwhile has until its longest call would be over.

// maxProbes is how many probes in a row a suspect process may leave unanswered before
// it is ended.
const maxProbes = 3

// probeMargin is what each probe waits beyond its share of a call's time, so
// that a process that is busy with one call can still answer that in time.
const probeMargin = time.Second

// busyShare is the inverse of the share of a probe's time for which a computing
// process runs on a processor at least, even on a busy machine. A process that only
// waits needs far less.
const busyShare = 50

// LongWait is the age from which a call that its client cancels makes the process
// suspect. No client has a shorter limit of its own.
const LongWait = 30 * time.Second

// SuspectLocked starts to probe a process that has left a call without an answer,
// unless a probe is under way.
func (u *Process) SuspectLocked() {
	if u.State != Serving || u.Suspect || u.hub.Closed {
		return
	}
	u.Suspect = true
	u.hub.WG.Go(func() { u.Contain("asked a process for a sign of life", u.probe) })
}

// SuspectNow is suspectLocked for a caller that does not hold the hub's mutex.
func (u *Process) SuspectNow() {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.SuspectLocked()
}

// probe pings a suspect process, and ends it if it stays silent. Probes during which
// the process computes do not count, up to the time that the longest call may take.
func (u *Process) probe() {
	begun, w := time.Now(), u.Worker()
	alive := false
	for n := 0; n < maxProbes && !alive; {
		timeout, most := u.Instance.Limits()
		wait := timeout/maxProbes + probeMargin
		used := process.CPUTime(w.Status().PID)
		alive = u.livesAfter(wait)
		busy := process.CPUTime(w.Status().PID)-used >= wait/busyShare
		if !busy || time.Since(begun) >= most {
			n++
		}
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.Suspect = false
	if alive || u.State != Serving || u.hub.Closed {
		return
	}
	f := fault.New(fault.ProcessFailure, fault.Server, "run:"+u.Server,
		"server %s hung, so Holdline ended it: a call had no answer, and it gave no sign of life "+
			"in the %v after that, "+
			"though it was asked for one again and again",
		u.Server, time.Since(begun).Round(time.Second))
	f.Fault.Generation = u.Generation
	u.Condemned = f
	u.EndLocked()
}

// livesAfter pings the process and reports whether any message of it arrived within
// wait; an error counts, too. A process whose own request waits for a client counts
// as alive: it may rightly wait for that answer.
func (u *Process) livesAfter(wait time.Duration) bool {
	before := u.heard.Load()
	ctx, cancel := context.WithTimeout(u.hub.Life, wait)
	defer cancel()
	// A modern server knows no ping, and must know this.
	e := u.Envelope()
	method, params := mcp.Discover, e.OwnParams()
	if e.Era == dialect.Legacy {
		method, params = mcp.Ping, nil
	}
	_, err := u.Request(ctx, calls.KindProbe, method, params)
	if _, refused := errors.AsType[*dialect.Refusal](err); err != nil && !refused {
		select { // it could not even be asked: that proves nothing yet
		case <-ctx.Done():
		case <-u.Exited:
		}
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	return u.heard.Load() != before || u.questions.AwaitClient() || u.State != Serving || u.hub.Closed
}
