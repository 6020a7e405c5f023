package consult

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/hosted/private"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// house is a manager with real workers and the fake program.
type house struct {
	*Manager
	t       *testing.T
	dirs    statedir.Dirs
	project string
	session string // unique: processes left of a dead worker are killed by its id
	workers *supervisor.Supervisor
}

// hostOf returns a host of real engine processes.
func hostOf(workers *supervisor.Supervisor, log *slog.Logger) Host {
	return private.Processes{Log: log, Workers: workers, Watch: telemetry.New(telemetry.Options{Log: log})}
}

// newHouse starts a manager with real workers. bin is the program, "" for the fake one.
func newHouse(t *testing.T, bin string, edit ...func(*Options)) *house {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl") // a short path, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, project: filepath.Join(dir, "p"), session: rand.Text()}
	if h.dirs, err = statedir.Open(filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"p", "r", "home"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if bin == "" {
		bin = exe
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	sup := supervisor.New(supervisor.Options{
		Exe: exe, RuntimeDir: filepath.Join(dir, "r"), StateDir: h.dirs.Root, Epoch: 1, Program: "test", Log: log,
	})
	h.workers = sup
	opt := Options{
		Log: log, Dir: h.dirs.Consults, Ledger: filepath.Join(h.dirs.Root, "spent.json"), Exe: exe,
		SocketDir: filepath.Join(dir, "r", "w"), Home: filepath.Join(dir, "home"),
		Host: hostOf(sup, log), Config: defaults(),
		Engines: Fixed{Claude: claude.New(claude.Options{
			Bin: bin, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "SECRET=1"},
			Extra: []string{claudetest.FakeEnv + "=ok", "ANTHROPIC_API_KEY=k", "GORACE=atexit_sleep_ms=0"},
		})},
	}
	for _, f := range edit {
		f(&opt)
	}
	if h.Manager, err = New(opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := sup.Close(ctx); err != nil {
			t.Errorf("close the supervisor: %v", err)
		}
		if left := sup.Workers(); len(left) != 0 {
			t.Errorf("workers left: %+v", left)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "r", "w", "*")); err != nil || len(left) != 0 {
			t.Errorf("socket directories left: %v %v", left, err)
		}
	})
	return h
}

func (h *house) run(ctx context.Context, n int64, args map[string]any) (tool.Result, error) {
	h.t.Helper()
	w := world{Manager: h.Manager, t: h.t}
	return w.call(ctx, "consult", tool.Call{
		Caller: tool.Caller{Session: h.session, Identity: "a", Root: h.project, Cwd: h.project}, N: n,
	}, args)
}

