package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/cmd/holdline/cli"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/pair"
	"holdline/protocol/control"
)

// Exit codes of every command, as contrib/doc/guide.md promises them to scripts.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNoDaemon = 3
	exitLost     = 4
)

// programs is a directory with the test binary under the names of the programs that it
// plays: holdline, a fake claude, and MCP servers.
var programs string

// waitLimit is long: a test that reaches it has found a hang.
const waitLimit = slowness * 90 * time.Second

// place is a user's home with directories of its own, and with the programs on PATH.
type place struct {
	t       testing.TB
	dir     string
	project string
	env     []string
	exe     string // program for commands; "" is the one in programs
}

// windows makes the windows of recovery this many times shorter, for the daemons and
// proxies that the place starts from now on.
func (p *place) windows(by int) *place {
	windows := fmt.Sprintf("HOLDLINE_TEST_WINDOWS=%d", by)
	p.env = append(p.env, windows)
	p.testVariable(windows)
	return p
}

// firstList sets how long calls and searches wait for a server that has never listed its tools. Without it they
// wait as long as tests do.
func (p *place) firstList(wait string) *place {
	p.env = append(p.env, "HOLDLINE_TEST_FIRST_LIST="+wait)
	p.testVariable("HOLDLINE_TEST_FIRST_LIST=" + wait)
	return p
}

// newPlace makes a home in a temporary directory. At the end of the test nothing of it may
// run.
func newPlace(tb testing.TB) *place {
	tb.Helper()
	dir, err := os.MkdirTemp("", "hl") // a short path, for the sockets
	if err != nil {
		tb.Fatal(err)
	}
	p := &place{t: tb, dir: dir, project: filepath.Join(dir, "p")}
	for _, d := range []string{p.programs(), p.dir + "/run", p.project + "/.git", p.project + "/sub"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	p.env = []string{
		"HOME=" + filepath.Join(dir, "home"), "XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"),
		"PATH=" + programs + ":" + os.Getenv("PATH"), "ANTHROPIC_API_KEY=stand-in", "LANG=C.UTF-8",
		"SHELL=" + filepath.Join(programs, loginShell),
		races(dir),
	}
	p.testVariable(races(dir))
	if v := os.Getenv("GOCOVERDIR"); v != "" {
		p.env = append(p.env, "GOCOVERDIR="+v)
	}
	tb.Cleanup(func() {
		p.nothingLeft()
		if log, err := os.ReadFile(filepath.Join(dir, "home/.local/state/holdline/logs/daemon.log")); err == nil &&
			tb.Failed() {
			tb.Logf("the log of the daemons that proxies started:\n%s", log)
		}
		_ = os.RemoveAll(dir)
	})
	return p
}

// races returns the value of GORACE for programs under the race detector: they report data
// races in files of dir, for [place.nothingLeft], because the output of a daemon is not
// read. Without it each of them would also take a second to end.
func races(dir string) string {
	return "GORACE=atexit_sleep_ms=0 log_path=" + filepath.Join(dir, "race")
}

