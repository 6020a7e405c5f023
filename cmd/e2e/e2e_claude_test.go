package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
)

// claudeArgs returns the command line of Claude Code in print mode, as an agent with
// holdline as its MCP server, without the prompt. tools are the built-in tools that it may
// use, in the form of its option --tools.
func (p *place) claudeArgs(t *testing.T, bin, tools string) []string {
	t.Helper()
	conf := mustJSON(t, map[string]any{"mcpServers": map[string]any{"holdline": map[string]any{
		"command": filepath.Join(programs, "holdline"), "args": []string{"mcp-stdio"},
	}}})
	return []string{
		bin, "-p", "--output-format", "stream-json", "--verbose", "--debug-file", filepath.Join(p.dir, "client.log"),
		"--strict-mcp-config", "--mcp-config", conf, "--tools", tools,
		"--allowedTools", "mcp__holdline", "--permission-mode", "dontAsk",
	}
}

// claudeEnv returns Claude Code's environment, made from the place's.
func claudeEnv(place []string, more ...string) []string {
	return slices.Concat(place, []string{"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_MAX_RETRIES=1"}, more)
}

// claudeClient runs Claude Code with one prompt.
func (p *place) claudeClient(t *testing.T, bin, tools, prompt string, env ...string) *client {
	t.Helper()
	return p.client(t, claudeEnv(p.env, env...), append(p.claudeArgs(t, bin, tools), "--", prompt)...)
}

// claudeRun is what Claude Code printed as stream-json.
type claudeRun struct {
	servers map[string]string // name to status
	tools   []string          // that it knows, whether or not the model was offered them
	result  string
}

// readClaude parses the stream-json output of a run.
func readClaude(t *testing.T, out string) claudeRun {
	t.Helper()
	run := claudeRun{servers: map[string]string{}}
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var x struct {
			Type, Subtype, Result string
			IsError               bool `json:"is_error"`
			Tools                 []string
			Servers               []struct{ Name, Status string } `json:"mcp_servers"`
		}
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatalf("%v in %q", err, lines.Text())
		}
		switch {
		case x.Type == "system" && x.Subtype == "init":
			run.tools = x.Tools
			for _, s := range x.Servers {
				run.servers[s.Name] = s.Status
			}
		case x.Type == "result":
			if x.IsError {
				t.Fatalf("result %s", lines.Text())
			}
			run.result = x.Result
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return run
}

// toolResult is the result that the model got for a call.
type toolResult struct {
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error"`
}

