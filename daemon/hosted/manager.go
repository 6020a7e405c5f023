package hosted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/asklogin"
	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/detached"
	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/files"
	"holdline/daemon/hosted/private"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/daemon/waiting"
	"holdline/protocol"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Watcher receives the states of processes, for counts and health. Its methods may be
// called with the hub's mutex held: they must not block or call back.
type Watcher interface {
	private.Watcher
	// WorkerLost reports a process that was not ended on request. restarts is
	// false if its instance gets no other process.
	WorkerLost(id string, restarts bool)
}

// Options of a [Manager].
type Options struct {
	Log        *slog.Logger
	Workers    *supervisor.Supervisor
	Watch      Watcher
	WorkersDir string // holds the workers' directories
	CatalogDir string // what servers offer is remembered here
	StateDir   string // how servers stand is remembered here
	TasksDir   string // has the tasks of calls that take long; "" makes none
	Info       mcp.Implementation
	Servers    []entry.Server
	// Prepared reports whether Ready of an entry would return at once, or almost. nil
	// means that it always would.
	Prepared func() bool
	// Touch is called with the directory of a worker before the manager reads what
	// an earlier daemon has left in it, or the child's output. A daemon that crashes
	// while it reads is found by that. Touch may be nil.
	Touch func(dir string)
	// Careful makes the manager adopt workers of an earlier daemon one after the
	// other, so that a crash can be blamed on one of them.
	Careful bool
	// Gone has the limits for a server that is not configured any more, while a
	// process of it from an earlier daemon still has calls.
	Gone entry.Server
	// Lose records, on disk and for sessions that are connected, that records of a worker cannot be
	// believed, as was found out after Load. It may be nil.
	Lose func([]calls.Loss) error
	// Budget returns how many calls a session of an identity may make; 0 is no limit. It may be nil.
	Budget func(identity string) int
	// Rules decide which servers and tools an identity may use. A server of which it
	// may use nothing does not exist for it. nil allows everything.
	Rules tool.Rules
	// Logins asks people to log in. nil asks no client.
	Logins *asklogin.Asker
	// Return is how long after [New] the sessions of an earlier daemon may come
	// back; 0 is [protocol.StartWindow].
	Return    time.Duration
	FirstList time.Duration // see [catalog.Servers]
}

// A Manager runs the configured servers for all sessions. It is safe for concurrent
// use. Make it with [New], then call [Manager.Load] once. [Manager.Close] leaves the
// processes to the next daemon; [Manager.EndAll] ends them.
type Manager struct {
	*catalog.Catalog
	hub   *upstream.Hub
	o     Options
	calls *dispatch.Dispatcher
	files *files.Files

	loading  time.Time // when Load was called
	broken   []string  // directories that stay until no earlier session is expected; Load and readLater set it
	deserted []string  // sessions that cannot come back; set by Load

	careful     sync.Mutex // held while a worker is adopted, with Options.Careful
	configuring sync.Mutex // held while the list of servers is changed

	// Guarded by the hub's mutex.
	servers   map[string]*server
	instances map[instanceKey]*instance
	unread    []*unread                     // what Load could not read
	back      map[string]map[int64]struct{} // while there is such: for which lines a session waits; nil if it is over
}

// New returns a manager for o.Servers. It reads no file and starts nothing: see [Manager.Load].
func New(o Options) *Manager {
	o.Return = cmp.Or(o.Return, protocol.StartWindow)
	if o.Touch == nil {
		o.Touch = func(string) {}
	}
	m := &Manager{o: o, servers: map[string]*server{}, instances: map[instanceKey]*instance{}}
	m.hub = upstream.New(upstream.Options{
		Log: o.Log.With("component", "hosted"), Workers: o.Workers, Info: o.Info, Rules: o.Rules,
		Touch: o.Touch, Ended: m.keepLog,
	})
	m.files = &files.Files{CatalogDir: o.CatalogDir, StateDir: o.StateDir, Logger: m.hub.Log}
	m.calls = dispatch.New(m.hub, o.Budget)
	m.calls.Logins = o.Logins
	m.Catalog = catalog.New(catalog.Servers{
		Find: m.find, View: m.view, Named: m.viewNamed, Expected: m.expected, FirstList: o.FirstList,
	},
		m.calls, o.Rules, m.hub.Log)
	for i := range o.Servers {
		m.servers[o.Servers[i].Name] = m.newServer(&o.Servers[i])
	}
	return m
}

// Opened connects a session to the manager: servers that it uses are started unless
// they are lazy, and requests of servers reach its client. Call it again whenever
// more is known of the client, for example its era.
func (m *Manager) Opened(session string, c tool.Client) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.hub.Clients[session] = c
	for _, inst := range m.instances {
		if inst.idle != nil && inst.usedLocked() {
			inst.idle.end()
			inst.idle = nil
		}
	}
	m.hub.BoundLocked(session)
	m.eagerLocked(c.Caller())
	m.hub.ReconcileLocked()
	if c.Era() != "" {
		m.hub.MetLocked(session)
		m.calls.AskAgainLocked(session)
	}
}