// nothingLeft stops the place's daemon, and fails the test if a process of the place is
// left, or if one of them has reported a data race.
func (p *place) nothingLeft() {
	p.t.Helper()
	defer func() {
		reports, _ := filepath.Glob(filepath.Join(p.dir, "race.*"))
		for _, path := range reports {
			b, err := os.ReadFile(path)
			p.t.Errorf("%s: %v\n%s", filepath.Base(path), err, b)
		}
	}()
	if len(p.processes()) == 0 {
		return
	}
	p.look("stop", "--all")
	if left := p.left(waitLimit / 2); len(left) > 0 {
		p.t.Errorf("processes are left: %v", left)
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// stopForNow stops the daemon, and removes the mark of that: agents start the next one, as after a boot.
func (p *place) stopForNow(args ...string) {
	p.t.Helper()
	p.must(append([]string{"stop"}, args...)...)
	if err := os.Remove(filepath.Join(p.dir, "run/holdline/stopped")); err != nil {
		p.t.Error(err)
	}
}

// left waits until no process of the place is left, for limit at most, and returns those that
// are. It looks at all processes of the machine as seldom as it can.
func (p *place) left(limit time.Duration) map[int]string {
	deadline := time.Now().Add(limit)
	for {
		left := p.processes()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		for pid := range left {
			for alive(pid) && time.Now().Before(deadline) {
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
}

// untilEmpty waits until no process of the place is left.
func (p *place) untilEmpty(t *testing.T) {
	t.Helper()
	if left := p.left(waitLimit); len(left) > 0 {
		t.Fatalf("waited for the end of %v", left)
	}
}

// processes returns the processes that have the place's home in their environment, and its
// workers, which have no environment.
func (p *place) processes() map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if len(cmd) == 0 { // a process that has ended, or one of the kernel
			continue
		}
		env, err := os.ReadFile(filepath.Join(d, "environ"))
		if err != nil || !bytes.Contains(env, []byte("HOME="+filepath.Join(p.dir, "home")+"\x00")) &&
			!bytes.Contains(cmd, []byte("\x00"+p.dir+"/")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(d), &pid); err == nil {
			found[pid] = string(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// command returns a holdline command of this user, run in the project.
func (p *place) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 6*waitLimit)
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, cmp.Or(p.exe, filepath.Join(programs, "holdline")), args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.project, 5*time.Second
	return cmd
}

// program returns one of the programs in this place's environment.
func (p *place) program(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), filepath.Join(programs, name), args...)
	cmd.Env, cmd.Dir = p.env, p.project
	return cmd
}

// run runs a command to its end, and returns its output and exit code.
func (p *place) run(stdin string, args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	cmd := p.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		p.t.Fatalf("holdline %v: %v", args, err)
	}
	return out.String(), errs.String(), code
}

// look runs a command that only asks something of the daemon, as [place.run] does but inside
// this process. Most waits of the tests are such commands, asked again until the answer is as
// it should be, and each test stops its daemon: as processes they would cost more than
// everything that is tested.
func (p *place) look(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	if p.exe != "" { // it may be another version
		return p.run("", args...)
	}
	env := map[string]string{}
	for _, kv := range p.env {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	var out, errs bytes.Buffer
	root := cli.NewRoot(&cmdenv.Process{
		Args: args, Getenv: func(name string) string { return env[name] },
		Environ: func() []string { return p.env },
		Stdin:   strings.NewReader(""), Stdout: &out, Stderr: &errs,
	})
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitLimit)
	defer cancel()
	code = cmdenv.Report(&errs, root.ExecuteContext(ctx))
	return out.String(), errs.String(), code
}

// background starts a daemon, which is stopped at the end of the test. If the test failed,
// its log is shown. The returned channel is closed when it has ended.
func (p *place) background(cmd *exec.Cmd) <-chan struct{} {
	p.t.Helper()
	path := filepath.Join(p.dir, "daemon.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	p.t.Cleanup(func() {
		if p.t.Failed() {
			b, _ := os.ReadFile(path)
			p.t.Logf("the daemon's log:\n%s", b)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(waitLimit):
			_ = cmd.Process.Signal(syscall.SIGQUIT)
			p.t.Error("the daemon did not end")
		}
	})
	return done
}

// daemon starts the place's daemon in the foreground, and returns when it serves.
func (p *place) daemon(args ...string) *exec.Cmd {
	p.t.Helper()
	return p.daemonAt(filepath.Join(programs, "holdline"), args...)
}

// daemonAt does the same with the program at path.
func (p *place) daemonAt(path string, args ...string) *exec.Cmd {
	p.t.Helper()
	// The daemon lives as long as the test: the time limit of a command must not end it.
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), path, append([]string{"daemon"}, args...)...)
	cmd.Env, cmd.Dir = p.env, p.project
	done := p.background(cmd)
	deadline := time.Now().Add(waitLimit)
	for ended := false; ; {
		if _, _, code := p.look("status"); code == 0 {
			return cmd
		}
		if ended {
			b, _ := os.ReadFile(filepath.Join(p.dir, "daemon.log"))
			p.t.Fatalf("the daemon ended: %s", b)
		}
		select {
		case <-done: // it may have left to one that a proxy has started, which serves now
			ended = true
			continue
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the daemon does not answer")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// status returns the daemon's status. On a busy machine a daemon may not answer in time, or the next one
// may not listen yet: then status asks again.
func (p *place) status() control.StatusAnswer {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		out, errs, code := p.look("status", "--json")
		var s control.StatusAnswer
		err := json.Unmarshal([]byte(out), &s)
		if err == nil && code == 0 {
			return s
		}
		passes := strings.Contains(errs, "does not answer") || strings.Contains(errs, "Holdline is not running")
		if !passes || time.Now().After(deadline) {
			p.t.Fatalf("status: exit %d, %v\n%s%s", code, err, out, errs)
		}
	}
}

// until waits until ok is true for the status, and returns that status.
func (p *place) until(what string, ok func(control.StatusAnswer) bool) control.StatusAnswer {
	p.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		s := p.status()
		if ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waited for %s, and the status is %+v", what, s)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// agent is an MCP client on a proxy's stdio.
type agent struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	errs  *words
	next  int
}

func (p *place) agent(args ...string) *agent {
	p.t.Helper()
	// The proxy lives as long as the test; agentOf kills it then. Its program is what
	// `holdline mcp-stdio` executes.
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), filepath.Join(programs, pair.Small), args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.project, 5*time.Second
	return p.agentOf(cmd)
}

