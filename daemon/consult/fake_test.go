package consult

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/form"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/budget"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/hosted/private"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

// Names of the engines.
const (
	Claude = "claude"
	Codex  = "codex"
)

// defaults returns the default configuration, with all levels allowed.
func defaults() *config.Config {
	cfg := config.Default()
	cfg.Consult.Allow = map[string]config.Allow{config.Everyone: {Levels: []string{"read", "shell"}}}
	return &cfg
}

// fakeEngine is an engine whose program runs nowhere: its engine process is a
// [fakeProcess].
type fakeEngine struct {
	check error
	shell bool          // it can enforce level shell
	slow  time.Duration // of each check
	trial func() error  // what comes before each check, or nil
	unfit func(engine.Request) error

	mu    sync.Mutex
	asked []engine.Request // the requests for which a command line was made; guarded by mu
	newer bool             // it is of another version, held by another mechanism; guarded by mu
}

func (e *fakeEngine) Environ() (environ, configured []string) { return []string{"A=b"}, nil }

func (e *fakeEngine) Without(names []string) []string { return names }

func (e *fakeEngine) Fits(req engine.Request) error {
	if e.unfit == nil {
		return nil
	}
	return e.unfit(req)
}

// last returns the request of the last command line.
func (e *fakeEngine) last() engine.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[len(e.asked)-1]
}

func (e *fakeEngine) Check(context.Context) (engine.Info, error) {
	time.Sleep(e.slow)
	if e.trial != nil {
		if err := e.trial(); err != nil {
			return engine.Info{}, err
		}
	}
	lacks := "no such thing here"
	if e.shell {
		lacks = ""
	}
	version := "1.2.3"
	if e.mu.Lock(); e.newer {
		version = "1.2.4"
	}
	e.mu.Unlock()
	return engine.Info{Path: "/bin/fake", Version: version, Levels: []engine.Level{
		{Name: engine.LevelRead, EnforcedBy: engine.ByTools}, {Name: engine.LevelShell, Lacks: lacks},
	}}, e.check
}

func (e *fakeEngine) Command(req engine.Request, info engine.Info) engine.Command {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, req)
	by := engine.ByTools
	if e.newer {
		by = engine.ByLandlock
	}
	return engine.Command{Argv: []string{info.Path}, Env: []string{"A=b"}, Level: "read", EnforcedBy: by}
}

// NewRun returns nil: a daemon never calls it.
func (e *fakeEngine) NewRun(engine.Request, engine.Info) engine.Run { return nil }

// fakeStarter makes the calls of engine processes that are funcs, as package hosted
// does those of real ones.
type fakeStarter struct {
	mu      sync.Mutex
	err     error
	sockets string // the directory of sockets
	program func(*fakeProcess)
	procs   []*fakeProcess
	order   []string // identities, in the order of their starts
	wg      sync.WaitGroup
}

// Call makes a call: see [Host].
func (s *fakeStarter) Call(ctx context.Context, c *private.Call, settle func(private.End)) {
	arguments, env, err := c.Compose(ctx)
	if c.Adopt {
		err = errors.New("no worker")
	}
	s.mu.Lock()
	if err = cmp.Or(err, s.err); err != nil {
		s.mu.Unlock()
		settle(private.End{Err: err})
		return
	}
	p := &fakeProcess{
		dir: c.Dir, Call: c, env: env, params: arguments.(*engine.Params), in: make(chan string, 64),
		closed: make(chan struct{}), term: make(chan struct{}), end: private.End{Generation: 7},
	}
	s.procs = append(s.procs, p)
	s.order = append(s.order, c.Record.Identity)
	s.mu.Unlock()
	done := make(chan struct{})
	s.wg.Go(func() {
		defer close(done)
		s.program(p)
	})
	p.follow(ctx, done)
	select {
	case <-done:
		settle(p.end)
	default:
		settle(private.End{Left: true})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
}

// Clear removes the directory of a socket.
func (s *fakeStarter) Clear(_ context.Context, dir string) error {
	return os.RemoveAll(filepath.Join(s.sockets, filepath.Base(dir)))
}

func (s *fakeStarter) last() *fakeProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[len(s.procs)-1]
}