// TestProgram runs the fake program in real workers through each of its endings.
func TestProgram(t *testing.T) {
	h := newHouse(t, "")
	for id, session := range map[string]string{
		"a123456789ab": "3d81f0a0-3c5f-4c12-93ea-17cf026df78c", "b123456789ab": "00000000-3c5f-4c12-93ea-17cf026df78c",
	} {
		remember(h.Manager, &tool.Caller{Identity: "a"}, id, session)
	}
	do := func(what string, n int) string { return claudetest.Prompt("x", claudetest.Step{Do: what, N: n}) }
	apiError := func(status int) string { return claudetest.Prompt("x", claudetest.Step{Status: status, N: 60}) }
	read := claudetest.Step{
		Text: new("Let me look."), Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}},
	}
	for i, tt := range []struct {
		name   string
		prompt string
		args   map[string]any
		code   fault.Code
		reason fault.Reason
		text   string // part of the text of the result, or of what stands behind the fault
	}{
		{name: "answer", prompt: "hello", text: "fake answer: hello"},
		{name: "tool use", prompt: claudetest.Prompt("x", read, claudetest.Say("All is well.")), text: "All is well."},
		{
			name:   "streamed",
			prompt: claudetest.Prompt("x", claudetest.Step{Text: new("bit by bit"), Chunk: 3, ChunkDelay: 0.01}),
			text:   "bit by bit",
		},
		{name: "dash", prompt: "-v --help", text: "fake answer: -v --help"},
		{name: "slash", prompt: "/help me", text: "fake answer:  /help me"},
		{name: "newlines and bytes", prompt: "a\nb\x00c", text: "fake answer: a\nb\uFFFDc"},
		{name: "5 MiB", prompt: strings.Repeat("long\n", 1<<20) + "end", text: "end"},
		{
			name: "model", prompt: claudetest.Prompt("x", claudetest.Step{Do: "args"}),
			args: map[string]any{"model": "opus", "effort": "low"}, text: `"--model","opus"`,
		},
		{
			name: "fork", prompt: claudetest.Prompt("x", claudetest.Step{Do: "args"}),
			args: map[string]any{"session": "3d81f0a0-3c5f-4c12-93ea-17cf026df78c"}, text: "--fork-session",
		},
		{name: "cwd", prompt: do("cwd", 0), text: h.project},
		{name: "401", prompt: apiError(401), code: fault.Unauthenticated, reason: fault.Rejected},
		{name: "429", prompt: apiError(429), code: fault.DownstreamFailure, reason: fault.RateLimited},
		{name: "500", prompt: apiError(500), code: fault.DownstreamFailure, reason: fault.Overloaded},
		{name: "529", prompt: apiError(529), code: fault.DownstreamFailure, reason: fault.Overloaded},
		{name: "404", prompt: apiError(404), code: fault.DownstreamFailure, reason: fault.Rejected},
		{name: "unreachable", prompt: apiError(-1), code: fault.DownstreamFailure, reason: fault.Unreachable},
		{name: "too long", prompt: do("too-long", 0), code: fault.DownstreamFailure, reason: fault.PromptTooLong},
		{
			name: "refusal", prompt: claudetest.Prompt("x", claudetest.Step{Text: new("I"), StopReason: "refusal"}),
			code: fault.DownstreamFailure, reason: fault.Refused,
		},
		{
			name: "empty", prompt: claudetest.Prompt("x", claudetest.Step{Text: new("")}),
			code: fault.DownstreamFailure, reason: fault.EmptyAnswer,
		},
		{
			name: "max turns", prompt: claudetest.Prompt("x", read), args: map[string]any{"max_turns": 2},
			code: fault.DownstreamFailure, reason: fault.MaxTurns, text: "Let me look.",
		},
		{
			name: "no such session", prompt: "x",
			args: map[string]any{"session": "00000000-3c5f-4c12-93ea-17cf026df78c"}, code: fault.InvalidInput,
		},
		{name: "garbage", prompt: do("garbage", 0), code: fault.DownstreamFailure, reason: fault.BadOutput},
		{name: "half an envelope", prompt: do("half", 0), code: fault.DownstreamFailure, reason: fault.BadOutput},
		{name: "silence", prompt: do("silent", 0), code: fault.DownstreamFailure, reason: fault.BadOutput},
		{name: "exit code", prompt: do("exit", 3), code: fault.DownstreamFailure, reason: fault.BadOutput},
		{name: "killed", prompt: do("die", 0), code: fault.ProcessFailure, reason: fault.Killed},
		{name: "100 MiB of lines", prompt: do("flood", 100), code: fault.DownstreamFailure, reason: fault.BadOutput},
		{
			name: "100 MiB in a line", prompt: do("flood-line", 100), code: fault.DownstreamFailure,
			reason: fault.BadOutput,
		},
		{
			name:   "best answer at the deadline",
			prompt: claudetest.Prompt("x", claudetest.Step{Text: new("on it"), Chunk: 1, ChunkDelay: 1}),
			args:   map[string]any{"timeout_s": 1}, text: "fake answer: ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := map[string]any{"prompt": tt.prompt}
			maps.Copy(args, tt.args)
			res, err := h.run(t.Context(), int64(i+1), args)
			if err != nil {
				t.Fatal(err)
			}
			text := res.Text
			if tt.code != "" {
				if res.Fault == nil || res.Fault.Fault.Code != tt.code || res.Fault.Reason() != tt.reason {
					t.Fatalf("fault %s, want %s, %s; text %q", res.Fault.JSON(), tt.code, tt.reason, res.Text)
				}
				text = res.FaultText
			} else if res.Fault != nil {
				t.Fatalf("fault %s", res.Fault.JSON())
			}
			if !strings.Contains(text, tt.text) {
				t.Errorf("no %q in %q", tt.text, text)
			}
		})
	}
}

