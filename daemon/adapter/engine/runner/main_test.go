package runner_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp"
	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/adapter/engine/codex"
	"holdline/daemon/adapter/engine/runner"
	"holdline/daemon/spawn/execstep"
	"holdline/protocol/faultpoint"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// waitLimit is longer than any step of these tests takes.
const waitLimit = 60 * time.Second

// programs is a directory that has the test binary under the name of each program that it
// plays.
var programs string

// TestMain lets the test binary run as the engine process, the exec step and the consult
// program.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "claude":
		leave(claudetest.FakeMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	case filepath.Base(os.Args[0]) == "agent":
		leave(acptest.Main(os.Args[1:], os.Getenv("HOME"), os.Stdin, os.Stdout))
	case len(os.Args) > 1 && os.Args[1] == "exec":
		_ = execstep.Exec(os.Environ())
		leave(1)
	case os.Getenv(envEngine) != "":
		holdAtExit(os.Getenv(envHeld))
		if linger, err := time.ParseDuration(os.Getenv(envLinger)); err == nil {
			runner.SetLinger(linger)
		}
		name, id := os.Getenv(envEngine), ""
		if len(os.Args) > 3 {
			id = filepath.Base(os.Args[3])
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		runner.Serve(ctx, os.Stdin, os.Stdout, runner.Options{
			Name: name, Version: "test", Environ: os.Environ(), Worker: id,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
			Engine: func(environ, extra []string) engine.Engine {
				switch name {
				case "codex":
					return codex.New(codex.Options{Env: environ, Extra: extra})
				case acpFake:
					opt := acp.Options{Command: os.Getenv(envAgentBin), Env: environ, Extra: extra}
					if err := json.Unmarshal([]byte(os.Getenv(envAgent)), &opt.Agent); err != nil {
						panic(err)
					}
					return acp.New(opt)
				}
				return claude.New(claude.Options{Bin: os.Getenv("HOLDLINE_CLAUDE_BIN"), Env: environ, Extra: extra})
			},
		})
		leave(0)
	}
	os.Exit(func() int {
		var err error
		if programs, err = os.MkdirTemp("", "hlengine"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(programs)
		exe, err := os.Executable()
		if err != nil {
			panic(err)
		}
		for _, name := range []string{"claude", "agent"} {
			if err := os.Symlink(exe, filepath.Join(programs, name)); err != nil {
				panic(err)
			}
		}
		return m.Run()
	}())
}

// leave ends a process that plays a part. With the race detector, os.Exit would take a
// second.
func leave(code int) { syscall.Exit(code) }

// envLinger is how long the engine process reads output after its program's end.
const envLinger = "TEST_LINGER"

// envHeld names a file: the engine process makes it when its program has exited, and goes on
// when the file is removed.
const envHeld = "TEST_HELD"

// holdAtExit makes this process stop where its program has exited, while path exists.
func holdAtExit(path string) {
	if path == "" {
		return
	}
	faultpoint.Install(func(name string) {
		if name != "adapter.exited" || os.WriteFile(path, nil, 0o600) != nil {
			return
		}
		for _, err := os.Stat(path); err == nil; _, err = os.Stat(path) {
			time.Sleep(2 * time.Millisecond)
		}
	})
}

// envEngine makes the test binary run as the engine process of that name.
const envEngine = "TEST_ENGINE"

// command returns the command of an engine process. worker is the id of the worker that it
// belongs to, or "". The engine process must then look like that worker: daemons on this
// machine kill a process that carries the id of a worker that is not among its ancestors.
func command(t *testing.T, name, worker string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	if worker != "" {
		cmd.Args = append(cmd.Args, "worker", "--run", "/"+worker)
	}
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ANTHROPIC_API_KEY=k", "GORACE=atexit_sleep_ms=0",
		"HOLDLINE_CLAUDE_BIN=" + filepath.Join(programs, "claude"), envEngine + "=" + name,
	}, env...)
	cmd.Stderr = t.Output()
	return cmd
}

