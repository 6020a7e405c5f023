package consult

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/consult/answer"
	"holdline/protocol/fault"
)

// realBin returns the path of the real Claude Code. It skips the test unless HOLDLINE_E2E
// asks for it.
func realBin(t *testing.T, version string) string {
	t.Helper()
	if os.Getenv("HOLDLINE_E2E") == "" {
		t.Skip("HOLDLINE_E2E=1 is not set: it installs Claude Code from npm")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := claudetest.Install(t.Context(), filepath.Join(cache, "holdline-e2e"), version)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestE2ERows runs the real Claude Code against everything that an API may do. Each case is
// a fault of its own, or an answer.
func TestE2ERows(t *testing.T) {
	t.Parallel()
	for _, version := range claudetest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			skipOlder(t, version)
			rows(t, realBin(t, version))
		})
	}
}

// rows makes a consult for each case, two at the same time, and checks its fault or answer.
func rows(t *testing.T, bin string) {
	t.Helper()
	h, _ := realHouse(t, bin)
	apiError := func(status int, message string) []claudetest.Step {
		return []claudetest.Step{{Status: status, Message: message}}
	}
	schema := map[string]any{
		"type": "object", "required": []string{"ok"}, "additionalProperties": false,
		"properties": map[string]any{"ok": map[string]any{"type": "boolean"}},
	}
	structured := func(input map[string]any) []claudetest.Step {
		return []claudetest.Step{
			{Tool: claudetest.Tool{Name: "StructuredOutput", Input: input}}, claudetest.Say("done"),
		}
	}
	dear := claudetest.Say("that was dear")
	dear.Usage = map[string]any{"input_tokens": 1_000_000, "output_tokens": 100_000}
	dear.Tool = claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": filepath.Join(h.project, "main.go")}}
	refusal := claudetest.Say("")
	refusal.StopReason = "refusal"
	var all sync.WaitGroup
	slots := make(chan struct{}, 2) // as many as the manager runs with ease
	for i, tt := range []struct {
		name   string
		steps  []claudetest.Step
		args   map[string]any
		code   fault.Code
		reason fault.Reason
		text   string
	}{
		{name: "400", steps: apiError(400, "no"), code: fault.DownstreamFailure, reason: fault.Rejected},
		{
			name:  "429 with advice",
			steps: []claudetest.Step{{Status: 429, Headers: map[string]string{"retry-after": "2"}}},
			code:  fault.DownstreamFailure, reason: fault.RateLimited,
		},
		{name: "403", steps: apiError(403, "no"), code: fault.Unauthenticated, reason: fault.Rejected},
		{name: "413", steps: apiError(413, "too large"), code: fault.DownstreamFailure, reason: fault.PromptTooLong},
		{name: "refusal", steps: []claudetest.Step{refusal}, code: fault.DownstreamFailure, reason: fault.Refused},
		{
			name: "error in the stream", steps: []claudetest.Step{{StreamError: "overloaded_error"}},
			code: fault.DownstreamFailure,
		},
		{
			name: "budget", steps: []claudetest.Step{dear, dear, dear}, args: map[string]any{"max_usd": 0.01},
			code: fault.BudgetExceeded, reason: fault.Budget,
		},
		{
			name: "within the budget", steps: []claudetest.Step{claudetest.Say("cheap")},
			args: map[string]any{"max_usd": 5}, text: "cheap",
		},
		{
			name: "schema", steps: structured(map[string]any{"ok": true}), args: map[string]any{"schema": schema},
			text: `"ok":true`,
		},
		{
			name:  "schema never met",
			steps: []claudetest.Step{{Tool: claudetest.Tool{Name: "StructuredOutput", Input: map[string]any{"ok": 7}}}},
			args:  map[string]any{"schema": schema}, code: fault.DownstreamFailure, reason: fault.BadOutput,
		},
		{
			name: "schema ignored", steps: []claudetest.Step{claudetest.Say("in words")},
			args: map[string]any{"schema": schema},
			// The text is the model's answer to the program's reminder.
			code: fault.DownstreamFailure, reason: fault.BadOutput,
			text: "What there is of an answer:\nstand-in answer",
		},
		{
			name:  "schema at the deadline",
			steps: []claudetest.Step{{Text: new(strings.Repeat("so far ", 300)), Chunk: 7, ChunkDelay: 0.1}},
			args:  map[string]any{"schema": map[string]any{"type": "object"}, "timeout_s": 8}, text: "{}\n\n[consult ",
		},
		{name: "a directory that is not there", args: map[string]any{"cwd": "nowhere"}, code: fault.InvalidInput},
		{
			name: "another directory", args: map[string]any{"add_dirs": []string{"sub"}, "cwd": "."},
			steps: []claudetest.Step{{Tool: claudetest.Tool{
				Name: "Read", Input: map[string]any{"file_path": filepath.Join(h.project, "main.go")},
			}}, {Echo: "tool_results"}},
			text: "4711",
		},
	} {
		if err := os.MkdirAll(filepath.Join(h.project, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			args := map[string]any{"prompt": "look around", "wait_s": 120}
			if tt.steps != nil {
				args["prompt"] = claudetest.Prompt("look around", tt.steps...)
			}
			maps.Copy(args, tt.args)
			res, err := h.run(t.Context(), int64(i+1), args)
			f := res.Fault
			if f == nil && err != nil {
				f = fault.From(err, fault.Host, operation)
			}
			text := res.Text
			if tt.code != "" {
				if text = res.FaultText; f == nil || f.Fault.Code != tt.code || f.Reason() != tt.reason {
					t.Errorf("%s: fault %s, want %s, %s; %q", tt.name, dump(f), tt.code, tt.reason, res.Text)
				}
			} else if f != nil {
				t.Errorf("%s: fault %s", tt.name, dump(f))
			}
			if tt.name == "429 with advice" && (f == nil || f.RetryAfterMS == nil || *f.RetryAfterMS < 2000) {
				t.Errorf("%s: %s", tt.name, dump(f))
			}
			if !strings.Contains(text, tt.text) {
				t.Errorf("%s: no %q in %q", tt.name, tt.text, text)
			}
		})
	}
	all.Wait()
	nothingIn(t, h.project, "main.go", "sub")

	// An API that cannot be reached.
	away, _ := realHouse(t, bin,
		func(o *claude.Options) { o.Env = append(o.Env, "ANTHROPIC_BASE_URL=http://127.0.0.1:1") })
	begin := time.Now()
	res, err := away.run(t.Context(), 1, map[string]any{"prompt": "x"})
	if got := code(res, err); got != fault.DownstreamFailure || res.Fault.Reason() != fault.Unreachable {
		t.Errorf("unreachable: %s", dump(res.Fault))
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("unreachable: took %s", took)
	}
}