// up has a proxy start the place's daemon, for an agent that has no time to.
func (p *place) up() *place {
	p.t.Helper()
	a := p.agent().shake()
	_ = a.stdin.Close()
	if err := a.cmd.Wait(); err != nil {
		p.t.Fatalf("the first proxy: %v", err)
	}
	return p
}

func (p *place) agentOf(cmd *exec.Cmd) *agent {
	p.t.Helper()
	a, err := p.startAgent(cmd)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// startAgent starts a proxy, which is killed at the end of the test. It may be called from
// any goroutine.
func (p *place) startAgent(cmd *exec.Cmd) (*agent, error) {
	a := &agent{t: p.t, cmd: cmd, lines: make(chan string, 4096), errs: new(words)}
	cmd.Stderr = a.errs
	var err error
	if a.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the proxy's stdout
		defer close(a.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			a.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return a, nil
}

// words is what a proxy writes to stderr. It may be read at any time.
type words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (a *agent) send(line string) {
	a.t.Helper()
	if _, err := io.WriteString(a.stdin, line+"\n"); err != nil {
		a.t.Fatalf("sending: %v (proxy said %s)", err, a.errs)
	}
}

// read returns the next line of the proxy, and fails the test if none comes.
func (a *agent) read() string {
	a.t.Helper()
	select {
	case line, ok := <-a.lines:
		if !ok {
			a.t.Fatalf("the proxy's output ended; it said %s", a.errs)
		}
		return line
	case <-time.After(waitLimit):
		a.t.Fatal("no line came")
	}
	return ""
}

// answer has the members of an answer that tests read.
type answer struct {
	ID     any
	Method string
	Result struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
		Tools             []struct{ Name string }
		ProtocolVersion   string
	}
	Error *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
	raw string
}

// answers reports whether x is the answer to the request with that id.
func (x answer) answers(id int) bool {
	n, ok := x.ID.(float64)
	return ok && int(n) == id && x.Method == ""
}

func (x answer) text() string {
	if len(x.Result.Content) == 0 {
		return ""
	}
	return x.Result.Content[0].Text
}

// wait reads lines until the answer to id, and returns it.
func (a *agent) wait(id int) answer {
	a.t.Helper()
	for {
		line := a.read()
		var x answer
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			a.t.Fatalf("the proxy printed %q: %v", line, err)
		}
		x.raw = line
		if x.answers(id) {
			return x
		}
	}
}

// begin sends a request and returns its id.
func (a *agent) begin(method string, params any) int {
	a.t.Helper()
	a.next++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.next, "method": method, "params": params})
	if err != nil {
		a.t.Fatal(err)
	}
	a.send(string(b))
	return a.next
}

func (a *agent) ask(method string, params any) answer {
	a.t.Helper()
	return a.wait(a.begin(method, params))
}

// shake makes the handshake.
func (a *agent) shake() *agent {
	a.t.Helper()
	return a.shakeAs("test")
}

// shakeAs is shake of a client of that name.
func (a *agent) shakeAs(name string) *agent {
	a.t.Helper()
	x := a.ask("initialize",
		map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
			"clientInfo": map[string]string{"name": name, "version": "1"},
		})
	if x.Result.ProtocolVersion != "2025-11-25" {
		a.t.Fatalf("initialize = %s", x.raw)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

// call begins a tool call.
func (a *agent) call(tool string, args map[string]any) int {
	a.t.Helper()
	return a.begin("tools/call",
		map[string]any{"name": tool, "arguments": args, "_meta": map[string]any{"progressToken": a.next + 1}})
}

// leave closes the agent's side, and checks that the proxy exits with code 0, or one of these.
func (a *agent) leave(codes ...int) {
	a.t.Helper()
	_ = a.stdin.Close()
	for range a.lines {
	}
	if err := a.cmd.Wait(); err != nil && !slices.Contains(codes, a.cmd.ProcessState.ExitCode()) {
		a.t.Errorf("the proxy ended with %v: %s", err, a.errs)
	}
}

// alive reports whether a process runs. A zombie does not count.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}
