package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/cmd/holdline/codextest"
	"holdline/daemon/adapter/engine/claude/claudetest"
)

// codexClient runs Codex as an agent with holdline as its MCP server. Its model follows a
// script. Codex clears the environment of what it starts, so that the proxy knows nothing
// of the place but its home. A model that Codex does not know calls tools one by one; the
// default one ("") writes scripts.
func (p *place) codexClient(t *testing.T, model string, steps ...codextest.Step) (*client, *codextest.API) {
	t.Helper()
	// Codex does not wait for a server that is not required
	return p.codexClientOf(t, model, true, steps...)
}

// codexClientOf is codexClient with a choice whether the user's configuration requires
// holdline.
func (p *place) codexClientOf(t *testing.T, model string, required bool, steps ...codextest.Step) (*client,
	*codextest.API,
) {
	t.Helper()
	bin := realCodex(t)
	api := codexStandIn(t, steps...)
	command, err := json.Marshal(filepath.Join(programs, "holdline")) // valid as a TOML string, too
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{bin, "exec", "--json", "--sandbox", "read-only", "--skip-git-repo-check", "-C", p.project}
	if model != "" {
		argv = append(argv, "--model", model)
	}
	for _, setting := range append(api.Config(),
		"mcp_servers.holdline.command="+string(command), `mcp_servers.holdline.args=["mcp-stdio"]`,
		fmt.Sprintf("mcp_servers.holdline.required=%v", required),
		// A daemon that the proxy starts must not be found by other places.
		fmt.Sprintf("mcp_servers.holdline.env={XDG_RUNTIME_DIR=%q}", filepath.Join(p.dir, "run"))) {
		argv = append(argv, "-c", setting)
	}
	home := filepath.Join(p.dir, "home", ".codex")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	env := append(without(p.env, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), "STAND_IN_KEY=stand-in",
		"CODEX_HOME="+home)
	return p.client(t, env, append(argv, "--", "work")...), api
}

// readCodex parses the output of Codex: its last message, and the outcome of each call of
// an MCP tool.
func readCodex(t *testing.T, out string) (message string, calls []string) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var x struct {
			Type string
			Item struct {
				Type, Text, Server, Tool, Status string
				Error                            json.RawMessage
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatalf("%v in %q", err, lines.Text())
		}
		if x.Type != "item.completed" {
			continue
		}
		switch x.Item.Type {
		case "agent_message":
			message = x.Item.Text
		case "mcp_tool_call":
			calls = append(calls, x.Item.Server+"/"+x.Item.Tool+" "+x.Item.Status)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return message, calls
}

// codexOutputs parses the answer of a step that echoes the results of tools as the model
// got them.
func codexOutputs(t *testing.T, echo string, want int) []string {
	t.Helper()
	var list []codextest.Output
	if err := json.Unmarshal([]byte(echo), &list); err != nil || len(list) != want {
		t.Fatalf("%d outputs, want %d, %v: %q", len(list), want, err, echo)
	}
	var texts []string
	for _, o := range list {
		texts = append(texts, toolResult{Content: o.Content}.text())
	}
	return texts
}

// codexTool returns a step that calls a tool of holdline from Codex.
func codexTool(name string, args map[string]any) codextest.Step {
	return codextest.Step{Call: &codextest.Call{Namespace: "mcp__holdline", Name: name, Arguments: args}}
}

// codexCode returns a step that runs a script in Codex, whose newer models call tools from
// scripts.
func codexCode(script string) codextest.Step {
	return codextest.Step{Call: &codextest.Call{Name: "exec", Code: script}}
}

// TestE2ECodex has the real Codex call holdline's tools. No approval can be asked for, so
// it calls only tools that are marked as read-only.
func TestE2ECodex(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	inner := claudetest.Say("an opinion")
	inner.Delay = 2
	args := map[string]any{"prompt": claudetest.Prompt("what do you think?", inner)}
	coded, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, model string
		steps       []codextest.Step
	}{
		{"calls", "stand-in", []codextest.Step{
			codexTool("health_snapshot", nil),
			codexTool("health_snapshot", map[string]any{"render": "json", "detail": "full"}),
			codexTool("consult", args),
		}},
		{"code", "", []codextest.Step{
			codexCode("text(ALL_TOOLS.map(t => t.name).filter(n => n.includes('holdline')).join())"),
			codexCode("text(await tools.mcp__holdline__health_snapshot({}))"),
			codexCode("text(await tools.mcp__holdline__health_snapshot({render: 'json', detail: 'full'}))"),
			codexCode("text(await tools.mcp__holdline__consult(" + string(coded) + "))"),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			p.daemon()
			c, api := p.codexClient(t, tt.model, append(tt.steps, codextest.Step{Echo: true})...)
			if s := p.calling(t); s.Era != "legacy" || !strings.HasPrefix(s.Client, "codex") || s.Cwd != p.project {
				t.Errorf("session %+v", s)
			}
			message, calls := readCodex(t, c.wait(t))
			if want := []string{
				"holdline/health_snapshot completed", "holdline/health_snapshot completed",
				"holdline/consult completed",
			}; !slices.Equal(calls, want) {
				t.Errorf("calls %q, want %q", calls, want)
			}
			got := codexOutputs(t, message, len(tt.steps))
			offered := strings.Join(api.Requests()[0].Tools, ",")
			if tt.name == "code" {
				offered, got = got[0], got[1:]
			}
			for _, name := range ownToolNames() {
				if !strings.Contains(offered, "mcp__holdline/"+name) &&
					!strings.Contains(offered, "mcp__holdline__"+name) {
					t.Errorf("the model was offered %q, without %s", offered, name)
				}
			}
			for i, want := range []string{"Ready. ", "worker_alive", "an opinion"} {
				if !strings.Contains(got[i], want) {
					t.Errorf("the model read %q, want %q in it", got[i], want)
				}
			}
			p.faultless(t)
		})
	}
}