type fakeProcess struct {
	*private.Call
	dir    string
	env    []string
	params *engine.Params
	in     chan string
	closed chan struct{} // closed when the process is to end: it has answered, or is terminated
	term   chan struct{} // closed when it is terminated
	once   sync.Once
	out    engine.Outcome
	cost   float64
	log    *engine.Transcript
	end    private.End // of the program's goroutine, until that has ended

	mu       sync.Mutex
	released bool // the call has ended
}

// follow tells the program "prompt X" of a call, and "cancel", and ends it if it does
// not heed that. It returns when the program has ended or ctx is done.
func (p *fakeProcess) follow(ctx context.Context, done <-chan struct{}) {
	timer := time.NewTimer(p.Limit)
	defer timer.Stop()
	cancel, asked := p.Cancel, false
	select {
	case <-cancel:
	default:
		asked = true
		p.in <- "prompt " + p.params.Prompt
	}
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-cancel:
			cancel = nil
			p.Cancelled()
			timer.Reset(0)
			if asked {
				timer.Reset(2200 * time.Millisecond)
				p.in <- "cancel"
			}
		case <-timer.C:
			p.once.Do(func() { close(p.closed) })
			close(p.term)
		}
	}
}

// The methods below are what a program does.

// say does what each line says: "start", "text X", "tool X", "window", "structured X",
// "answer X". An answer is the result of the call.
func (p *fakeProcess) say(lines ...string) {
	for _, line := range lines {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "start":
			p.out.Session = "S"
			if p.log != nil {
				continue
			}
			log, err := engine.CreateTranscript(p.dir, engine.Entry{Argv: []string{"/bin/fake"}})
			if err != nil {
				panic(err)
			}
			p.log = log
			p.write(engine.Entry{Kind: engine.KindSession, Session: "S", Model: "M"})
			p.note("M is thinking", engine.Progress{Session: "S", Model: "M"})
		case "text":
			p.write(engine.Entry{Kind: engine.KindText, Text: rest})
			p.note("writing", engine.Progress{Session: "S"})
		case "tool":
			p.note(rest, engine.Progress{Session: "S"})
		case "window":
			p.out.Window = &engine.Window{
				Kind: "five_hour", Used: 0.8, ResetUnixMS: time.Now().Add(time.Hour).UnixMilli(),
			}
			p.note("limit", engine.Progress{Window: p.out.Window})
		case "structured":
			p.out.Structured = json.RawMessage(rest)
			if rest == "" {
				p.out.Structured = nil
			}
		case "answer":
			p.out.Version, p.out.State, p.out.Answer = engine.Version, engine.Done, rest
			p.out.Argv, p.out.Exit = []string{"/bin/fake"}, "exit code 0"
			p.cost += 0.5
			p.out.CostUSD = &p.cost
			form.Judge(&p.out, p.params.Schema) // as the engine process does
			p.end.Result = jsonrpc.Encode(map[string]any{"structuredContent": p.out})
			p.once.Do(func() { close(p.closed) })
		}
	}
}

// cancelled writes the outcome of a cancelled run and ends the process.
func (p *fakeProcess) cancelled() {
	p.cost += 0.25
	p.out.Version, p.out.State, p.out.CostUSD, p.out.Why = engine.Version, engine.Aborted, &p.cost, engine.Cancelled
	said, err := engine.ReadTranscript(p.dir)
	if err != nil {
		panic(err)
	}
	p.out.Job = filepath.Base(p.dir)
	p.out.Answer, p.out.Partial = said.Text, said.Text != ""
	p.out.Fault = fault.New(fault.Cancelled, fault.Engine, operation, "cancelled")
	if err := jobdir.Write(p.dir, engine.FileOutcome, p.out); err != nil {
		panic(err)
	}
	p.exit(0)
}

func (p *fakeProcess) write(e engine.Entry) {
	if err := p.log.Write(e); err != nil {
		panic(err)
	}
}

func (p *fakeProcess) note(message string, progress engine.Progress) {
	p.Progress(jsonrpc.Encode(map[string]any{"message": message, "_meta": map[string]any{engine.MetaProgress: progress}}))
}

func (p *fakeProcess) exit(code int) { p.end.Exit = process.Exit{Code: &code} }

func (p *fakeProcess) killed() { p.end.Exit = process.Exit{Signal: "SIGTERM"} }

