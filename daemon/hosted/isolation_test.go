package hosted_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/hosted"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/listener"
	"holdline/daemon/policy"
	"holdline/daemon/session"
	"holdline/daemon/session/executor"
	"holdline/daemon/session/peer"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// patience is the limit of every wait.
const patience = time.Minute

// world is a daemon's real sessions and hosted servers, with clients and servers that the
// test plays. One goroutine draws at random what each of them says. What reaches a client
// is checked against what the client has said.
type world struct {
	t      *testing.T
	rng    *rand.Rand // of the drawing goroutine
	dir    string
	socket string // of the daemon
	traced bool
	broken bool // servers send nothing unusual, so that only what is broken is noticed
	wg     sync.WaitGroup

	mu        sync.Mutex // guards all that follows, and the state of clients and servers
	moved     *sync.Cond // on mu: something has arrived
	violation string     // the first one
	over      bool
	late      bool // the present wait has taken too long
	clients   []*client
	upstreams []*upstream
	bySecret  map[string]*request
	questions []asked

	answers, progresses, logs, cancels, drops int
}

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(format, args...)
}

func (w *world) failLocked(format string, args ...any) {
	if w.violation == "" && !w.over {
		w.violation = fmt.Sprintf(format, args...)
	}
	w.moved.Broadcast()
}

// trace logs what is said, if HOLDLINE_TRACE is set.
func (w *world) trace(format string, args ...any) {
	if w.traced {
		w.t.Logf(format, args...)
	}
}

// nobody ignores all telemetry.
type nobody struct{}

func (nobody) Request(telemetry.Operation, time.Duration, int, *fault.Record) {}
func (nobody) ToolCall(telemetry.Call)                                        {}
func (nobody) SessionEnded(string)                                            {}
func (nobody) WorkerStarting(string, int64)                                   {}
func (nobody) WorkerReady(string)                                             {}
func (nobody) WorkerLost(string, bool)                                        {}
func (nobody) WorkerEnded(string)                                             {}

// newWorld starts the sessions and servers. They end with the test.
func newWorld(t *testing.T, seed uint64, broken bool) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, broken: broken, rng: rand.New(rand.NewPCG(seed, 0)), dir: dir, socket: filepath.Join(dir, "s"),
		bySecret: map[string]*request{},
	}
	w.traced = os.Getenv("HOLDLINE_TRACE") != ""
	w.moved = sync.NewCond(&w.mu)
	for i := range 5 {
		project := []string{"p", "p", "q", "q", "p"}[i]
		c := &client{
			w: w, number: i, modern: i == 1 || i == 2, loud: i == 0 || i == 3, project: project,
			cwd: filepath.Join(dir, project), uuid: fmt.Sprintf("00000000-0000-0000-0000-%012d", i),
			asked: map[string]string{},
		}
		if err := statedir.MakeDir(c.cwd); err != nil {
			t.Fatal(err)
		}
		w.clients = append(w.clients, c)
	}
	w.clients[4].only = sharedLegacy
	w.serve()
	return w
}

