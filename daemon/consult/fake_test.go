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

// fakeEngine speaks words instead of JSON: "text X", "answer X", "aborted",
// "noise". Its prompts are the bare words, too.
type fakeEngine struct {
	check error
	mute  bool // it cannot be interrupted
	once  bool // it reads its prompt to the end of its input
	shell bool // it can enforce level shell
	unfit func(engine.Request) error

	mu    sync.Mutex
	asked []engine.Request // of command lines; guarded by mu
	newer bool             // it is of another version, held by another mechanism; guarded by mu
}

func (e *fakeEngine) Environ() []string { return nil }

func (e *fakeEngine) Without(names []string) []string { return names }

func (e *fakeEngine) Fits(req engine.Request) error {
	if e.unfit == nil {
		return nil
	}
	return e.unfit(req)
}

// last is the request of the last command line.
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

func (e *fakeEngine) NewRun(req engine.Request, _ engine.Info) engine.Run {
	return &fakeRun{mute: e.mute, once: e.once, req: req}
}

type fakeRun struct {
	req     engine.Request
	mute    bool
	once    bool
	said    []string
	answer  string
	answers int
	cost    float64

	structured string
	window     *engine.Window
}

func (r *fakeRun) Begin() []byte { return []byte("prompt " + r.req.Prompt + "\n") }

func (r *fakeRun) Once() bool { return r.once }

func (r *fakeRun) Interrupt() []byte {
	if r.mute {
		return nil
	}
	return []byte("interrupt\n")
}
func (r *fakeRun) BestAnswer() []byte { return []byte("best\n") }
func (r *fakeRun) Torn([]byte)        {}
func (r *fakeRun) Text() string       { return strings.Join(r.said, "\n") }

func (r *fakeRun) Checkpoint() ([]byte, error) {
	return json.Marshal([]any{r.said, r.answer, r.answers, r.cost})
}

func (r *fakeRun) Restore(b []byte) error {
	return json.Unmarshal(b, &[]any{&r.said, &r.answer, &r.answers, &r.cost})
}

func (r *fakeRun) Line(line []byte) []engine.Event {
	word, rest, _ := strings.Cut(string(line), " ")
	switch word {
	case "start":
		return []engine.Event{{Kind: engine.Started, Session: "S", Model: "M"}}
	case "text":
		r.said = append(r.said, rest)
		return []engine.Event{{Kind: engine.Text, Text: rest}}
	case "tool":
		return []engine.Event{{Kind: engine.ToolUse, Text: rest}}
	case "answer":
		r.answer, r.answers = rest, r.answers+1
		r.cost += 0.5
		return []engine.Event{{Kind: engine.TurnDone, Answered: true}}
	case "aborted":
		r.cost += 0.25
		return []engine.Event{{Kind: engine.TurnDone}}
	case "wait":
		return []engine.Event{{Kind: engine.Waiting}}
	case "retry":
		return []engine.Event{{Kind: engine.Retry, Text: "again"}}
	case "stuck":
		return []engine.Event{{Kind: engine.Stuck}}
	case "structured":
		r.structured = rest
		return nil
	case "window":
		r.window = &engine.Window{Kind: "five_hour", Used: 0.8, ResetUnixMS: time.Now().Add(time.Hour).UnixMilli()}
		return []engine.Event{{Kind: engine.Limit, Window: r.window}}
	}
	return []engine.Event{{Kind: engine.Noise}}
}

func (r *fakeRun) Outcome(exit engine.Exit, why engine.Why) engine.Outcome {
	out := engine.Outcome{Session: "S", CostUSD: &r.cost, Answer: r.Text(), Partial: true}
	switch {
	case r.answers > 0:
		out.Answer, out.Partial, out.Window = r.answer, why.Late(), r.window
		if r.structured != "" {
			out.Structured = json.RawMessage(r.structured)
		}
	case why == engine.Cancelled:
		out.Fault = fault.New(fault.Cancelled, fault.Engine, operation, "cancelled")
	case why.Late():
		out.Fault = fault.New(fault.Timeout, fault.Engine, operation, "late").WithReason(fault.Deadline)
	case why == engine.Overflow:
		out.Fault = fault.New(fault.DownstreamFailure, fault.Engine, operation, "too much").WithReason(fault.BadOutput)
	case !exit.Known:
		out.Fault = fault.New(fault.OutcomeUnknown, fault.Engine, operation, "unknown")
	default:
		out.Fault = fault.New(fault.ProcessFailure, fault.Engine, operation, "ended: %s %d", exit.Signal, exit.Code).
			WithCause(fault.Cause{StderrTail: exit.Stderr})
	}
	return out
}

// fakeStarter starts programs that are funcs.
type fakeStarter struct {
	mu      sync.Mutex
	err     error
	program func(*fakeProcess)
	procs   []*fakeProcess
	order   []string // identities, as they were started
	wg      sync.WaitGroup
}

func (s *fakeStarter) Start(_ context.Context, dir string, spec process.Spec, env []string) (Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	p := &fakeProcess{
		dir: dir, spec: spec, env: env, events: make(chan supervisor.Event), in: make(chan string, 64), closed: make(chan struct{}), done: make(chan struct{}),
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

	mu       sync.Mutex
	records  []calls.Record
	acked    int64
	released bool
	graces   []time.Duration
}

func (p *fakeProcess) Events() <-chan supervisor.Event { return p.events }

func (p *fakeProcess) Write(ctx context.Context, rec calls.Record, data []byte) (int64, error) {
	p.mu.Lock()
	p.records = append(p.records, rec)
	p.mu.Unlock()
	select {
	case p.in <- strings.TrimSuffix(string(data), "\n"):
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (p *fakeProcess) CloseStdin(context.Context) error {
	p.once.Do(func() { close(p.closed) })
	return nil
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

// What programs do.

func (p *fakeProcess) say(lines ...string) {
	p.seq++
	p.events <- supervisor.Event{Kind: supervisor.Output, Stream: process.Stdout, Seq: p.seq, Data: []byte(strings.Join(lines, "\n") + "\n")}
}

func (p *fakeProcess) exit(code int) {
	p.events <- supervisor.Event{Kind: supervisor.Exited, Seq: p.seq + 1, Exit: process.Exit{Code: &code}}
	p.events <- supervisor.Event{Kind: supervisor.Closed, Seq: p.seq + 2}
}

func (p *fakeProcess) killed() {
	p.events <- supervisor.Event{Kind: supervisor.Exited, Seq: p.seq + 1, Exit: process.Exit{Signal: "SIGTERM"}}
	p.events <- supervisor.Event{Kind: supervisor.Closed, Seq: p.seq + 2}
}

// answers is a program that answers its prompt after a while.
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
		t: t, starter: &fakeStarter{program: program}, engine: &fakeEngine{}, codex: &fakeEngine{once: true, mute: true},
		dir: filepath.Join(dir, "consults"), project: filepath.Join(dir, "project"),
	}
	for _, d := range []string{w.dir, w.project, filepath.Join(w.project, "sub")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	opt := Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Dir: w.dir, Ledger: filepath.Join(dir, "spent.json"), SocketDir: filepath.Join(dir, "w"),
		Engines: map[string]engine.Engine{Claude: w.engine, Codex: w.codex}, Path: func() string { return os.Getenv("PATH") }, Starter: w.starter, Settings: DefaultSettings(), Home: filepath.Join(dir, "home"),
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

// finish ends the world and checks that nothing is left of it.
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

// code is the code of a fault, however it was returned.
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

func exitOf(op, errno string) process.Exit { return process.Exit{SpawnOp: op, SpawnErrno: errno} }
