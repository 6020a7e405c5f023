package upstream

import (
	"log/slog"
	"maps"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/group"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/mcp"
)

// Options are what processes need of the daemon.
type Options struct {
	Log     *slog.Logger
	Workers *supervisor.Supervisor
	Info    mcp.Implementation
	// Rules decide which resources an identity may use. nil allows everything.
	Rules tool.Rules
	// Touch is called with the directory of a worker before output of its child is
	// read that an earlier daemon may have read. It is not nil.
	Touch func(dir string)
	// Ended is called when a process has ended and all that it said was read, before its
	// directory is removed and without the hub's mutex. It may be nil.
	Ended func(*Process)
}

// MaxSpooled bounds, in bytes, the answers in files that wait for one session. Tests lower it.
var MaxSpooled int64 = 8 * jsonrpc.MaxFrame

// A Hub is what the processes of all servers share: the clients of sessions, the calls,
// the requests to clients, and the mutex that guards all state of processes and calls.
type Hub struct {
	*group.Group // of all processes
	o            Options

	Mu            lockcheck.Mutex            // guards all that follows
	Closed        bool                       // this daemon detaches from its processes
	Ending        bool                       // processes, and what clients may still ask for, are given up
	Expected      bool                       // sessions of an earlier daemon do not come back any more
	Calls         map[calls.Key]*Call        // not confirmed
	Clients       map[string]tool.Client     // by session hash
	subscriptions map[string][]*Subscription // by session hash
	spooled       map[string]int64           // bytes of the answers in files, by session hash
	Processes     map[*Process]struct{}      // living, and dead ones whose directories stay
}

// An Instance is what a process belongs to: the instance of a server. All methods but
// Limits are called with the hub's mutex held, and must not block.
type Instance interface {
	// Limits returns the time that a call may take without progress, and in all.
	Limits() (answer, most time.Duration)
	// Uses reports whether a session uses the process.
	Uses(session string, c tool.Client) bool
	// Blame records why Holdline ends the process.
	Blame(f *fault.Record)
	// Reached says that the remote server can be reached again.
	Reached()
	// Overreaches records that the process asks for what its scope does not offer.
	Overreaches(method string)
	// ListsChanged says that the process, which starts or serves, lists something else now.
	ListsChanged()
	// Exited says that nothing is left of the process.
	Exited(u *Process)
	// Died follows Exited, once it is known what ended the process and all that it said
	// was read. before is the state that the process was in.
	Died(u *Process, before stage.State)
}

// spooledLocked adds grown, which may be negative, to the bytes of a session's answers in files. If
// there are too many then, the session ends: see [Hub.BoundLocked]. The caller must hold hub.Mu.
func (h *Hub) spooledLocked(session string, grown int64) {
	if h.spooled[session] += grown; h.spooled[session] <= 0 {
		delete(h.spooled, session)
	}
	if grown > 0 {
		h.BoundLocked(session)
	}
}

// BoundLocked ends a session, by [tool.Client.Full], if its answers in files exceed [MaxSpooled].
// While the session has no client here they may still be wanted. The caller must hold hub.Mu.
func (h *Hub) BoundLocked(session string) {
	if c := h.Clients[session]; c != nil && h.spooled[session] > MaxSpooled {
		c.Full()
	}
}

// ContainLocked calls f. If f panics, it recovers, logs the panic, and condemns u, if not nil.
// doing completes "when it …" for the log. The caller must hold hub.Mu, which f must not unlock.
func (h *Hub) ContainLocked(u *Process, doing string, f func()) {
	defer func() {
		if r := recover(); r != nil && u != nil {
			u.CondemnLocked(h.Panicked(u.Server, doing, r))
		} else if r != nil {
			_ = h.Panicked("", doing, r) // it is logged
		}
	}()
	f()
}

// LockOrPanic locks hub.Mu for a goroutine that has recovered from a panic with that reason. After
// [lockWait] that goroutine itself probably holds it: then LockOrPanic panics with reason.
func (h *Hub) LockOrPanic(reason any) {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for limit := time.Now().Add(lockWait); !h.Mu.TryLock(); <-again.C {
		if time.Now().After(limit) {
			panic(reason)
		}
	}
}

