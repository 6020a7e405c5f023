package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// agent is an MCP client. Like every agent it starts the proxy and talks to it. It never learns
// that the daemon behind the proxy is another one.
type agent struct {
	name    string
	session *mcp.ClientSession
}

// startAgent connects an agent, which has its name as its identity. The proxy ends with the
// session, or with ctx.
func (d *demo) startAgent(ctx context.Context, name string) (*agent, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "demo-" + name, Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			d.printLine("agent %s sees progress: %s", name, r.Params.Message)
		},
	})
	cmd := d.command(ctx, "mcp-stdio", "--identity", name, "--no-autostart")
	cmd.Stderr = os.Stderr
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	d.pids[cmd.Process.Pid] = "proxy of " + name
	server := session.InitializeResult().ServerInfo
	d.printLine("agent %s is connected through proxy %d to %s %s", name, cmd.Process.Pid, server.Name, server.Version)
	return &agent{name, session}, nil
}

// call calls a tool and returns the first text of its answer. It asks for progress, which
// startAgent prints. An answer that the tool marks as an error is one.
func (a *agent) call(ctx context.Context, tool string, arguments any) (string, error) {
	// A consult takes some seconds, and a new daemon in between little more.
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
	defer cancel()
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	params.SetProgressToken(tool)
	result, err := a.session.CallTool(ctx, params)
	if err != nil {
		return "", fmt.Errorf("agent %s: %s: %w", a.name, tool, err)
	}
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok && !result.IsError {
			return text.Text, nil
		}
	}
	return "", fmt.Errorf("agent %s: %s failed: %+v", a.name, tool, result)
}

// prompts has the questions of the agents, by name.
var prompts = map[string]string{
	"alpha": "Is fib in main.go fast enough?",
	"beta":  "Name one risk in main.go.",
}

// scriptModel sets what the stand-in model answers to the prompts. It answers slowly, so that a
// reader can watch.
func scriptModel() {
	answer := func(prompt, first, last string) {
		look, say := claudetest.Say(first), claudetest.Say(last)
		look.Tool = claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}}
		look.Delay, say.Delay = 1, 4
		claudetest.Script(prompt, look, say)
	}
	answer(prompts["alpha"], "Let me look.", "No: it is exponential. Memoise it, or loop.")
	answer(prompts["beta"], "I will look at it.", "Deep recursion for a large n; bound n first.")
}

// tellStory shows the parts one after the other: two consults and a look at the health, the
// end of the daemon, the shared server, and the counters. It ends the sessions and the daemon.
// After an error they are left to [demo.show].
func (d *demo) tellStory(ctx context.Context) error {
	d.printLine("daemon %d listens at %s (private: this does not touch your own daemon)",
		d.daemon.Process.Pid, d.socket)
	agents := map[string]*agent{}
	// Two agents, each with an identity of its own.
	for _, name := range []string{"alpha", "beta"} {
		a, err := d.startAgent(ctx, name)
		if err != nil {
			return err
		}
		agents[name] = a
	}
	var consults errgroup.Group
	for name, a := range agents {
		consults.Go(func() error {
			answer, err := a.call(ctx, "consult", map[string]any{"prompt": prompts[name]})
			if err == nil {
				d.printLine("agent %s gets its answer, once:\n%s", name, answer)
			}
			return err
		})
	}
	// A third agent watches while the two consults run.
	watcher, err := d.startAgent(ctx, "watcher")
	if err == nil {
		err = d.showHealth(ctx, watcher)
	}
	if err == nil {
		err = d.killDaemon(ctx)
	}
	// The consults outlive the daemon that was killed: both answers come, through the same
	// proxies.
	if err = errors.Join(err, consults.Wait()); err != nil {
		return err
	}
	if err := d.showSharing(ctx, agents["alpha"], agents["beta"]); err != nil {
		return err
	}
	text, err := watcher.call(ctx, "telemetry_snapshot", map[string]any{})
	if err != nil {
		return err
	}
	d.printLine("telemetry_snapshot:\n%s", text)
	if err := d.showCommand(ctx, "consult", "list"); err != nil {
		return err
	}
	for _, a := range []*agent{agents["alpha"], agents["beta"], watcher} {
		if err := a.session.Close(); err != nil {
			return fmt.Errorf("proxy of %s: %w", a.name, err)
		}
	}
	return d.showCommand(ctx, "stop", "--all")
}

