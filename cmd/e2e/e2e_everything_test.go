package e2e

import (
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdline/cmd/holdline/codextest"
	"holdline/daemon/adapter/engine/claude/claudetest"
)

// everythingBySession starts server-everything as a server by address, which keeps sessions, and returns that.
func (p *place) everythingBySession(t *testing.T) (address string) {
	t.Helper()
	at := reserve(t)
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", everythingSteps.program(t), "streamableHttp")
	cmd.Env, cmd.Dir = append(slices.Clone(p.env), "PORT="+port), p.project
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
	})
	waitFor(t, "the server by address listens", func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return "http://" + at + "/mcp"
}

// TestE2ERealClientsWithRealServers has the real Claude Code, in the era that it chooses and in the legacy one, and
// the real Codex call the real server-everything, by stdio and by address with sessions.
func TestE2ERealClientsWithRealServers(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	for _, client := range []string{"claude", "claude legacy", "codex"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if client != "codex" {
				p.standIn(t)
			}
			p.configure(map[string]any{
				"pipe": everythingSteps.entry(t), "web": map[string]any{"type": "http", "url": p.everythingBySession(t)},
			}).login()
			p.daemon()
			var got []string
			switch client {
			case "codex":
				got = p.codexEverything(t)
			case "claude legacy":
				got = p.claudeEverything(t, "MCP_PROTOCOL_NEGOTIATION=legacy")
			default:
				got = p.claudeEverything(t)
			}
			for i, want := range []string{"Echo: by pipe", "The sum of 2 and 3 is 5", "Echo: by web", "The sum of 2 and 3 is 5"} {
				if !strings.Contains(got[i], want) {
					t.Errorf("call %d: the model read %q, want %q", i, got[i], want)
				}
			}
			p.faultless(t)
			for _, name := range []string{"pipe", "web"} {
				if s := p.server(name); s.LastFault != nil || s.Restarts != 0 || s.Unreachable != "" {
					t.Errorf("server %s: %+v", name, s)
				}
			}
		})
	}
}

// claudeEverything has the real Claude Code make the calls, and returns what the model read.
func (p *place) claudeEverything(t *testing.T, env ...string) []string {
	t.Helper()
	var steps []claudetest.Step
	for _, server := range []string{"pipe", "web"} {
		for _, c := range []claudetest.Step{
			holdlineTool(server+"__echo", map[string]any{"message": "by " + server}),
			holdlineTool(server+"__get-sum", map[string]any{"a": 2, "b": 3}),
		} {
			find := map[string]any{"query": "select:" + c.Tool.Name, "max_results": 3}
			steps = append(steps, claudetest.Step{Tool: claudetest.Tool{Name: "ToolSearch", Input: find}}, c)
		}
	}
	steps = append(steps, claudetest.Step{Echo: "tool_results"})
	bin := realClaude(t, claudetest.Versions()[0])
	run := readClaude(t, p.claudeClient(t, bin, "default", claudetest.Prompt("work", steps...), env...).wait(t))
	var got []string
	for i, r := range toolResults(t, run.result, len(steps)-1) {
		if i%2 == 1 {
			got = append(got, r.text())
		}
	}
	return got
}

// codexEverything has the real Codex make the calls, and returns what the model read.
func (p *place) codexEverything(t *testing.T) []string {
	t.Helper()
	var steps []codextest.Step
	for _, server := range []string{"pipe", "web"} {
		steps = append(steps, codexTool(server+"__echo", map[string]any{"message": "by " + server}),
			codexTool(server+"__get_sum", map[string]any{"a": 2, "b": 3})) // its models know no - in names
	}
	c, _ := p.codexClient(t, "stand-in", append(steps, codextest.Step{Echo: true})...)
	message, calls := readCodex(t, c.wait(t))
	for _, call := range calls {
		if !strings.HasSuffix(call, " completed") {
			t.Errorf("calls %q", calls)
		}
	}
	return codexOutputs(t, message, len(steps))
}
