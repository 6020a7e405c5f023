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
	"holdline/daemon/config"
	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Scope says which sessions share a process of a server.
type Scope string

// The scopes.
const (
	Project Scope = "project" // all sessions of one project
	Shared  Scope = "shared"  // all sessions
	Session Scope = "session" // no other session
)

// Spec is a configured server. It is read-only, and has no defaults: every
// limit is set.
type Spec struct {
	Name  string
	Scope Scope
	// Key is equal for specs whose processes can replace each other: it covers the
	// configured command, environment and directory.
	Key string
	// Process returns how to start a process for the project with that root, which
	// is "" if there is none. Its error names what is missing.
	Process func(root string) (config.Process, error)
	// Ready waits, within bounds, until what Process needs is known. The error
	// says why no process can be started. nil does not wait.
	Ready func(ctx context.Context, root string) error
	// Visible reports whether sessions of the project with that root see the server.
	// It may block on the file system. nil shows the server to all.
	Visible func(root string) bool
	// Contract returns the operator's setting for a tool, or "" to use the tool's
	// own annotations. nil has no settings.
	Contract func(tool string) tool.Contract
	// Offers reports whether at least one identity may use something of the server,
	// by its names for it. nil offers all. See [tool.Rules].
	Offers func(names ...string) bool
	// BlockChanged hides, and refuses calls of, a tool that differs from its pin,
	// until the user accepts it.
	BlockChanged bool
	// Remote says that a process of ours stands for a server elsewhere. If its error
	// contains a fault record, that process reports its own failure, not the
	// server's.
	Remote     bool
	Timeout    time.Duration // of a call, anew at each progress
	MaxTimeout time.Duration // of a call, whatever its progress
	// StartTimeout is how long a process may take from its start to its lists. It
	// begins anew whenever the process writes to stderr: it may be downloading what
	// it runs.
	StartTimeout time.Duration

	Lazy             bool          // a process is started by the first call, not by the first session
	KeepAlive        time.Duration // of a process whose last session has left
	MaxConcurrent    int           // calls at once in one process
	MaxRestarts      int           // in RestartWindow; one more ejects the server
	RestartWindow    time.Duration
	CircuitThreshold int // consecutive failures that open the breaker
	CircuitReset     time.Duration
}

// A Watcher receives the states of processes, for counts and health. Its methods may be
// called with the hub's mutex held: they must not block or call back.
type Watcher interface {
	// WorkerStarting reports that a worker was started or attached.
	WorkerStarting(id string, generation int64)
	// WorkerReady reports that the process of a worker serves.
	WorkerReady(id string)
	// WorkerLost reports a process that was not ended on request. restarts is
	// false if its instance gets no other process.
	WorkerLost(id string, restarts bool)
	// WorkerEnded reports that no process runs and none is being started.
	WorkerEnded(id string)
}

// Options of a [Manager].
type Options struct {
	Log        *slog.Logger
	Workers    *supervisor.Supervisor
	Watch      Watcher
	WorkersDir string // holds the workers' directories
	CatalogDir string // what servers offer is remembered here
	StateDir   string // how servers stand is remembered here
	Info       mcp.Implementation
	Servers    []Spec
	// Prepared reports whether Ready of a spec would return at once, or almost. nil
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
	Gone Spec
	// Budget returns how many calls a session of an identity may make; 0 is no
	// limit. It may be nil.
	Budget func(identity string) int
	// Rules decide which servers and tools an identity may use. A server of which it
	// may use nothing does not exist for it. nil allows everything.
	Rules tool.Rules
	// MaxSpooled bounds, in bytes, the answers in files that wait for one session.
	// The manager ends a session with more. 0 is eight times the longest line, 512
	// MiB.
	MaxSpooled int64
	// Return is how long after [New] the sessions of an earlier daemon may come
	// back; 0 is [protocol.StartWindow].
	Return time.Duration
}

// A Manager runs the configured servers for all sessions. It is safe for concurrent
// use. Make it with [New], then call [Manager.Load] once. [Manager.Close] leaves the
// processes to the next daemon; [Manager.EndAll] ends them.
type Manager struct {
	*catalog.Catalog
	hub   *upstream.Hub
	o     Options
	begun time.Time

	calls *dispatch.Dispatcher

	unreadable bool // records of earlier daemons could not be read; set by Load

	careful     sync.Mutex // held while a worker is adopted, with Options.Careful
	configuring sync.Mutex // held while the list of servers is changed
	filing      sync.Mutex // held while a file of a server is written: its state, or its offers

	// Guarded by the hub's mutex.
	servers   map[string]*server
	instances map[instanceKey]*instance
}

// New returns a manager for o.Servers. It reads no file and starts nothing: see
// [Manager.Load].
func New(o Options) *Manager {
	if o.MaxSpooled == 0 {
		o.MaxSpooled = 8 * jsonrpc.MaxFrame
	}
	if o.Return == 0 {
		o.Return = protocol.StartWindow
	}
	if o.Touch == nil {
		o.Touch = func(string) {}
	}
	m := &Manager{
		hub: upstream.New(upstream.Options{
			Log: o.Log.With("component", "hosted"), Workers: o.Workers, Info: o.Info, Rules: o.Rules,
			MaxSpooled: o.MaxSpooled, Touch: o.Touch,
		}),
		o: o, begun: time.Now(),
		servers: map[string]*server{}, instances: map[instanceKey]*instance{},
	}
	m.calls = dispatch.New(m.hub, o.Budget)
	m.Catalog = catalog.New(m, o.Rules, m.hub.Log)
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
		if !inst.idleSince.IsZero() && inst.usersLocked() > 0 {
			inst.idleSince = time.Time{}
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

// Resumed settles the calls of a session whose client is back, except the calls of
// the lines that the client lists as pending. Only the proxy knows what is pending: a
// call that it does not list has its answer, or was cancelled.
func (m *Manager) Resumed(session string, pending map[int64]struct{}) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	for key, c := range m.hub.Calls {
		if key.Session == session {
			m.hub.ContainLocked(c.Up, "settled a call", func() { m.hub.ReviewLocked(c, calls.Resumed(pending)) })
		}
	}
}

// Confirmed settles the calls of line n of a session: its client holds the answer.
func (m *Manager) Confirmed(session string, n int64) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	m.calls.ConfirmedLocked(session, n)
}