// TestEnvironment checks that the program gets the variables that it needs and no others.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "")
	res, err := h.run(t.Context(), 1, map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "env"})})
	if err != nil || res.Fault != nil {
		t.Fatal(err, res.Fault)
	}
	for _, want := range []string{
		"HOME=",
		"ANTHROPIC_API_KEY=k",
		"CLAUDE_CODE_MAX_RETRIES=3",
		"HOLDLINE_WORKER=" + filepath.Join(h.dirs.Consults, jobdir.ID(h.session, 1)),
		"CLAUDE_CODE_TMPDIR=",
	} {
		if !strings.Contains(res.Text, want) {
			t.Errorf("no %s in %s", want, res.Text)
		}
	}
	if strings.Contains(res.Text, "SECRET") {
		t.Errorf("a secret in %s", res.Text)
	}
	// The prompt is in no file that other users can read, and the environment is in no
	// file.
	dir := filepath.Join(h.dirs.Consults, jobdir.ID(h.session, 1))
	spec, err := os.ReadFile(filepath.Join(dir, "spec.json"))
	if err != nil || strings.Contains(string(spec), "ANTHROPIC") || strings.Contains(string(spec), "@@FAKE") {
		t.Errorf("%v %s", err, spec)
	}
	if info, err := os.Stat(filepath.Join(dir, "spec.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("spec.json: %v %v", info, err)
	}
	if calls, err := os.ReadFile(filepath.Join(dir, "calls.jsonl")); err != nil ||
		!strings.Contains(string(calls), `"kind":"call"`) || strings.Contains(string(calls), "@@FAKE") {
		t.Errorf("%v %s", err, calls)
	}
}

// TestGone checks that a cancelled call ends the program and all that it started, whatever
// the program does.
func TestGone(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]claudetest.Step{
		"polite":                    {{Do: "grandchild"}, {Do: "hang"}},
		"deaf":                      {{Do: "grandchild"}, {Do: "deaf"}},
		"with a grandchild at once": {{Do: "grandchild"}, {Text: new("x"), Delay: 600}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, "")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			enough := errors.New("enough")
			var ended time.Time
			go func() {
				for h.text(1) == "" {
					time.Sleep(10 * time.Millisecond)
				}
				ended = time.Now()
				cancel(enough)
			}()
			if _, err := h.run(ctx, 1,
				map[string]any{"prompt": claudetest.Prompt("x", steps...)}); !errors.Is(err, enough) {
				t.Fatalf("err %v", err)
			}
			a, err := h.Wait(t.Context(), jobdir.ID(h.session, 1), nil)
			if err != nil || a.State != answer.Cancelled {
				t.Fatalf("%v %+v", err, a)
			}
			if took := time.Since(ended); took > patience {
				t.Errorf("took %s", took)
			}
			var pid int
			if _, err := fmt.Sscanf(a.Text, "grandchild %d", &pid); err != nil || pid <= 0 {
				t.Fatalf("text %q", a.Text)
			}
			gone(t, pid)
			if a.SessionID == "" {
				t.Error("the session is not known")
			}
		})
	}
}

// gone checks that a process has ended. A zombie counts as ended: a container may have no
// init that reaps it.
func gone(t *testing.T, pid int) {
	t.Helper()
	p, err := process.Lookup(pid)
	if err != nil {
		return
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		if i := strings.LastIndexByte(string(stat), ')'); i > 0 && strings.HasPrefix(string(stat[i:]), ") Z") {
			return
		}
	}
	t.Errorf("process %+v lives", p)
}

// text returns what job n has said so far.
func (h *house) text(n int64) string {
	a, err := h.Show(jobdir.ID(h.session, n))
	if err != nil {
		return ""
	}
	return a.Text
}

// TestGrandchild checks that a process that holds standard output open does not delay the
// answer.
func TestGrandchild(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "")
	begin := time.Now()
	res, err := h.run(t.Context(), 1,
		map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "grandchild"}, claudetest.Say("done"))})
	if err != nil || res.Fault != nil || !strings.HasPrefix(res.Text, "done") {
		t.Fatalf("%v %v %q", err, res.Fault, res.Text)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestWorkerKilled checks that the loss of the worker is a fault that has the text so far.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "")
	go func() {
		for h.text(1) == "" {
			time.Sleep(10 * time.Millisecond)
		}
		for _, w := range h.workers.Workers() {
			_ = syscall.Kill(w.PID, syscall.SIGKILL)
		}
	}()
	res, err := h.run(t.Context(), 1,
		map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "grandchild"},
			claudetest.Step{Do: "hang"})})
	if err != nil || res.Fault == nil || res.Fault.Fault.Code != fault.OutcomeUnknown ||
		!strings.Contains(res.FaultText, "grandchild") {
		t.Fatalf("%v %v %q", err, res.Fault, res.FaultText)
	}
	var pid int
	_, rest, _ := strings.Cut(res.FaultText, "grandchild ")
	if _, err := fmt.Sscan(rest, &pid); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
}

// TestNotThere checks the faults of a program that is missing or cannot be run.
func TestNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bin := range []string{filepath.Join(dir, "absent"), plain} {
		h := newHouse(t, bin)
		res, err := h.run(t.Context(), 1, map[string]any{"prompt": "x"})
		if code(res, err) != fault.SpawnFailure {
			t.Errorf("%s: %v", bin, err)
		}
	}
}
