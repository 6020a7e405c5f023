package main

import (
	"bufio"
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
	"time"
)

// daemonProcess is the private daemon.
type daemonProcess struct {
	d    *demo
	cmd  *exec.Cmd
	done chan struct{}
	path string // of its log
}

// startDaemon starts a daemon, as a service manager or a proxy would, and
// waits until it serves.
func (d *demo) startDaemon(ctx context.Context) error {
	p := &daemonProcess{d: d, done: make(chan struct{}), path: filepath.Join(d.dir, "daemon.log")}
	log, err := os.OpenFile(p.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = d.command(context.WithoutCancel(ctx), "daemon")
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	d.daemon = p
	d.pids[p.cmd.Process.Pid] = "daemon"
	go func() { // ends with the process; stop waits for it
		_ = p.cmd.Wait()
		close(p.done)
	}()
	for {
		if s, err := d.status(ctx); err == nil && s.Daemon.PID == p.cmd.Process.Pid {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("the daemon did not start:\n%s", p.log())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// status is what the demo needs of `holdline status --json`.
type status struct {
	Daemon  struct{ PID int }
	Workers []worker
}

// worker is a worker in it.
type worker struct {
	ID, Name, Kind, State string

	PID      int
	ChildPID int `json:"child_pid"`
	Attached bool
}

// both tells whether both consults run, the server that is shared is up, and
// the daemon has their workers.
func (s *status) both() bool {
	consults, servers := 0, 0
	for _, w := range s.Workers {
		switch {
		case !w.Attached || w.ChildPID == 0:
		case w.Kind == "consult":
			consults++
		case w.State == "ready":
			servers++
		}
	}
	return consults == 2 && servers == 1
}

func (d *demo) status(ctx context.Context) (status, error) {
	var s status
	out, err := d.command(ctx, "status", "--json").Output()
	if err != nil {
		return s, fmt.Errorf("holdline status: %w", err)
	}
	return s, json.Unmarshal(out, &s)
}

func (p *daemonProcess) log() string {
	b, err := os.ReadFile(p.path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// stop ends the daemon if it still runs.
func (p *daemonProcess) stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("the daemon did not end in 20 s and was killed")
	}
}

// agent is one MCP client: it starts the proxy, as every agent does, and
// speaks JSON-RPC with it.
type agent struct {
	d     *demo
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	id    int
}

func (d *demo) agent(ctx context.Context, name string) (*agent, error) {
	a := &agent{d: d, name: name, lines: make(chan string, 64)}
	a.cmd = d.command(ctx, "mcp-stdio", "--identity", name, "--no-autostart")
	a.cmd.Stderr = os.Stderr
	var err error
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	d.pids[a.cmd.Process.Pid] = "proxy of " + name
	go func() { // ends when the proxy closes its output
		defer close(a.lines)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			a.lines <- lines.Text()
		}
	}()
	answer, err := a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "demo-" + name, "version": "1"},
	})
	if err != nil {
		return nil, err
	}
	var hello struct {
		ServerInfo struct{ Name, Version string }
	}
	if err := json.Unmarshal(answer, &hello); err != nil {
		return nil, err
	}
	fmt.Fprintln(a.stdin, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	d.say("agent %s is connected through proxy %d to %s %s", name, a.cmd.Process.Pid, hello.ServerInfo.Name, hello.ServerInfo.Version)
	return a, nil
}

// ask sends a request and waits for its answer, printing progress on the way.
func (a *agent) ask(method string, params any) (json.RawMessage, error) {
	a.id++
	raw, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(a.stdin, "%s\n", raw); err != nil {
		return nil, err
	}
	limit := time.After(50 * time.Second)
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				return nil, fmt.Errorf("agent %s: the proxy ended", a.name)
			}
			var m struct {
				ID     int
				Method string
				Params struct{ Message string }
				Result json.RawMessage
				Error  *struct{ Message string }
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				return nil, err
			}
			switch {
			case m.Method == "notifications/progress":
				a.d.say("agent %s sees progress: %s", a.name, m.Params.Message)
			case m.ID == a.id && m.Error != nil:
				return nil, fmt.Errorf("agent %s: %s: %s", a.name, method, m.Error.Message)
			case m.ID == a.id:
				return m.Result, nil
			}
		case <-limit:
			return nil, fmt.Errorf("agent %s: %s: no answer in 50 s", a.name, method)
		}
	}
}

// call calls a tool and returns its text.
func (a *agent) call(tool string, arguments any) (string, error) {
	raw, err := a.ask("tools/call", map[string]any{
		"name": tool, "arguments": arguments, "_meta": map[string]any{"progressToken": tool},
	})
	if err != nil {
		return "", err
	}
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return "", err
	}
	if len(result.Content) == 0 || result.IsError {
		return "", fmt.Errorf("agent %s: %s failed: %s", a.name, tool, raw)
	}
	return result.Content[0].Text, nil
}

// leave closes the agent's side, as an agent that is done does.
func (a *agent) leave() error {
	_ = a.stdin.Close()
	if err := a.cmd.Wait(); err != nil {
		return fmt.Errorf("proxy of %s: %w", a.name, err)
	}
	return nil
}

