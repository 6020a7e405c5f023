package upstream

import (
	"holdline/daemon/calls"
	"holdline/protocol/fault"
)

// What one process says, or has left on disk, is handled in goroutines of its own
// and in those of the sessions that use it. A panic there ends the service of
// that process and nothing else: the daemon serves everybody.

// Contain calls f, which handles output or files of the process; doing completes the
// words "when it …" for the log. If f panics, contain condemns the process and
// returns false. The caller must not hold the hub's mutex.
func (u *Process) Contain(doing string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			u.condemn(u.hub.Panicked(u.Server, doing, r), r)
		}
	}()
	f()
	return true
}

// condemn ends a process of which holdline itself cannot go on, for the fault f.
func (u *Process) condemn(f *fault.Record, reason any) {
	u.hub.LockOrPanic(reason)
	defer u.hub.Mu.Unlock()
	u.CondemnLocked(f)
}

func (u *Process) CondemnLocked(f *fault.Record) {
	if u.Condemned != nil || u.State == Exited {
		return
	}
	u.Condemned = f
	u.Instance.Blame(f)
	if u.unsure != nil {
		close(u.unsure)
		u.unsure = nil
	}
	u.EndLocked()
}

// exitLocked marks the process as exited: nothing is left of its tree. Its open calls
// are lost, and goroutines that wait for u.exited are woken. Call it once for each
// process.
func (u *Process) exitLocked(death *fault.Record, by Ender) {
	u.ChangeLocked(exit)
	u.end(death, by)
	for _, c := range u.Calls {
		c.Apply(calls.Lose)
	}
	close(u.Exited)
	u.Instance.Exited(u)
}
