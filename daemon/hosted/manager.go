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
	"holdline/daemon/listing"
	"holdline/daemon/policy"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/mcp"
)

// Scope says who shares a process of a server.
type Scope string

// The scopes.
const (
	Project Scope = "project" // all sessions of one project
	Shared  Scope = "shared"  // all sessions
	Session Scope = "session" // nobody
)

// Spec is a configured server. It is read-only, and has no defaults: every
// limit is set.
type Spec struct {
	Name  string
	Scope Scope
	// Key is equal for specs whose processes may stand for each other: it
	// covers what is configured of the command, its environment and its
	// directory.
	Key string
	// Process is how a process is started for a project of that root, which is
	// "" if there is none. The error names what is missing.
	Process func(root string) (config.Process, error)
	// Ready waits, within bounds, until what Process needs is known. The error
	// says why no process can be started. nil does not wait.
	Ready func(ctx context.Context, root string) error
	// Visible reports whether sessions of a project with that root see the server;
	// nil shows it to all.
	Visible func(root string) bool
	// Contract is the operator's word on a tool; "" leaves it to the tool's
	// own annotations. nil says nothing of any.
	Contract func(tool string) tool.Contract
	// Offers reports whether something of the server, by its names for it, is
	// offered to anybody at all; nil offers all. See [tool.Rules].
	Offers func(names ...string) bool
	// BlockChanged says that a tool which is not what it was when it was first
	// seen is not listed, nor called, until it is accepted.
	BlockChanged bool
	// Remote says that a process of ours stands for a server elsewhere: an error
	// of its with a fault record is the process's own word.
	Remote     bool
	Timeout    time.Duration // of a call, anew at each progress
	MaxTimeout time.Duration // of a call, whatever its progress
	// StartTimeout is how long a process may take from its start to its lists,
	// anew whenever it writes to stderr: it may be downloading what it runs.
	StartTimeout time.Duration

	Lazy             bool          // a process is started by the first call, not by the first session
	KeepAlive        time.Duration // of a process whose last session has left
	MaxConcurrent    int           // calls at once in one process
	MaxRestarts      int           // in RestartWindow; one more ejects the server
	RestartWindow    time.Duration
	CircuitThreshold int // consecutive failures that open the breaker
	CircuitReset     time.Duration
}

// Watcher counts what happens to workers.
type Watcher interface {
	WorkerStarting(id string, generation int64)
	WorkerReady(id string)
	WorkerLost(id string, restarts bool)
	WorkerEnded(id string)
	Cache(hit bool)
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
	// Prepared reports whether Ready of a spec would hardly wait. nil is always.
	Prepared func() bool
	// Touch is called with the directory of a worker before the manager reads what an
	// earlier daemon has left in it, or the child's output. A daemon that crashes while
	// it reads is found by that. Touch may be nil.
	Touch func(dir string)
	// Careful makes the manager adopt workers of an earlier daemon one after the other.
	Careful bool
	// Gone is a spec with the limits of a server that is configured no more; a
	// process of it that an earlier daemon has started still has calls.
	Gone Spec
	// Budget is how many calls a session of an identity may issue; 0 is no
	// limit. It may be nil.
	Budget func(identity string) int
	// Rules say what of a server an identity may use. A server of which it may use
	// nothing does not exist for it. nil lets all use all.
	Rules tool.Rules
	// MaxSpooled bounds the answers in files that wait for one session, in
	// bytes; one with more is ended. 0 is eight times the longest line, 512 MiB.
	MaxSpooled int64
	// Return is how long after the manager's begin the sessions of an earlier
	// daemon may come back; 0 takes [protocol.StartWindow].
	Return time.Duration
}

// Manager has the hosted servers. It is safe for concurrent use.
type Manager struct {
	o     Options
	log   *slog.Logger
	begun time.Time
	life  context.Context //nolint:containedctx // the manager's own, for what outlives a call
	end   context.CancelFunc
	wg    sync.WaitGroup

	budget *policy.Budget
	cache  *policy.Cache

	unreadable bool // records of earlier daemons could not be read; set by Load

	careful     sync.Mutex // held while a worker is taken up, if that is to be done one after the other
	configuring sync.Mutex // held while the list of servers is changed
	filing      sync.Mutex // held while it is written down how a server stands, or what it offers

	mu        lockcheck.Mutex
	closed    bool
	expected  bool                        // the time is over in which sessions of an earlier daemon may come back
	ending    bool                        // nothing is kept for anybody
	servers   map[string]*server          // guarded by mu
	instances map[instanceKey]*instance   // guarded by mu
	calls     map[calls.Key]*call         // not confirmed; guarded by mu
	clients   map[string]tool.Client      // by session hash; guarded by mu
	wants     map[string]map[want]*wanted // resources that sessions have subscribed to, by session hash; guarded by mu
	asks      map[string]*ask             // open requests of servers, by relayed id; guarded by mu
	questions map[string]*question        // what legacy clients are asked for modern servers, by id; guarded by mu
	spooled   map[string]int64            // bytes of the answers in files, by session hash; guarded by mu
	replies   map[string]map[string]reply // answers to questions not asked yet, by session hash and id; guarded by mu
	processes map[*upstream]struct{}      // living, and dead ones whose directories stay; guarded by mu
}