// serve starts the parts of a daemon that hosted servers need.
func (w *world) serve() {
	t := w.t
	t.Helper()
	level := slog.LevelError
	if w.traced {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	workers := supervisor.New(supervisor.Options{
		Exe: exe, RuntimeDir: w.dir, StateDir: w.dir, Epoch: 1, Program: "test", Log: log,
	})
	if err := statedir.MakeDir(filepath.Join(w.dir, "w")); err != nil {
		t.Fatal(err)
	}
	manager := hosted.New(hosted.Options{
		Log: log, Workers: workers, Watch: nobody{}, WorkersDir: filepath.Join(w.dir, "w"),
		CatalogDir: filepath.Join(w.dir, "catalog"), StateDir: filepath.Join(w.dir, "servers"),
		Info: mcp.Implementation{Name: "holdline", Version: "test"},
		Servers: []entry.Server{
			w.spec(exe, sharedLegacy, entry.Shared), w.spec(exe, sharedModern, entry.Shared),
			w.spec(exe, perProject, entry.Project), w.spec(exe, perSession, entry.Session),
		},
		FirstList: time.Hour, // each call is to be answered by its server
	})
	cat, err := tool.NewCatalog(policy.NewRules(&config.Config{}), manager)
	if err != nil {
		t.Fatal(err)
	}
	sessions := session.New(session.Options{
		Log: log, Catalog: cat, Telemetry: nobody{}, Info: mcp.Implementation{Name: "holdline", Version: "test"},
		CheckView: func(string) error { return nil },
		Authorise: func(string, string) error { return nil }, Reserved: func(string) bool { return false },
		Welcome:     func() protocol.Welcome { return protocol.Welcome{Store: "st"} },
		MaxInFlight: 4 * mostOpen, MaxKept: 1 << 20, Executors: executor.List{manager}, Hosted: manager,
		Still: func() bool { return true }, Client: func(int) (int, string) { return 0, "" }, Alive: peer.Peer.Alive,
		Begun: time.Now(),
	})
	own, daemon := w.listen("u"), w.listen("s")
	w.wg.Go(func() { w.acceptUpstreams(own) })
	if err := manager.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	l := listener.New(listener.Options{
		Log: log, UIDs: []int{os.Getuid()}, MaxConns: 1024,
		Handlers: map[string]listener.Handler{protocol.RoleMCP: sessions.ServeConn},
	})
	go func() { served <- l.Serve(ctx, daemon) }()
	t.Cleanup(func() {
		w.mu.Lock()
		w.over = true
		w.mu.Unlock()
		cancel()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(<-served, manager.EndAll(ctx), workers.Close(ctx), manager.Close(ctx)); err != nil {
			t.Errorf("the end: %v", err)
		}
		own.Close()
		w.wg.Wait()
		_ = os.RemoveAll(w.dir)
	})
}

func (w *world) listen(name string) *net.UnixListener {
	w.t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(w.dir, name), Net: "unix"})
	if err != nil {
		w.t.Fatal(err)
	}
	return ln
}

// spec returns the spec of a hosted server that the test plays.
func (w *world) spec(exe, name string, scope entry.Scope) entry.Server {
	return entry.Server{
		Name: name, Scope: scope, Key: name,
		Process: func(context.Context, *process.Owner) (resolve.Process, error) {
			return resolve.Process{
				Command: exe, Args: []string{"upstream", filepath.Join(w.dir, "u"), name}, Dir: w.dir,
				Env: []string{"GORACE=atexit_sleep_ms=0"},
			}, nil
		},
		Timeout: time.Hour, MaxTimeout: time.Hour, StartTimeout: time.Hour, Lazy: true, KeepAlive: time.Hour,
		MaxConcurrent: 1000, MaxRestarts: 5, RestartWindow: time.Minute, CircuitThreshold: 5, CircuitReset: time.Minute,
	}
}

// awaitLocked waits until cond is true or a check has failed, and reports whether all is
// well. The lock is held at the call and at the return.
func (w *world) awaitLocked(what func() string, cond func() bool) bool {
	w.late = false
	limit := time.AfterFunc(patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.late = true
		w.moved.Broadcast()
	})
	defer limit.Stop()
	for w.violation == "" && !cond() {
		if w.late {
			w.failLocked("waited in vain for %s", what())
			return false
		}
		w.moved.Wait()
	}
	return w.violation == ""
}

// kind is a kind of step. decide runs under the world's lock. It returns a func that runs
// without the lock, because the receiver of its message may wait for the lock, or nil if
// the step is not possible now.
type kind struct {
	weight int
	decide func(w *world) func()
}

var kindsOfSteps = []kind{
	{300, (*world).call},
	{290, (*world).answer},
	{200, (*world).progress},
	{60, (*world).confirm},
	{40, (*world).cancel},
	{20, (*world).cross},
	{30, (*world).barrier},
	{20, (*world).stray},
	{20, (*world).ask},
	{25, (*world).reply},
	{60, (*world).resume},
	{8, (*world).list},
	{3, (*world).change},
	{20, (*world).log},
	{20, (*world).drop},
}

// run makes that many steps or stops at the first violation, and returns the violation.
func (w *world) run(steps int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beginLocked()
	for range steps {
		var act func()
		w.awaitLocked(func() string { return "anything that can be done" }, func() bool {
			act = w.drawLocked()
			return act != nil
		})
		if w.violation != "" {
			break
		}
		w.do(act)
	}
	w.settleLocked()
	return w.violation
}