// answers returns a program that answers its prompt after a while.
func answers(after time.Duration) func(*fakeProcess) {
	return func(p *fakeProcess) {
		prompt := <-p.in
		p.say("start")
		select {
		case <-time.After(after):
		case <-p.term:
			p.killed()
			return
		}
		p.say("text looking", "answer "+strings.TrimPrefix(prompt, "prompt "))
		select {
		case <-p.closed:
			p.exit(0)
		case <-p.term:
			p.killed()
		}
	}
}

// world is a manager with fakes around it.
type world struct {
	*Manager
	t       *testing.T
	starter *fakeStarter
	engine  *fakeEngine
	codex   *fakeEngine
	dir     string
	project string
}

// newWorld starts a manager whose programs run program.
func newWorld(t *testing.T, program func(*fakeProcess), edit ...func(*Options)) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{
		t: t, starter: &fakeStarter{program: program}, engine: &fakeEngine{}, codex: &fakeEngine{},
		dir: filepath.Join(dir, "consults"), project: filepath.Join(dir, "project"),
	}
	for _, d := range []string{w.dir, w.project, filepath.Join(w.project, "sub")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	opt := Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Dir: w.dir, Ledger: filepath.Join(dir, "spent.json"),
		SocketDir: filepath.Join(dir, "w"), Engines: Fixed{Claude: w.engine, Codex: w.codex},
		Variable: os.Getenv, Host: w.starter, Config: defaults(),
		Home: filepath.Join(dir, "home"),
	}
	for _, f := range edit {
		f(&opt)
	}
	w.starter.sockets = opt.SocketDir
	m, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	w.Manager = m
	return w
}

// finish closes the world, and checks that nothing of it is left.
func (w *world) finish() {
	w.t.Helper()
	if err := w.Close(context.WithoutCancel(w.t.Context())); err != nil {
		w.t.Errorf("close: %v", err)
	}
	w.starter.wg.Wait()
	for _, p := range w.starter.procs {
		p.mu.Lock()
		if !p.released {
			w.t.Errorf("the process of %s was not given up", p.dir)
		}
		p.mu.Unlock()
		if _, err := os.Stat(filepath.Join(p.dir, jobdir.DirTemp)); err == nil {
			w.t.Errorf("the temporary directory of %s is still there", p.dir)
		}
	}
}

// remember makes a kept answer of the caller known that has this session.
func remember(m *Manager, c *tool.Caller, id, session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs[id] = &Job{
		Rec: jobdir.Record{ID: id, Identity: c.Identity, Project: c.Project}, m: m, Dir: filepath.Join(m.opt.Dir, id),
		kept: &kept{info: answer.Info{ID: id, Identity: c.Identity}, session: session, cost: budget.Cost{Ended: time.Now()}},
	}
}

// who is caller for lookups.
func (w *world) who(identity string) *tool.Caller {
	c := w.caller(identity)
	return &c
}

func (w *world) caller(identity string) tool.Caller {
	return tool.Caller{Session: "hash-" + identity, Identity: identity, Root: w.project, Cwd: w.project}
}

// call calls a tool through its schema, as a session does.
func (w *world) call(ctx context.Context, name string, c tool.Call, args map[string]any) (tool.Result, error) {
	w.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, t := range w.Tools() {
		if t.Name != name {
			continue
		}
		p, err := tool.Prepare(&t)
		if err != nil {
			w.t.Fatal(err)
		}
		c.Args, _, c.Detail, err = p.Parse(raw)
		if err != nil {
			return tool.Result{}, err
		}
		return t.Handle(ctx, c)
	}
	w.t.Fatalf("no tool %s", name)
	return tool.Result{}, nil
}

// code returns the code of a fault, in whichever of the two it was returned.
func code(res tool.Result, err error) fault.Code {
	if f, ok := errors.AsType[*fault.Record](err); ok {
		return f.Fault.Code
	}
	if res.Fault != nil {
		return res.Fault.Fault.Code
	}
	if err != nil {
		return fault.Code(err.Error())
	}
	return ""
}

// Recorded reports whether a consult is known that line n of a session has begun.
func (m *Manager) Recorded(session string, n int64) bool { return m.job(jobdir.ID(session, n)) != nil }