// Closed gives up everything of a session that is over: its calls, subscriptions and
// own processes. agent names its client if this was the client's last session, else
// it is ""; the client's budget ends with it.
func (m *Manager) Closed(session, agent string) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
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
	for key, c := range m.hub.Calls {
		if key.Session == session && !c.Claim().IsDetached() && c.Review(calls.Gone{}) {
			m.hub.ContainLocked(c.Up, "gave up a call", func() { m.hub.DropLocked(c) })
		}
	}
	m.hub.RefuseAsksLocked(session)
	for key, inst := range m.instances {
		if key.scope == Session && key.of == session {
			inst.retireLocked()
		}
	}
}

// Recall returns the tool that line n of a session has called, even if its server
// does not offer it any more or is not configured any more. It returns nil if no
// process has the call. recorded reports whether the manager knows the call.
func (m *Manager) Recall(session string, n int64) (t *tool.Remote, recorded bool) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	c := m.hub.Calls[calls.Key{Session: session, N: n, Round: 0}]
	if c == nil || c.Up == nil {
		return nil, c != nil
	}
	inst := instanceOf(c.Up)
	if o := cmp.Or(inst.own, inst.srv.offersOfLocked(inst.key)).Tool(c.Name); o != nil {
		return &o.Remote, true
	}
	o := &listing.Offer{Own: c.Name, Method: mcp.ToolsCall}
	contract := tool.NeverReplay
	if c.Repeats {
		contract = tool.Convergent
	}
	o.Remote = tool.Remote{Name: tool.Shown(inst.key.server, c.Name), Server: inst.key.server, Contract: contract}
	o.Bind(inst.srv.source().Handle)
	return &o.Remote, true
}

// expect waits for [Options.Return], then gives up the sessions of an earlier daemon
// that have not come back.
func (m *Manager) expect() {
	t := time.NewTimer(m.o.Return)
	defer t.Stop()
	select {
	case <-m.hub.Life.Done():
		return
	case <-t.C:
	}
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	gone := map[string]struct{}{}
	for key := range m.hub.Calls {
		gone[key.Session] = struct{}{}
	}
	for key := range m.instances {
		if key.scope == Session {
			gone[key.of] = struct{}{}
		}
	}
	m.hub.Expected = true
	for session := range gone {
		if m.hub.Clients[session] == nil {
			m.forsakeLocked(session)
		}
	}
	m.idleLocked()
	m.hub.ReconcileLocked()
	m.hub.CompactLocked()
}

// Close detaches from all processes, which live on. It waits until all goroutines of
// the manager have ended, or until ctx ends. Close the supervisor first, or at the
// same time.
func (m *Manager) Close(ctx context.Context) error {
	m.hub.Mu.Lock()
	m.hub.Closed = true
	all := slices.Collect(maps.Keys(m.hub.Processes))
	m.hub.Mu.Unlock()
	m.hub.End()
	for _, u := range all {
		u.Detach()
	}
	return m.wait(ctx)
}

// wait waits for the manager's goroutines. If ctx ends first it returns its cause,
// and one goroutine still waits.
func (m *Manager) wait(ctx context.Context) error {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		m.hub.WG.Wait()
		close(done)
	})
	select {
	case <-done:
		waiting.Wait()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("let go of servers: %w", context.Cause(ctx))
	}
}

// EndAll ends all processes with their trees, and those that are being started. It
// waits for that, or until ctx ends. The manager starts nothing after it.
func (m *Manager) EndAll(ctx context.Context) error {
	m.hub.Mu.Lock()
	m.hub.Closed, m.hub.Ending = true, true
	all := slices.Collect(maps.Keys(m.hub.Processes))
	var starts []<-chan struct{}
	for _, u := range all {
		u.ChangeLocked(upstream.Terminate)
	}
	for _, inst := range m.instances {
		if inst.starting != nil {
			starts = append(starts, inst.starting)
			inst.skipBackoffLocked()
		}
	}
	m.hub.Mu.Unlock()
	errs := make([]error, len(all)+1)
	var ending sync.WaitGroup
	for i, u := range all {
		ending.Go(func() { errs[i] = u.End(ctx) })
	}
	ending.Wait()
	for _, started := range starts {
		select {
		case <-started:
		case <-ctx.Done():
			errs[len(all)] = context.Cause(ctx)
		}
	}
	return errors.Join(errs...)
}

// Processes returns how many processes have not exited.
func (m *Manager) Processes() int {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	n := 0
	for u := range m.hub.Processes {
		if u.State != upstream.Exited {
			n++
		}
	}
	return n
}

// Respond takes the answer of a session's client, its line n, to the server that asked.
// It reports whether a server did.
func (m *Manager) Respond(session string, n int64, msg jsonrpc.Message) bool {
	return m.calls.Respond(session, n, msg)
}
