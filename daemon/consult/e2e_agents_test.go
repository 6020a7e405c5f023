package consult

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/consult/answer"
	"holdline/daemon/sandbox/writetest"
)

// realAgent is an agent that is installed from npm, and runs against the stand-in API.
type realAgent struct {
	packages []string
	shell    string // its tool that runs commands
	options  func(dir, api string) acp.Options
}

var realAgents = map[string]realAgent{
	"claude-agent-acp": {
		packages: []string{"@agentclientprotocol/claude-agent-acp@0.49.0"}, shell: "Bash", // later ones want a newer node
		options: func(dir, api string) acp.Options {
			node, _ := exec.LookPath("node")
			return acp.Options{
				Command: node, Agent: engine.Agent{
					Args: []string{filepath.Join(dir, "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js")},
					Mode: "acceptEdits",
				},
				Extra: []string{
					"ANTHROPIC_BASE_URL=" + api, "ANTHROPIC_API_KEY=stand-in", "DISABLE_TELEMETRY=1",
					"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
				},
			}
		},
	},
	"opencode": {
		packages: []string{"opencode-ai@1.18.33"}, shell: "bash",
		options: func(dir, api string) acp.Options {
			arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
			if arch == "" {
				arch = runtime.GOARCH
			}
			settings, err := json.Marshal(map[string]any{
				"provider": map[string]any{"fake": map[string]any{
					"npm": "@ai-sdk/anthropic", "options": map[string]any{"baseURL": api + "/v1", "apiKey": "stand-in"},
					"models": map[string]any{"m1": map[string]any{"name": "M1"}},
				}},
				"model": "fake/m1", "small_model": "fake/m1", "autoupdate": false, "share": "disabled",
			})
			if err != nil {
				panic(err)
			}
			return acp.Options{
				Command: filepath.Join(dir, "node_modules", "opencode-"+runtime.GOOS+"-"+arch, "bin", "opencode"),
				Agent:   engine.Agent{Args: []string{"acp"}},
				Extra:   []string{"OPENCODE_CONFIG_CONTENT=" + string(settings)},
			}
		},
	},
}

// TestE2EAgents runs real agents that speak the Agent Client Protocol in real workers against the
// stand-in API: an answer, a session that goes on, a deadline, and every way of a command to write.
func TestE2EAgents(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOLDLINE_E2E") == "" {
		t.Skip("HOLDLINE_E2E=1 is not set: it installs agents from npm")
	}
	needLandlock(t)
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range realAgents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(cache, "holdline-e2e", strings.NewReplacer("/", "-", "@", "-").Replace(kind.packages[0]))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			args := append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir}, kind.packages...)
			if out, err := exec.CommandContext(ctx, "npm", args...).CombinedOutput(); err != nil {
				t.Fatalf("npm install: %v: %s", err, out)
			}
			api, err := claudetest.StartAPI()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = api.Close() })
			h := newHouse(t, "", func(o *Options) {
				opt := kind.options(dir, api.URL())
				opt.Name = "real"
				opt.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + o.Home}
				o.Engines.(Fixed)["acp:real"] = acp.New(opt)
			})
			agentAnswers(t, h)
			agentWrites(t, h, kind.shell)
		})
	}
}

// ask runs a consult of the real agent, which must answer.
func (h *house) ask(t *testing.T, n int64, args map[string]any) answer.View {
	t.Helper()
	args["engine"], args["render"], args["detail"] = "acp:real", "json", "full"
	res, err := h.run(t.Context(), n, args)
	if err != nil || res.Fault != nil {
		t.Fatalf("err %v, %s, %s", err, dump(res.Fault), res.FaultText)
	}
	v, _ := res.Value.(answer.View)
	return v
}