// TestE2EParallel runs 8 consults at the same time in one home, or with HOLDLINE_LONG 24, each with
// the real Claude Code. All answers are right, and each has a session of its own.
func TestE2EParallel(t *testing.T) {
	many := 8
	if os.Getenv("HOLDLINE_LONG") != "" {
		many = 24
	}
	for _, version := range claudetest.Versions() {
		t.Run(version, func(t *testing.T) {
			skipOlder(t, version)
			h, api := realHouse(t, realBin(t, version))
			cfg := defaults()
			cfg.Consult.MaxConcurrent = many
			h.Configure(cfg)
			var all sync.WaitGroup
			var mu sync.Mutex
			sessions := map[string]bool{}
			for n := range many {
				all.Go(func() {
					want := fmt.Sprintf("answer number %d", n)
					res, err := h.run(t.Context(), int64(n+1),
						map[string]any{"prompt": claudetest.Prompt("x", claudetest.Say(want)), "wait_s": 120})
					v, _ := res.Value.(answer.View)
					if err != nil || res.Fault != nil || v.Answer != want || v.CostUSD == nil {
						t.Errorf("%d: %v %s %q", n, err, dump(res.Fault), res.Text)
					}
					mu.Lock()
					defer mu.Unlock()
					sessions[v.SessionID] = true
				})
			}
			all.Wait()
			if len(sessions) != many || len(api.Requests()) != many {
				t.Errorf("%d sessions, %d requests", len(sessions), len(api.Requests()))
			}
		})
	}
}