// prompts that the stand-in model answers slowly enough to be watched.
var prompts = map[string]string{
	"alpha": `Is fib in main.go fast enough? @@FAKE [{"text":"Let me look.","tool":"Read","input":{"file_path":"main.go"},"delay":1},{"text":"No: it is exponential. Memoise it, or loop.","delay":4}]`,
	"beta":  `Name one risk in main.go. @@FAKE [{"text":"I will look at it.","tool":"Read","input":{"file_path":"main.go"},"delay":1},{"text":"Deep recursion for a large n; bound n first.","delay":4}]`,
}

func (d *demo) story(ctx context.Context) error {
	d.say("daemon %d listens at %s (private: your own daemon, if any, is not touched)", d.daemon.cmd.Process.Pid, d.socket)
	agents := map[string]*agent{}
	for _, name := range []string{"alpha", "beta"} {
		a, err := d.agent(ctx, name)
		if err != nil {
			return err
		}
		agents[name] = a
	}
	var consults sync.WaitGroup
	errs := make(chan error, len(agents))
	for name, a := range agents {
		prompt := prompts[name]
		if d.real {
			prompt, _, _ = strings.Cut(prompt, "@@FAKE")
		}
		consults.Go(func() {
			answer, err := a.call("consult", map[string]any{"prompt": prompt})
			if err == nil {
				d.say("agent %s has its answer, once:\n%s", name, answer)
			}
			errs <- err
		})
	}
	// A third agent looks on while the two consults run.
	watcher, err := d.agent(ctx, "watcher")
	if err == nil {
		err = d.watch(ctx, watcher)
	}
	if err == nil {
		err = d.kill(ctx)
	}
	consults.Wait()
	for range agents {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return err
	}
	if err := d.share(ctx, agents["alpha"], agents["beta"]); err != nil {
		return err
	}
	text, err := watcher.call("telemetry_snapshot", map[string]any{})
	if err != nil {
		return err
	}
	d.say("telemetry_snapshot:\n%s", text)
	if err := d.show(ctx, "consults"); err != nil {
		return err
	}
	for _, a := range []*agent{agents["alpha"], agents["beta"], watcher} {
		if err := a.leave(); err != nil {
			return err
		}
	}
	return d.show(ctx, "stop", "--all")
}

// watch shows that health answers at once while consults run, and who runs.
func (d *demo) watch(ctx context.Context, a *agent) error {
	s, err := d.running(ctx, (*status).both)
	if err != nil {
		return err
	}
	for _, w := range s.Workers {
		d.pids[w.PID], d.pids[w.ChildPID] = "worker", w.Name
	}
	begin := time.Now()
	text, err := a.call("health_snapshot", map[string]any{})
	if err != nil {
		return err
	}
	d.say("health_snapshot, asked while both consults run, after %.1f ms: %s", float64(time.Since(begin).Microseconds())/1000, text)
	return d.show(ctx, "status")
}

// running waits for a status.
func (d *demo) running(ctx context.Context, ok func(*status) bool) (status, error) {
	for {
		s, err := d.status(ctx)
		if err != nil || ok(&s) {
			return s, err
		}
		if time.Since(d.begin) > 40*time.Second {
			return s, fmt.Errorf("waited in vain; what runs is %+v", s)
		}
	}
}

// kill kills the daemon in the middle of the consults and starts another one:
// their programs go on, and the agents notice nothing.
func (d *demo) kill(ctx context.Context) error {
	before, err := d.running(ctx, (*status).both)
	if err != nil {
		return err
	}
	old := d.daemon.cmd.Process.Pid
	select {
	case <-time.After(time.Second): // they are at it
	case <-ctx.Done():
		return ctx.Err()
	}
	d.say("$ kill -KILL %d\nthe daemon dies in the middle of both consults", old)
	begin := time.Now()
	if err := d.daemon.cmd.Process.Kill(); err != nil {
		return err
	}
	<-d.daemon.done
	if err := d.startDaemon(ctx); err != nil {
		return err
	}
	after, err := d.running(ctx, (*status).both)
	if err != nil {
		return err
	}
	d.say("daemon %d is gone, daemon %d has taken its place and all workers after %d ms", old, after.Daemon.PID, time.Since(begin).Milliseconds())
	for _, w := range after.Workers {
		same := func(was worker) bool { return was.ID == w.ID && was.PID == w.PID && was.ChildPID == w.ChildPID }
		if !slices.ContainsFunc(before.Workers, same) {
			return fmt.Errorf("a worker is %+v, they were %+v", w, before.Workers)
		}
		if w.Kind == "consult" {
			d.say("consult %s goes on: claude is process %d, as before", w.ID, w.ChildPID)
		} else {
			d.say("server %s goes on: it is process %d, as before", w.Name, w.ChildPID)
		}
	}
	return nil
}

// leaveNothing removes the demo's files and makes sure that no process of it
// is left.
func (d *demo) leaveNothing() error {
	var left []string
	for pid, what := range d.pids {
		if pid > 0 && alive(pid) {
			left = append(left, fmt.Sprintf("%s (%d)", what, pid))
		}
	}
	err := os.RemoveAll(d.dir)
	if len(left) > 0 {
		return errors.Join(err, fmt.Errorf("still running: %s", strings.Join(left, ", ")))
	}
	if err == nil {
		d.say("nothing is left: %d processes ended, %s removed", len(d.pids), d.dir)
	}
	return err
}

// alive tells whether pid is a process that still runs; it is given a moment
// to be reaped by whoever inherited it.
func alive(pid int) bool {
	for range 100 {
		if syscall.Kill(pid, 0) != nil {
			return false
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			if _, rest, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(rest, "Z") {
				return false
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}