// showHealth shows that health_snapshot answers at once while consults run. It also records the
// processes of the workers, for the check at the end.
func (d *demo) showHealth(ctx context.Context, a *agent) error {
	s, err := d.waitForStatus(ctx, runsAll)
	if err != nil {
		return err
	}
	for _, w := range s.Workers {
		d.pids[w.PID], d.pids[w.ChildPID] = "worker", w.Name
	}
	begin := time.Now()
	text, err := a.call(ctx, "health_snapshot", map[string]any{})
	if err != nil {
		return err
	}
	d.printLine("health_snapshot answers after %.1f ms while both consults run: %s",
		float64(time.Since(begin).Microseconds())/1000, text)
	return d.showCommand(ctx, "status")
}

// killDaemon kills the daemon while the consults run, and starts another one. It returns
// an error unless the consults and the server continue in the same processes. The agents
// notice nothing: their proxies wait for the next daemon.
func (d *demo) killDaemon(ctx context.Context) error {
	// Remember the processes, to compare them with those of the next daemon.
	before, err := d.waitForStatus(ctx, runsAll)
	if err != nil {
		return err
	}
	old := d.daemon.Process.Pid
	select {
	case <-time.After(time.Second): // for the consults to be in the middle of their work
	case <-ctx.Done():
		return ctx.Err()
	}
	d.printLine("$ kill -9 %d\nthe daemon is killed while both consults run", old)
	begin := time.Now()
	if err := d.daemon.Process.Kill(); err != nil {
		return err
	}
	<-d.daemon.ended
	if err := d.startDaemon(ctx); err != nil {
		return err
	}
	// The same worker with the same child is the sign that nothing was started anew.
	after, err := d.waitForStatus(ctx, runsAll)
	if err != nil {
		return err
	}
	d.printLine("daemon %d is gone; after %d ms daemon %d has adopted all its workers",
		old, time.Since(begin).Milliseconds(), after.Daemon.PID)
	for _, w := range after.Workers {
		same := func(was control.Worker) bool {
			return was.ID == w.ID && was.PID == w.PID && was.ChildPID == w.ChildPID
		}
		if !slices.ContainsFunc(before.Workers, same) {
			return fmt.Errorf("the new daemon has worker %+v, which the old one did not have: %+v", w, before.Workers)
		}
		if w.Kind == "consult" {
			d.printLine("consult %s continues in the same claude process %d", w.ID, w.ChildPID)
		} else {
			d.printLine("server %s continues in the same process %d", w.Name, w.ChildPID)
		}
	}
	return nil
}

// checkNothingLeft removes the demo's files and returns an error if a process that was
// seen still runs. Call it when all processes were asked to end; it waits a moment for each.
func (d *demo) checkNothingLeft() error {
	var left []string
	for pid, what := range d.pids {
		if pid > 0 && isAlive(pid) {
			left = append(left, fmt.Sprintf("%s (%d)", what, pid))
		}
	}
	err := os.RemoveAll(d.dir)
	if len(left) > 0 {
		return errors.Join(err, fmt.Errorf("still running: %s", strings.Join(left, ", ")))
	}
	if err == nil {
		d.printLine("nothing is left: all %d processes have ended, %s is removed", len(d.pids), d.dir)
	}
	return err
}

// isAlive reports whether a process runs. It waits two seconds at most for one that is about
// to end: the demo is no parent of most processes, so it cannot wait for their ends.
func isAlive(pid int) bool {
	for range 100 {
		if _, err := process.Lookup(pid); err != nil {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}
