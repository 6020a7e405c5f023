package consult

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/consult/answer"
)

// realAgent is an agent that is installed from npm, and runs against the stand-in API.
type realAgent struct {
	spec    string // of its package
	options func(dir, api string) acp.Options
}

var realAgents = map[string]realAgent{
	"claude-agent-acp": {
		spec: "@agentclientprotocol/claude-agent-acp@0.49.0", // later ones want a newer node
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
		spec: "opencode-ai@1.18.33",
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
// stand-in API: an answer, a session that goes on, and a deadline.
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
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			dir, err := claudetest.InstallPackages(ctx, filepath.Join(cache, "holdline-e2e"),
				strings.ReplaceAll(path.Base(kind.spec), "@", "-"), kind.spec)
			if err != nil {
				t.Fatal(err)
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
	begun := time.Now()
	first := h.ask(t, 1, map[string]any{"prompt": claudetest.Prompt("the first question", claudetest.Say("All is well."))})
	if first.Answer != "All is well." || first.EngineVersion == "" || first.EnforcedBy != engine.ByLandlock ||
		first.SessionID != first.ID {
		t.Errorf("first: %s", dump(first))
	}
	took := time.Since(begun)
	next := h.ask(t, 2, map[string]any{
		"prompt": claudetest.Prompt("go on", claudetest.Step{Echo: "prompts"}), "session": first.SessionID,
	})
	if !strings.Contains(next.Answer, "the first question") || next.SessionID != next.ID {
		t.Errorf("next: %s", dump(next))
	}
	// The time must be enough for an agent that starts slowly on a busy machine, and end while it speaks.
	limit := min(10+4*int(took.Seconds()), 40)
	late := h.ask(t, 3, map[string]any{"timeout_s": limit, "prompt": claudetest.Prompt("x",
		claudetest.Step{Text: new(strings.Repeat("so far ", 4000)), Chunk: 7, ChunkDelay: 0.1})})
	if late.Answer == "" || !late.Partial {
		t.Errorf("late: %s", dump(late))
	}
}