// lockWait bounds how long [Hub.LockOrPanic] waits.
const lockWait = 5 * time.Second

// eraLocked returns the era of a session's client; "" if that is not known. hub.Mu must be held.
func (h *Hub) eraLocked(session string) string {
	if c := h.Clients[session]; c != nil {
		return c.Era()
	}
	return ""
}

// ExpectNoneLocked notes that sessions of an earlier daemon do not come back any more. Directories
// that stayed for them may go. The caller must hold hub.Mu.
func (h *Hub) ExpectNoneLocked() {
	h.Expected = true
	for u := range h.Processes {
		u.nudge()
	}
}

// ReconcileLocked wakes the reconcile loop of each process, which compares the log level and the
// subscriptions that sessions want with those that it has. The caller must hold hub.Mu.
func (h *Hub) ReconcileLocked() {
	for u := range h.Processes {
		u.Wake()
	}
}

// CompactLocked copies the maps of calls to free memory: a map never shrinks, and an earlier
// daemon's records may have been many. The caller must hold hub.Mu.
func (h *Hub) CompactLocked() {
	h.Calls = maps.Collect(maps.All(h.Calls))
	for u := range h.Processes {
		u.Calls = maps.Collect(maps.All(u.Calls))
	}
}

// New returns a hub without processes. The caller must call its End, which ends the hub's Life.
func New(o Options) *Hub {
	return &Hub{
		Group: group.New(o.Log), o: o,
		Calls: map[calls.Key]*Call{}, Clients: map[string]tool.Client{}, subscriptions: map[string][]*Subscription{},
		spooled: map[string]int64{}, Processes: map[*Process]struct{}{},
	}
}

// ForgetLocked removes client and subscriptions of a session that is over. hub.Mu must be held.
func (h *Hub) ForgetLocked(session string) {
	delete(h.Clients, session)
	delete(h.subscriptions, session)
}

// What one process says, or has left on disk, is handled in goroutines of its own
// and in those of the sessions that use it. A panic there ends the service of
// that process and nothing else: the daemon serves everybody.

// Contain calls f, which handles output or files of the process, and returns true. If f panics, it
// recovers, logs that, condemns the process, and returns false. doing completes the words "when it
// …" for the log. The caller must not hold hub.Mu: after a panic Contain takes it.
func (u *Process) Contain(doing string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			f := u.hub.Panicked(u.Server, doing, r)
			u.hub.LockOrPanic(r)
			defer u.hub.Mu.Unlock()
			u.CondemnLocked(f)
		}
	}()
	f()
	return true
}

// CondemnLocked ends a process with which Holdline cannot go on. It records the fault f as the
// reason, here and with the instance, and closes u.unsure. It does nothing if the process was
// condemned before or has exited. The caller must hold hub.Mu.
func (u *Process) CondemnLocked(f *fault.Record) {
	if u.Condemned != nil || u.State == stage.Exited {
		return
	}
	u.Condemned = f
	u.Instance.Blame(f)
	u.sureLocked()
	u.EndLocked()
}

// exitLocked marks the process as exited by the ender by. Its open calls are lost, u.Exited is
// closed, and the instance is told. u.Death is death or, for a condemned process, u.Condemned with
// death's cause. A second call panics. The caller must hold hub.Mu.
func (u *Process) exitLocked(death *fault.Record, by Ender) {
	u.ChangeLocked(stage.Exit)
	if u.Condemned != nil && death != nil { // that is the reason, and how it ended is the cause
		both := *u.Condemned // a copy: answers that have it are being written
		both.Cause = death.Cause
		u.Condemned, death = &both, &both
	}
	u.Death, u.EndedBy = death, by
	for _, c := range u.Calls {
		c.Apply(calls.Lose)
	}
	close(u.Exited)
	u.Instance.Exited(u)
}