// agentAnswers checks an answer, a consult that goes on from its session, and a deadline.
func agentAnswers(t *testing.T, h *house) {
	t.Helper()
	first := h.ask(t, 1, map[string]any{"prompt": claudetest.Prompt("the first question", claudetest.Say("All is well."))})
	if first.Answer != "All is well." || first.EngineVersion == "" || first.EnforcedBy != engine.ByLandlock ||
		first.SessionID != first.ID {
		t.Errorf("first: %s", dump(first))
	}
	next := h.ask(t, 2, map[string]any{
		"prompt": claudetest.Prompt("go on", claudetest.Step{Echo: "prompts"}), "session": first.SessionID,
	})
	if !strings.Contains(next.Answer, "the first question") || next.SessionID != next.ID {
		t.Errorf("next: %s", dump(next))
	}
	// The time must be enough for an agent that starts slowly on a busy machine.
	late := h.ask(t, 3, map[string]any{"timeout_s": 40, "prompt": claudetest.Prompt("x",
		claudetest.Step{Text: new(strings.Repeat("so far ", 4000)), Chunk: 7, ChunkDelay: 0.1})})
	if late.Answer == "" || !late.Partial {
		t.Errorf("late: %s", dump(late))
	}
}

// agentWrites lets the agent run commands that write, with settings of the user's and of the
// project's that allow all of them. Nothing that it may not write is another one afterwards.
func agentWrites(t *testing.T, h *house, shell string) {
	t.Helper()
	outside := t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(h.opt.Home, ".claude", "settings.json"):       `{"permissions":{"defaultMode":"bypassPermissions","allow":["Bash"]}}`,
		filepath.Join(h.project, ".claude", "settings.json"):        `{"permissions":{"defaultMode":"acceptEdits","allow":["Bash","Write","Edit"]},"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":"touch hooked"}]}]}}`,
		filepath.Join(h.project, "opencode.json"):                   `{"permission":{"*":"allow","bash":"allow","edit":"allow"}}`,
		filepath.Join(h.project, ".mcp.json"):                       `{"mcpServers":{"x":{"command":"touch","args":["served"]}}}`,
		filepath.Join(h.opt.Home, ".config/opencode/opencode.json"): `{"permission":"allow"}`,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before strings.Builder
	watched := []string{outside, h.project, h.opt.Home}
	for _, dir := range watched {
		if err := writetest.Prepare(dir); err != nil {
			t.Fatal(err)
		}
		list, err := writetest.Listing(dir)
		if err != nil {
			t.Fatal(err)
		}
		before.WriteString(list)
	}
	step := func(command string) claudetest.Step {
		return claudetest.Step{Tool: claudetest.Tool{
			Name: shell, Input: map[string]any{"command": command, "description": "try"},
		}}
	}
	steps := []claudetest.Step{step("echo control-$((6*7))")}
	for _, dir := range watched {
		for _, command := range []string{
			"echo x > %s/new", "echo x >> %s/kept", "sed -i s/as/AS/ %s/kept", "rm %s/other", "mv %s/kept %s/moved",
			"mkdir %s/d; rmdir %s/empty; ln -s / %s/l; mkfifo %s/p; cp /etc/hostname %s/copy",
			"truncate -s 0 %s/kept; dd if=/dev/zero of=%s/dd count=1; setsid sh -c 'touch %s/later'",
			"python3 -c 'open(\"%s/py\",\"w\")'; git init %s/repo; tar cf %s/t /etc/hostname",
		} {
			steps = append(steps, step(strings.ReplaceAll(command, "%s", dir)))
		}
	}
	write := map[string]any{
		"filePath": filepath.Join(h.project, "w"), "file_path": filepath.Join(h.project, "w"), "content": "x",
	}
	for _, name := range []string{"Write", "write"} {
		steps = append(steps, claudetest.Step{Tool: claudetest.Tool{Name: name, Input: write}})
	}
	steps = append(steps, claudetest.Step{Echo: "tool_results"})
	v := h.ask(t, 10, map[string]any{"prompt": claudetest.Prompt("x", steps...)})
	// An agent that asks first is refused; only one that ran its commands shows what the kernel refuses.
	if !strings.Contains(v.Answer, "control-42") && len(v.Denials) == 0 {
		t.Errorf("no command ran, and none was refused: %s", v.Answer)
	}
	t.Logf("%d denials, a command ran: %t", len(v.Denials), strings.Contains(v.Answer, "control-42"))
	var after strings.Builder
	for _, dir := range watched {
		list, err := writetest.Listing(dir)
		if err != nil {
			t.Fatal(err)
		}
		after.WriteString(list)
	}
	if after.String() != before.String() {
		t.Errorf("before:\n%s\nafter:\n%s\nanswer %s", before.String(), after.String(), v.Answer)
	}
}