// text returns the text that the model read.
func (r toolResult) text() string {
	var s string
	if json.Unmarshal(r.Content, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(r.Content, &parts)
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// toolResults parses the answer of a step that echoes the results of tools.
func toolResults(t *testing.T, echo string, want int) []toolResult {
	t.Helper()
	var list []toolResult
	if err := json.Unmarshal([]byte(echo), &list); err != nil || len(list) != want {
		t.Fatalf("%d results, want %d, %v: %q", len(list), want, err, echo)
	}
	for i, r := range list {
		if r.IsError {
			t.Errorf("result %d is an error: %s", i, r.text())
		}
	}
	return list
}

// holdlineTool returns a step that calls a tool of holdline from Claude Code.
func holdlineTool(name string, args map[string]any) claudetest.Step {
	return claudetest.Step{Tool: claudetest.Tool{Name: "mcp__holdline__" + name, Input: args}}
}

// TestE2EClaude has the real Claude Code call holdline's tools, in the era that it chooses
// itself and in the legacy era.
func TestE2EClaude(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	for _, tt := range []struct {
		name, version, era string
		env                []string
		begins             string // the method of its first request
		search             bool   // most tools are not offered until the model searches for them
	}{
		{name: "modern", version: "2.1.329", era: "modern", begins: "server/discover", search: true},
		{
			name: "legacy", version: "2.1.329", era: "legacy", begins: "initialize", search: true,
			env: []string{"MCP_PROTOCOL_NEGOTIATION=legacy"},
		},
		{name: "old", version: "2.1.197", era: "legacy", begins: "initialize"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bin := realClaude(t, tt.version)
			p := newPlace(t)
			api := p.standIn(t)
			p.daemon()
			inner := claudetest.Say("an opinion")
			// Progress comes each second. Claude Code calls its token unknown if the answer
			// comes at the same time: it looks at notifications later than at answers.
			inner.Delay = 1.5
			steps := []claudetest.Step{
				holdlineTool("health_snapshot", map[string]any{}),
				holdlineTool("health_snapshot", map[string]any{"render": "json", "detail": "full"}),
				holdlineTool("consult", map[string]any{"prompt": claudetest.Prompt("what do you think?", inner)}),
				{Echo: "tool_results"},
			}
			if tt.search {
				find := claudetest.Tool{
					Name:  "ToolSearch",
					Input: map[string]any{"query": "select:mcp__holdline__health_snapshot", "max_results": 3},
				}
				steps = slices.Insert(steps, 0, claudetest.Step{Tool: find})
			}
			c := p.claudeClient(t, bin, "default", claudetest.Prompt("work", steps...), tt.env...)
			if s := p.calling(t); s.Era != tt.era || !strings.HasPrefix(s.Client, "claude-code ") ||
				s.Cwd != p.project {
				t.Errorf("session %+v, want era %s", s, tt.era)
			}
			run := readClaude(t, c.wait(t))
			if got := run.servers["holdline"]; got != "connected" {
				t.Errorf("the server is %q, want connected", got)
			}
			for _, name := range ownToolNames() {
				if !slices.Contains(run.tools, "mcp__holdline__"+name) {
					t.Errorf("no %s among the client's tools %q", name, run.tools)
				}
			}
			if first := api.Requests()[0].Tools; !slices.Contains(first, "mcp__holdline__consult") ||
				tt.search == slices.Contains(first, "mcp__holdline__health_snapshot") {
				t.Errorf("the model was offered %q at first", first)
			}
			if second := api.Requests()[1].Tools; !slices.Contains(second, "mcp__holdline__health_snapshot") {
				t.Errorf("the model was offered %q, without health_snapshot", second)
			}
			got := toolResults(t, run.result, len(steps)-1)
			got = got[len(got)-3:]
			if text := got[0].text(); !strings.HasPrefix(text, "Ready. ") {
				t.Errorf("health_snapshot = %q", text)
			}
			if text := got[1].text(); !json.Valid([]byte(text)) || !strings.Contains(text, `"worker_alive":`) {
				t.Errorf("health_snapshot as JSON = %q", text)
			}
			if text := got[2].text(); !strings.HasPrefix(text, "an opinion") {
				t.Errorf("consult = %q", text)
			}
			methods := p.faultless(t)
			for _, m := range []string{"server/discover", "initialize"} {
				if slices.Contains(methods, m) != (m == tt.begins) {
					t.Errorf("methods %q, want %q alone of the handshakes", methods, tt.begins)
				}
			}
			p.clientContent(t)
		})
	}
}

// clientContent checks that Claude Code's own log has no complaint about holdline: no
// error, no refused subscription, no server that had to be killed.
func (p *place) clientContent(t *testing.T) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(p.dir, "client.log"))
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, `MCP server "holdline"`) {
			continue
		}
		for _, bad := range []string{"[ERROR]", "[WARN]", "rror:", "failed", "retry", "SIGTERM", "SIGKILL"} {
			if strings.Contains(line, bad) {
				t.Errorf("the client's log: %s", line)
				break
			}
		}
		// On a busy machine Claude Code leaves before it has seen the exit, and says how the connection ended.
		ended = ended || strings.Contains(line, "exited cleanly") || strings.Contains(line, "(cleanly)")
	}
	if !ended {
		t.Errorf("the proxy did not end cleanly:\n%s", clip(string(log)))
	}
}
