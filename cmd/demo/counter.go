package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"holdline/protocol/control"
)

// serveCounter is an MCP server with one tool, count, which says how often this process
// was called. So its answers show whether two agents share a process, and that a new one
// begins at 1. It blocks until stdin is closed.
func serveCounter(ctx context.Context) error {
	calls := 0
	s := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "count", Description: "Counts."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			calls++ // the demo makes one call after the other
			text := fmt.Sprintf("call %d of server process %d", calls, os.Getpid())
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
	return s.Run(ctx, &mcp.StdioTransport{})
}

// showSharing lets two agents use one process of a server, kills that process, and shows
// that the daemon restarts it before an agent calls it again.
func (d *demo) showSharing(ctx context.Context, agents ...*agent) error {
	// countAll calls the tool once from each agent, so that the process they share counts
	// both.
	countAll := func() error {
		for _, a := range agents {
			text, err := a.call(ctx, "counter__count", map[string]any{})
			if err != nil {
				return err
			}
			d.printLine("agent %s calls counter__count: %s", a.name, text)
		}
		return nil
	}
	// counterPID returns the pid of the counter, or 0 while it does not run. It also records
	// the pid for the check at the end.
	counterPID := func(s *control.StatusAnswer) int {
		for _, w := range s.Workers {
			if w.Name == "counter" && w.State == "ready" {
				d.pids[w.PID], d.pids[w.ChildPID] = "worker", "counter"
				return w.ChildPID
			}
		}
		return 0
	}
	if err := countAll(); err != nil {
		return err
	}
	before, err := d.waitForStatus(ctx, func(s *control.StatusAnswer) bool { return counterPID(s) != 0 })
	if err != nil {
		return err
	}
	pid := counterPID(&before)
	d.printLine("$ kill -9 %d\nthe server that both agents share is killed", pid)
	begin := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	// Another pid is the sign of the restart.
	after, err := d.waitForStatus(ctx, func(s *control.StatusAnswer) bool {
		now := counterPID(s)
		return now != 0 && now != pid
	})
	if err != nil {
		return err
	}
	d.printLine("after %d ms the daemon has restarted it as process %d, without a call",
		time.Since(begin).Milliseconds(), counterPID(&after))
	if err := countAll(); err != nil {
		return err
	}
	return d.showCommand(ctx, "servers")
}
