package hosted

import (
	"fmt"
	"runtime/debug"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// What one process says, or has left on disk, is handled in goroutines of its own
// and in those of the sessions that use it. A panic there ends the service of
// that process and nothing else: the daemon serves everybody.

// lockWait bounds how long a goroutine that has recovered from a panic waits for the
// manager's mutex.
const lockWait = 5 * time.Second

// contain calls f, which handles output or files of the process; doing completes the
// words "when it …" for the log. If f panics, contain condemns the process and
// returns false. The caller must not hold the manager's mutex.
func (u *upstream) contain(doing string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			u.condemn(u.m.panicked(u.name(), doing, r), r)
		}
	}()
	f()
	return true
}

// containLocked is contain for a caller that holds the manager's mutex. u may be nil
// if no process is concerned. The mutex stays locked after a panic, so f must not
// unlock it.
func (m *Manager) containLocked(u *upstream, doing string, f func()) {
	defer func() {
		if r := recover(); r != nil && u != nil {
			u.condemnLocked(m.panicked(u.name(), doing, r))
		} else if r != nil {
			_ = m.panicked("", doing, r) // it is logged
		}
	}()
	f()
}

// containCall recovers a panic of a call: defer it. The panic condemns the process
// that has the call, and becomes the call's fault.
func (m *Manager) containCall(rc *tool.RemoteCall, o *listing.Offer, res *tool.RemoteResult, err *error) {
	r := recover() //nolint:revive // it is deferred itself: see the comment above
	if r == nil {
		return
	}
	f := m.panicked(o.Remote.Server, "made a call", r)
	f.Operation = o.Operation()
	*res, *err = tool.RemoteResult{}, f
	m.lockOrPanic(r)
	defer m.mu.Unlock()
	for _, c := range m.roundsLocked(rc.Caller.Session, rc.N) {
		c.progress = nil
		c.Demand(calls.Return)
		if c.up != nil {
			c.up.condemnLocked(f)
		}
	}
}

// panicked logs a panic with its stack, and returns the fault that stands for it.
// Call it in the deferred function that recovered: the stack is the panic's.
func (m *Manager) panicked(server, doing string, reason any) *fault.Record {
	stack := string(debug.Stack())
	m.background(func() { // the caller may hold the mutex
		m.log.Error("internal failure, contained to one process of a server", "server", server, "while_it", doing,
			"panic", fmt.Sprint(reason), "stack", stack)
	})
	return fault.New(fault.InternalFailure, fault.Host, "run:"+server,
		"holdline itself failed when it %s of server %s: %v. It ends that process of the server; "+
			"everything else goes on. The stack is in the log: holdline logs",
		doing, server, reason)
}

// background runs f in a goroutine of the manager. After [Manager.Close] it runs f at
// once, in the caller's goroutine.
func (m *Manager) background(f func()) {
	if m.life.Err() != nil {
		f()
		return
	}
	m.wg.Go(f)
}

// lockOrPanic locks the manager's mutex for a goroutine that has recovered from a
// panic. If the mutex stays locked for [lockWait], the panicking goroutine itself
// probably holds it. Then lockOrPanic panics again: the daemon ends, and the next one
// serves.
func (m *Manager) lockOrPanic(reason any) {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for limit := time.Now().Add(lockWait); !m.mu.TryLock(); <-again.C {
		if time.Now().After(limit) {
			panic(reason)
		}
	}
}

// condemn ends a process of which holdline itself cannot go on, for the fault f.
func (u *upstream) condemn(f *fault.Record, reason any) {
	u.m.lockOrPanic(reason)
	defer u.m.mu.Unlock()
	u.condemnLocked(f)
}

func (u *upstream) condemnLocked(f *fault.Record) {
	if u.condemned != nil || u.state == exited {
		return
	}
	u.condemned = f
	u.inst.srv.fault, u.inst.srv.faultAt = f, time.Now()
	if u.unsure != nil {
		close(u.unsure)
		u.unsure = nil
	}
	u.endLocked()
}

// exitLocked marks the process as exited: nothing is left of its tree. Its open calls
// are lost, and goroutines that wait for u.exited are woken. Call it once for each
// process.
func (u *upstream) exitLocked(death *fault.Record, by ender) {
	u.state, u.endedBy, u.death = u.state.after(exit), by, death
	for _, c := range u.calls {
		c.Apply(calls.Lose)
	}
	close(u.exited)
	if u.inst.up == u {
		u.inst.up = nil
	}
}
