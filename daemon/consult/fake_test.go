package consult

import (
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
	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// Codex is the name of the second engine.
const Codex = "codex"

// fakeEngine is an engine whose program runs nowhere: its engine process is a
// [fakeProcess].
type fakeEngine struct {
	check error
	shell bool // it can enforce level shell
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

// fakeStarter starts programs that are funcs.
type fakeStarter struct {
	mu      sync.Mutex
	err     error
	program func(*fakeProcess)
	procs   []*fakeProcess
	order   []string // identities, in the order of their starts
	wg      sync.WaitGroup
}

func (s *fakeStarter) Start(_ context.Context, dir string, spec process.Spec, env []string) (Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	p := &fakeProcess{
		dir: dir, spec: spec, env: env, events: make(chan supervisor.Event), in: make(chan string, 64),
		closed: make(chan struct{}), done: make(chan struct{}),
		term: make(chan time.Duration, 8),
	}
	s.procs = append(s.procs, p)
	s.order = append(s.order, spec.Owner.Identity)
	s.wg.Go(func() {
		defer close(p.done)
		defer close(p.events)
		s.program(p)
	})
	return p, nil
}

func (s *fakeStarter) Attach(context.Context, string, int64) (Process, int64, error) {
	return nil, 0, errors.New("no worker")
}

func (s *fakeStarter) last() *fakeProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[len(s.procs)-1]
}

type fakeProcess struct {
	dir    string
	spec   process.Spec
	env    []string
	events chan supervisor.Event
	in     chan string
	closed chan struct{}
	done   chan struct{}
	term   chan time.Duration
	once   sync.Once
	seq    int64 // of the program's goroutine
	out    engine.Outcome
	cost   float64
	log    *engine.Transcript

	mu       sync.Mutex
	records  []calls.Record
	acked    int64
	released bool
	graces   []time.Duration
	params   engine.Params
}

func (p *fakeProcess) Events() <-chan supervisor.Event { return p.events }

// Write sends the program "prompt X" for a call, and "cancel" for a cancellation.
func (p *fakeProcess) Write(ctx context.Context, rec calls.Record, data []byte) (int64, error) {
	p.mu.Lock()
	p.records = append(p.records, rec)
	p.mu.Unlock()
	word := "cancel"
	if rec.Kind == calls.KindCall {
		var m struct {
			Params struct {
				Arguments engine.Params `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return 0, err
		}
		p.params = m.Params.Arguments
		word = "prompt " + p.params.Prompt
	}
	select {
	case p.in <- word:
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (p *fakeProcess) Terminate(_ context.Context, grace time.Duration) (process.Exit, error) {
	p.mu.Lock()
	p.graces = append(p.graces, grace)
	p.mu.Unlock()
	p.once.Do(func() { close(p.closed) })
	p.term <- grace
	return process.Exit{}, nil
}

func (p *fakeProcess) Ack(seq int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked = max(p.acked, seq)
}

func (p *fakeProcess) Done() <-chan struct{} { return p.done }

func (p *fakeProcess) Generation() int64 { return 7 }

func (p *fakeProcess) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
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
			p.line(map[string]any{"jsonrpc": "2.0", "id": 1, "result": map[string]any{"structuredContent": p.out}})
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
	p.out.Answer, p.out.Partial = said.Text, said.Text != ""
	p.out.Fault = fault.New(fault.Cancelled, fault.Engine, operation, "cancelled")
	if err := os.WriteFile(filepath.Join(p.dir, engine.FileOutcome), engine.JSON(p.out), 0o600); err != nil {
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
	p.line(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress", "params": map[string]any{
		"message": message, "_meta": map[string]any{engine.MetaProgress: progress},
	}})
}

func (p *fakeProcess) line(v any) {
	p.seq++
	p.events <- supervisor.Event{
		Kind: supervisor.Output, Stream: process.Stdout, Seq: p.seq, Data: append(engine.JSON(v), '\n'),
	}
}

func (p *fakeProcess) exit(code int) {
	p.events <- supervisor.Event{Kind: supervisor.Exited, Seq: p.seq + 1, Exit: process.Exit{Code: &code}}
	p.events <- supervisor.Event{Kind: supervisor.Closed, Seq: p.seq + 2}
}

func (p *fakeProcess) killed() {
	p.events <- supervisor.Event{Kind: supervisor.Exited, Seq: p.seq + 1, Exit: process.Exit{Signal: "SIGTERM"}}
	p.events <- supervisor.Event{Kind: supervisor.Closed, Seq: p.seq + 2}
}

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
		SocketDir: filepath.Join(dir, "w"), Engines: map[string]engine.Engine{Claude: w.engine, Codex: w.codex},
		Path: func() string { return os.Getenv("PATH") }, Starter: w.starter, Settings: DefaultSettings(),
		Home: filepath.Join(dir, "home"),
	}
	for _, f := range edit {
		f(&opt)
	}
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
			w.t.Errorf("worker %s was not given up", p.spec.ID)
		}
		p.mu.Unlock()
		if _, err := os.Stat(filepath.Join(p.dir, dirTemp)); err == nil {
			w.t.Errorf("the temporary directory of %s is still there", p.spec.ID)
		}
	}
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