// host is the client of an engine process: it exchanges lines over its stdin and stdout.
type host struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan message // closed at the end of stdout
	gone  chan struct{}
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Progress int64  `json:"progress"`
		Message  string `json:"message"`
		Meta     map[string]engine.Progress
	} `json:"params"`
	Result struct {
		Outcome engine.Outcome `json:"structuredContent"`
		IsError bool           `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		ResultType string   `json:"resultType"`
		Versions   []string `json:"supportedVersions"`
		Tools      []struct {
			Name string `json:"name"`
		} `json:"tools"`
	} `json:"result"`
	Error *struct {
		Code int `json:"code"`
	} `json:"error"`
}

// newHost starts an engine process. Its stdout is read only if reading is true.
func newHost(t *testing.T, reading bool, name, worker string, env ...string) *host {
	t.Helper()
	h := &host{t: t, cmd: command(t, name, worker, env...), lines: make(chan message, 1000), gone: make(chan struct{})}
	in, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.in = in
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !reading {
			return
		}
		defer close(h.lines)
		sc := bufio.NewScanner(out)
		sc.Buffer(nil, 64<<20)
		for sc.Scan() {
			var m message
			if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
				t.Errorf("not JSON: %s", sc.Bytes())
			}
			h.lines <- m
		}
	}()
	go func() {
		<-done
		_, _ = h.cmd.Process.Wait()
		close(h.gone)
	}()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-h.gone
	})
	return h
}

// send writes a request, or a notification if id is 0.
func (h *host) send(id int, method string, params any) {
	h.t.Helper()
	m := map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
	if id != 0 {
		m["id"] = id
	}
	b, err := json.Marshal(m)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.in.Write(append(b, '\n')); err != nil {
		h.t.Fatal(err)
	}
}

// run calls the tool with progress.
func (h *host) run(id int, args map[string]any) {
	h.t.Helper()
	h.send(id, mcp.ToolsCall, map[string]any{"name": engine.Tool, "arguments": args, "_meta": map[string]any{
		mcp.MetaVersion: mcp.Modern, mcp.MetaProgress: "p",
	}})
}

// next returns the next answer, or the next message of the given method.
func (h *host) next(method string) message {
	h.t.Helper()
	timeout := time.After(waitLimit)
	for {
		select {
		case m, ok := <-h.lines:
			if !ok {
				h.t.Fatal("the engine process ended")
			}
			if m.Method == method {
				return m
			}
		case <-timeout:
			h.t.Fatal("no answer")
		}
	}
}

// wait waits until the process has ended, and returns the answers that it gave.
func (h *host) wait() []message {
	h.t.Helper()
	select {
	case <-h.gone:
	case <-time.After(waitLimit):
		h.t.Fatal("the engine process goes on")
	}
	var answers []message
	for {
		select {
		case m, ok := <-h.lines:
			if !ok {
				return answers
			}
			if m.Method == "" {
				answers = append(answers, m)
			}
		default:
			return answers
		}
	}
}

// await waits until ok returns true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// outcomeOf reads outcome.json in a job's directory.
func outcomeOf(t *testing.T, dir string) engine.Outcome {
	t.Helper()
	var out engine.Outcome
	b, err := os.ReadFile(filepath.Join(dir, engine.FileOutcome))
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// transcriptHas waits until the transcript has a line of this kind whose text contains
// part.
func transcriptHas(t *testing.T, dir, kind, part string) {
	t.Helper()
	await(t, kind, func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, engine.FileTranscript))
		for line := range bytes.Lines(b) {
			var e engine.Entry
			if json.Unmarshal(line, &e) == nil && e.Kind == kind && strings.Contains(e.Text, part) {
				return true
			}
		}
		return false
	})
}

// programsOf returns the processes that carry a worker's id, without the engine process
// itself.
func programsOf(t *testing.T, worker string, self int) []int {
	t.Helper()
	var pids []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("no /proc")
	}
	for _, e := range entries {
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !bytes.Contains(env, []byte(process.EnvWorker+"="+worker+"\x00")) {
			continue
		}
		var pid int
		if json.Unmarshal([]byte(e.Name()), &pid) == nil && pid != self {
			pids = append(pids, pid)
		}
	}
	return pids
}
