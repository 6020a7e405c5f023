package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// counterMain is an MCP server with one tool, count, that says how often this
// process was called.
func counterMain(stdin io.Reader, stdout io.Writer) int {
	calls := 0
	for lines := bufio.NewScanner(stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ ProtocolVersion string }
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
		switch m.Method {
		case "initialize":
			answer["result"] = map[string]any{
				"protocolVersion": m.Params.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]string{"name": "counter", "version": "1"},
			}
		case "tools/list":
			answer["result"] = map[string]any{"tools": []any{map[string]any{
				"name": "count", "description": "Counts.", "inputSchema": map[string]string{"type": "object"},
			}}}
		case "tools/call":
			calls++
			text := fmt.Sprintf("call %d of server process %d", calls, os.Getpid())
			answer["result"] = map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}}
		default:
			answer["error"] = map[string]any{"code": -32601, "message": "not here"}
		}
		b, err := json.Marshal(answer)
		if err == nil {
			_, err = fmt.Fprintf(stdout, "%s\n", b)
		}
		if err != nil {
			return 1
		}
	}
	return 0
}

// host writes a configuration with the counter as a server that all share.
func (d *demo) host() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(d.dir, "bin", "counter")
	if err := os.Symlink(self, program); err != nil {
		return err
	}
	cfg, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{"counter": map[string]any{
		"command": program, "holdline": map[string]string{"scope": "shared"},
	}}}, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Join(d.dir, "config", "holdline")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), cfg, 0o600)
}

// share shows two agents that use one process of a server, and the server
// crashing and coming back.
func (d *demo) share(ctx context.Context, agents ...*agent) error {
	count := func(a *agent) error {
		text, err := a.call("counter__count", map[string]any{})
		if err == nil {
			d.say("agent %s calls counter__count: %s", a.name, text)
		}
		return err
	}
	for _, a := range agents {
		if err := count(a); err != nil {
			return err
		}
	}
	server := func(s *status) int {
		for _, w := range s.Workers {
			if w.Name == "counter" && w.State == "ready" {
				d.pids[w.PID], d.pids[w.ChildPID] = "worker", "counter"
				return w.ChildPID
			}
		}
		return 0
	}
	before, err := d.running(ctx, func(s *status) bool { return server(s) != 0 })
	if err != nil {
		return err
	}
	pid := server(&before)
	d.say("$ kill -KILL %d\nthe server that both agents share crashes", pid)
	begin := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	after, err := d.running(ctx, func(s *status) bool { now := server(s); return now != 0 && now != pid })
	if err != nil {
		return err
	}
	d.say("it is back after %d ms as process %d; nobody had to ask for it", time.Since(begin).Milliseconds(), server(&after))
	for _, a := range agents {
		if err := count(a); err != nil {
			return err
		}
	}
	return d.show(ctx, "servers")
}