// drawLocked returns the next step: a random one, or if that is not possible one that
// nearly always is. If no step is possible, a message is on its way.
func (w *world) drawLocked() func() {
	total := 0
	for _, k := range kindsOfSteps {
		total += k.weight
	}
	draw, i := w.rng.IntN(total), 0
	for draw >= kindsOfSteps[i].weight {
		draw -= kindsOfSteps[i].weight
		i++
	}
	act := kindsOfSteps[i].decide(w)
	if act == nil {
		act = w.answer()
	}
	for range 64 { // each tries one client and one id, which may be in use
		if act == nil {
			act = w.call()
		}
	}
	if act == nil {
		act = w.resume()
	}
	return act
}

// do runs act without the lock.
func (w *world) do(act func()) {
	w.mu.Unlock()
	act()
	w.mu.Lock()
}

// beginLocked has all clients use all servers, so that all processes run.
func (w *world) beginLocked() {
	for _, c := range w.clients {
		w.do(c.connectLocked())
		for i, server := range c.servers() {
			w.do(c.callLocked(server, ids[len(ids)-1-i], ""))
		}
	}
	w.settleLocked()
}

// settleLocked lets everything that is open end, and fails if it does not.
func (w *world) settleLocked() {
	calm := func() bool {
		for _, c := range w.clients {
			for _, r := range c.open {
				if !r.listen {
					return false
				}
			}
		}
		for _, u := range w.upstreams {
			if len(u.asks) > 0 {
				return false
			}
		}
		return true
	}
	for _, c := range w.clients {
		if c.conn == nil {
			w.do(c.connectLocked())
		}
		w.do(c.barrierLocked())
	}
	var act func()
	for w.awaitLocked(w.openLocked, func() bool {
		if act = w.answer(); act == nil {
			act = w.reply()
		}
		return act != nil || calm()
	}) && act != nil {
		w.do(act)
	}
}

// openLocked describes the answers that are still awaited.
func (w *world) openLocked() string {
	var b strings.Builder
	for _, c := range w.clients {
		for _, r := range c.open {
			fmt.Fprintf(&b, "client %d, connected %t: %s of %s, cancelled %t, arrived %t\n", c.number, c.conn != nil,
				r.id, r.secret, r.cancelled, r.at != nil)
		}
	}
	for _, u := range w.upstreams {
		for _, q := range u.asks {
			fmt.Fprintf(&b, "%s asks %s\n", u.name, q.secret)
		}
	}
	return b.String()
}

// seedOf returns the seed of a random test: HOLDLINE_SEED, or a new one each time.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("HOLDLINE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HOLDLINE_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("HOLDLINE_SEED=%d", seed)
	return seed
}

// TestIsolation checks that, whatever clients and servers say, each message that reaches a
// client answers or names a request that this client made and that is open; that each
// request that is not cancelled is answered once; and that no session sees anything of
// another.
func TestIsolation(t *testing.T) {
	steps := 100_000
	if raceEnabled {
		steps /= 20
	}
	w := newWorld(t, seedOf(t), false)
	begin := time.Now()
	if violation := w.run(steps); violation != "" {
		t.Fatal(violation)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d steps in %v: %d answers, %d times progress, %d log messages, %d cancellations, %d broken connections, %d processes",
		steps, time.Since(begin), w.answers, w.progresses, w.logs, w.cancels, w.drops, len(w.upstreams))
	// How many progress messages arrive while their call is open depends on the speed of
	// the machine. The limit is far below what an idle machine reaches.
	if len(w.upstreams) != 8 || w.answers < steps/10 || w.progresses < steps/100 || w.logs == 0 ||
		w.cancels < steps/100 || w.drops == 0 {
		t.Error("that is not what was to be tried")
	}
}

// TestIsolationNotices checks that TestIsolation fails if ids or progress tokens are not
// rewritten.
func TestIsolationNotices(t *testing.T) {
	for rule, want := range map[string]string{
		"hosted.ids":    `client \d got what is not its own: \{.*"id":.*"secret":"secret-`,
		"hosted.tokens": `client \d got what is not its own: \{.*"notifications/progress".*"message":"secret-`,
	} {
		t.Run(rule, func(t *testing.T) {
			faultpoint.Break(func(name string) bool { return name == rule })
			t.Cleanup(func() { faultpoint.Break(nil) }) // after all parts have ended
			w := newWorld(t, seedOf(t), true)
			violation := w.run(5000)
			if !regexp.MustCompile(want).MatchString(violation) {
				t.Errorf("noticed: %q, want %s", violation, want)
			}
			t.Log(violation)
		})
	}
}