// Closed gives up everything of a session that is over: its calls, subscriptions and
// own processes. agent names its client if this was the client's last session, else
// it is ""; the client's budget ends with it.
func (m *Manager) Closed(session, agent string) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if len(m.unread) > 0 {
		m.noteLocked(session, nil)
	}
	m.hub.ForgetLocked(session)
	m.calls.EndLocked(session, agent)
	m.forsakeLocked(session)
	m.forgetSightsLocked()
	m.idleLocked()
	m.hub.ReconcileLocked()
}

// forsakeLocked gives up the calls of a session, except detached ones, refuses the
// requests of servers that wait for it, and ends its own processes.
func (m *Manager) forsakeLocked(session string) {
	m.calls.ForsakeLocked(session)
	for key, inst := range m.instances {
		if key.scope == entry.Session && key.of == session {
			inst.retireLocked()
		}
	}
	for _, s := range m.servers {
		s.offers.Forget(session) // does nothing unless the session is a scope
	}
}

// Recall returns what line n of a session has called by a request of that method, even if its
// server does not offer it any more or is not configured any more. It returns nil if no
// process has the call, and it has become no task. recorded reports whether the manager knows the
// call.
func (m *Manager) Recall(session string, n int64, method string) (t *tool.Remote, recorded bool) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	c := m.hub.Calls[calls.Key{Session: session, N: n, Round: 0}]
	switch {
	case c != nil && c.Up != nil:
		_, o := m.recallLocked(c, method)
		return &o.Remote, true
	case c != nil:
		return nil, true
	}
	t = m.calls.RecallTask(session, n)
	return t, t != nil
}

// recall is [Manager.recallLocked] for the call of a tool, and a caller that does not hold the
// hub's mutex.
func (m *Manager) recall(c *upstream.Call) (dispatch.Server, *listing.Offer) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	return m.recallLocked(c, mcp.ToolsCall)
}

// recallLocked returns the server whose process has a call, and what was called by a request of
// that method.
func (m *Manager) recallLocked(c *upstream.Call, method string) (dispatch.Server, *listing.Offer) {
	inst := instanceOf(c.Up)
	if method == mcp.ToolsCall {
		if o := inst.srv.offers.Of(inst.key.of).Tool(c.Name); o != nil {
			return inst.srv, o
		}
	}
	return inst.srv, inst.srv.source().Recalled(method, c.Name, c.Repeats)
}

// expect waits for [Options.Return], then gives up earlier sessions that have not come back.
func (m *Manager) expect() {
	t := time.NewTimer(m.o.Return)
	defer t.Stop()
	select {
	case <-m.hub.Life.Done():
		return
	case <-t.C:
	}
	m.sweepBroken()
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	gone := map[string]struct{}{}
	for key := range m.hub.Calls {
		gone[key.Session] = struct{}{}
	}
	for key := range m.instances {
		if key.scope == entry.Session {
			gone[key.of] = struct{}{}
		}
	}
	m.hub.ExpectNoneLocked()
	for session := range gone {
		if m.hub.Clients[session] == nil {
			m.forsakeLocked(session)
		}
	}
	m.idleLocked()
	m.hub.ReconcileLocked()
	m.hub.CompactLocked()
}

// Close detaches from all processes, which live on. It waits until all goroutines of the manager
// have ended, or until ctx ends. Close the supervisor first, or at the same time.
func (m *Manager) Close(ctx context.Context) error {
	m.hub.Mu.Lock()
	m.hub.Closed = true
	all := slices.Collect(maps.Keys(m.hub.Processes))
	m.hub.Mu.Unlock()
	m.hub.End()
	for _, u := range all {
		u.Detach()
	}
	if err := waiting.For(ctx, &m.hub.WG); err != nil {
		return fmt.Errorf("detach from servers: %w", err)
	}
	return nil
}

// EndAll ends all processes with their trees, and those that are being started. It
// waits for that, or until ctx ends. The manager starts nothing after it.
func (m *Manager) EndAll(ctx context.Context) error {
	m.hub.Mu.Lock()
	m.hub.Closed, m.hub.Ending = true, true
	all := slices.Collect(maps.Keys(m.hub.Processes))
	var starts []<-chan struct{}
	for _, u := range all {
		u.ChangeLocked(stage.Terminate)
	}
	for _, inst := range m.instances {
		if inst.starting != nil {
			starts = append(starts, inst.starting)
			inst.skipBackoffLocked()
		}
	}
	m.hub.Mu.Unlock()
	errs := waiting.Each(slices.Values(all), func(u *upstream.Process) error { return u.End(ctx) })
	for _, started := range starts {
		select {
		case <-started:
		case <-ctx.Done():
			errs = append(errs, context.Cause(ctx))
		}
	}
	return errors.Join(errs...)
}

// Tuned makes processes reconcile their log levels: a session wants another one than before.
func (m *Manager) Tuned() {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.hub.ReconcileLocked()
}

// Tasks returns the tasks of calls that took long. Call it once [Manager.Load] has returned.
func (m *Manager) Tasks() *detached.Store { return m.calls.Tasks }

// Notified passes a notification of a session's client on to the servers that it concerns.
func (m *Manager) Notified(session string, msg jsonrpc.Message) { m.hub.Notified(session, msg) }