// New makes a manager. It touches nothing: see [Manager.Load].
func New(o Options) *Manager {
	if o.MaxSpooled == 0 {
		o.MaxSpooled = 8 * jsonrpc.MaxFrame
	}
	if o.Return == 0 {
		o.Return = protocol.StartWindow
	}
	m := &Manager{
		o: o, log: o.Log.With("component", "hosted"), begun: time.Now(),
		servers: map[string]*server{}, instances: map[instanceKey]*instance{}, calls: map[calls.Key]*call{},
		clients: map[string]tool.Client{}, wants: map[string]map[want]*wanted{}, asks: map[string]*ask{}, questions: map[string]*question{},
		spooled: map[string]int64{}, replies: map[string]map[string]reply{}, processes: map[*upstream]struct{}{},
	}
	m.budget, m.cache = policy.NewBudget(maxBudgets), policy.NewCache()
	m.life, m.end = context.WithCancel(context.Background())
	for i := range o.Servers {
		m.servers[o.Servers[i].Name] = m.newServer(&o.Servers[i])
	}
	return m
}

// Opened begins to reach a session; it may be told so again.
func (m *Manager) Opened(session string, c tool.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients[session] = c
	for _, inst := range m.instances {
		if !inst.idleSince.IsZero() && inst.usersLocked() > 0 {
			inst.idleSince = time.Time{}
		}
	}
	m.boundLocked(session)
	m.eagerLocked(c.Caller())
	m.reconcileLocked()
	if c.Era() != "" {
		m.metLocked(session)
	}
}

// Resumed settles the calls of a session whose client is back, but for those of
// the lines that it lists as pending.
func (m *Manager) Resumed(session string, pending map[int64]struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, c := range m.calls {
		if key.Session == session {
			m.containLocked(c.up, "settled a call", func() { m.reviewLocked(c, calls.Resumed(pending)) })
		}
	}
}

// Confirmed settles the calls of line n of a session: its client holds the answer.
func (m *Manager) Confirmed(session string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.roundsLocked(session, n) {
		m.containLocked(c.up, "settled a call", func() { m.reviewLocked(c, calls.Resumed(nil)) })
	}
}

// Closed is called when a session is over: no answer of it is wanted any more.
// If it was the last one of its client, agent names that client, else it is "".
func (m *Manager) Closed(session, agent string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.clients, session)
	delete(m.wants, session)
	delete(m.replies, session)
	m.budget.End(session)
	m.budget.End(agent)
	m.forsakeLocked(session)
	m.forgetSightsLocked()
	m.idleLocked()
	m.reconcileLocked()
}

// forsakeLocked ends what there is for a session.
func (m *Manager) forsakeLocked(session string) {
	for key, c := range m.calls {
		if key.Session == session && !c.Claim().IsDetached() && c.Review(calls.Gone{}) {
			m.containLocked(c.up, "gave up a call", func() { m.dropLocked(c) })
		}
	}
	m.refuseAsksLocked(session)
	for key, inst := range m.instances {
		if key.scope == Session && key.of == session {
			inst.retireLocked()
		}
	}
}

// Recall returns the tool that line n of a session has called, whether or not its
// server still offers it, or is configured at all; nil if no process has the call.
// recorded reports whether the call is on record.
func (m *Manager) Recall(session string, n int64) (t *tool.Remote, recorded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.calls[calls.Key{Session: session, N: n, Round: 0}]
	if c == nil || c.up == nil {
		return nil, c != nil
	}
	inst := c.up.inst
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

// expect gives up the sessions of an earlier daemon that do not come back.
func (m *Manager) expect() {
	t := time.NewTimer(m.o.Return)
	defer t.Stop()
	select {
	case <-m.life.Done():
		return
	case <-t.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := map[string]struct{}{}
	for key := range m.calls {
		gone[key.Session] = struct{}{}
	}
	for key := range m.instances {
		if key.scope == Session {
			gone[key.of] = struct{}{}
		}
	}
	m.expected = true
	for session := range gone {
		if m.clients[session] == nil {
			m.forsakeLocked(session)
		}
	}
	m.idleLocked()
	m.reconcileLocked()
	// A map keeps its room: that of all that stood in an earlier daemon's records.
	m.calls = maps.Collect(maps.All(m.calls))
	for u := range m.processes {
		u.calls = maps.Collect(maps.All(u.calls))
	}
}

// Close detaches all processes, which live on, and waits until no goroutine of the
// manager runs, or until ctx is done. The supervisor must be closed first, or at the
// same time.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	all := slices.Collect(maps.Keys(m.processes))
	m.mu.Unlock()
	m.end()
	for _, u := range all {
		u.letGo()
	}
	return m.wait(ctx)
}

func (m *Manager) wait(ctx context.Context) error {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		m.wg.Wait()
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

// endGrace is how long a server that is ended may take for each rung.
const endGrace = time.Second

// EndAll ends all processes, with their trees, and those that are being started.
func (m *Manager) EndAll(ctx context.Context) error {
	m.mu.Lock()
	m.closed, m.ending = true, true
	all := slices.Collect(maps.Keys(m.processes))
	var starts []<-chan struct{}
	for _, u := range all {
		u.state = u.state.after(terminate)
	}
	for _, inst := range m.instances {
		if inst.starting != nil {
			starts = append(starts, inst.starting)
			inst.skipBackoffLocked()
		}
	}
	m.mu.Unlock()
	errs := make([]error, len(all)+1)
	var ending sync.WaitGroup
	for i, u := range all {
		ending.Go(func() { errs[i] = u.end(ctx) })
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

// Processes counts those that run.
func (m *Manager) Processes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for u := range m.processes {
		if u.state != exited {
			n++
		}
	}
	return n
}
