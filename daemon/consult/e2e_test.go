package consult

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/protocol/fault"
)

// TestE2EClaude runs the real Claude Code in real workers against the stand-in API: no key,
// no cost. It runs only if HOLDLINE_E2E is 1; the programs are installed from npm into a
// cache.
func TestE2EClaude(t *testing.T) {
	t.Parallel()
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
	for _, version := range claudetest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			bin, err := claudetest.Install(ctx, filepath.Join(cache, "holdline-e2e"), version)
			if err != nil {
				t.Fatal(err)
			}
			t.Run("endings", func(t *testing.T) {
				skipOlder(t, version)
				endings(t, bin)
			})
			t.Run("hostile", func(t *testing.T) { hostile(t, bin) })
			t.Run("resume", func(t *testing.T) { resume(t, bin) })
			t.Run("said", func(t *testing.T) { said(t, bin) })
			t.Run("cancel", func(t *testing.T) { cancelled(t, bin) })
			t.Run("phases", func(t *testing.T) { phases(t, bin) })
			t.Run("worktree", func(t *testing.T) { worktree(t, bin) })
			t.Run("refreshed login", func(t *testing.T) { refreshed(t, bin) })
			t.Run("logged out", func(t *testing.T) { loggedOut(t, bin) })
			t.Run("own login", func(t *testing.T) { ownLogin(t, bin) })
		})
	}
}

// skipOlder skips what takes an older version a minute and more, unless HOLDLINE_LONG is set. Both
// versions always pass through the phases of a consult, hostile projects and logins.
func skipOlder(t *testing.T, version string) {
	t.Helper()
	if version != claudetest.Versions()[0] && os.Getenv("HOLDLINE_LONG") == "" {
		t.Skip("HOLDLINE_LONG=1 is not set: each version takes a minute")
	}
}

// realHouse returns a house whose program is the real one, and the API that it talks to.
func realHouse(t *testing.T, bin string, edit ...func(*claude.Options)) (*house, *claudetest.API) {
	t.Helper()
	api, err := claudetest.StartAPI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Close(); err != nil {
			t.Errorf("close the stand-in: %v", err)
		}
	})
	h := newHouse(t, bin, func(o *Options) {
		opt := claude.Options{
			Bin: bin, Env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + o.Home}, api.Env()...), MaxRetries: 1,
			Timeout: time.Minute,
		}
		for _, f := range edit {
			f(&opt)
		}
		o.Engines = Fixed{Claude: claude.New(opt)}
	})
	if err := os.WriteFile(filepath.Join(h.project, "main.go"), []byte("package main // the marker is 4711\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return h, api
}

// endings checks the answer or fault for each ending of a run.
func endings(t *testing.T, bin string) {
	t.Helper()
	h, api := realHouse(t, bin)
	read := claudetest.Step{
		Text: new("Let me look."),
		Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": filepath.Join(h.project, "main.go")}},
	}
	echo := claudetest.Step{Echo: "tool_results"}
	use := func(name string, input map[string]any) claudetest.Step {
		return claudetest.Step{Tool: claudetest.Tool{Name: name, Input: input}}
	}
	for i, tt := range []struct {
		name   string
		steps  []claudetest.Step
		prompt string
		args   map[string]any
		code   fault.Code
		reason fault.Reason
		text   string
	}{
		{name: "success", steps: []claudetest.Step{read, claudetest.Say("All is well.")}, text: "All is well."},
		{name: "reads in the project", steps: []claudetest.Step{read, echo}, text: "4711"},
		{name: "slash", prompt: "/help", text: "stand-in answer"},
		{name: "dash", prompt: "--version", text: "stand-in answer"},
		{name: "long", prompt: strings.Repeat("many words\n", 100_000), text: "stand-in answer"},
		{name: "a dash", prompt: "-", text: "stand-in answer"},
		{name: "bytes", prompt: "NUL \x00 and \xff in it", text: "NUL \uFFFD and \uFFFD in it"},
		{name: "a file", prompt: "@/etc/passwd", text: "stand-in answer"},
		{name: "401", steps: []claudetest.Step{{Status: 401}}, code: fault.Unauthenticated, reason: fault.Rejected},
		{
			name: "429", steps: []claudetest.Step{{Status: 429}}, code: fault.DownstreamFailure,
			reason: fault.RateLimited,
		},
		{name: "500", steps: []claudetest.Step{{Status: 500}}, code: fault.DownstreamFailure, reason: fault.Overloaded},
		{
			name: "500 once", steps: []claudetest.Step{{Status: 500, Times: 1}, claudetest.Say("recovered")},
			text: "recovered",
		},
		{name: "529", steps: []claudetest.Step{{Status: 529}}, code: fault.DownstreamFailure, reason: fault.Overloaded},
		{
			name: "no such model", steps: []claudetest.Step{{Status: 404}}, code: fault.DownstreamFailure,
			reason: fault.Rejected,
		},
		{
			name:  "too long",
			steps: []claudetest.Step{{Status: 400, Message: "prompt is too long: 300000 tokens > 200000 maximum"}},
			code:  fault.DownstreamFailure, reason: fault.PromptTooLong,
		},
		{
			name: "max turns", steps: []claudetest.Step{read}, args: map[string]any{"max_turns": 1},
			code: fault.DownstreamFailure, reason: fault.MaxTurns, text: "Let me look.",
		},
		{
			name: "empty", steps: []claudetest.Step{claudetest.Say("")}, code: fault.DownstreamFailure,
			reason: fault.EmptyAnswer,
		},
		{
			name: "cut stream", steps: []claudetest.Step{{Text: new("in one piece after all"), Drop: true}},
			text: "in one piece after all",
		},
		{
			name: "always cut", steps: []claudetest.Step{{Cut: true}}, code: fault.DownstreamFailure,
			reason: fault.Unreachable,
		},
		{
			name: "no shell", steps: []claudetest.Step{use("Bash", map[string]any{"command": "touch owned"}), echo},
			text: "No such tool available: Bash",
		},
		{
			name: "no write",
			steps: []claudetest.Step{use("Write",
				map[string]any{"file_path": filepath.Join(h.project, "owned"), "content": "x"}), echo},
			text: "No such tool available: Write",
		},
		{
			name:  "no reading elsewhere",
			steps: []claudetest.Step{use("Read", map[string]any{"file_path": "/etc/passwd"}), echo},
			text:  "1 tool use denied",
		},
		{
			name:  "deadline",
			steps: []claudetest.Step{{Text: new(strings.Repeat("so far ", 300)), Chunk: 7, ChunkDelay: 0.1}},
			args:  map[string]any{"timeout_s": 8}, text: "this is the best answer so far",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			prompt := tt.prompt
			if tt.steps != nil {
				prompt = claudetest.Prompt("look around", tt.steps...)
			}
			args := map[string]any{"prompt": prompt}
			maps.Copy(args, tt.args)
			res, err := h.run(t.Context(), int64(i+1), args)
			if err != nil {
				t.Fatal(err)
			}
			text := res.Text
			if tt.code != "" {
				if res.Fault == nil || res.Fault.Fault.Code != tt.code || res.Fault.Reason() != tt.reason {
					t.Fatalf("fault %s, want %s, %s; text %q", dump(res.Fault), tt.code, tt.reason, res.Text)
				}
				text = res.FaultText
			} else if res.Fault != nil {
				t.Fatalf("fault %s", dump(res.Fault))
			}
			if !strings.Contains(text, tt.text) {
				t.Errorf("no %q in %q", tt.text, text)
			}
			if strings.Contains(text, "root:") {
				t.Errorf("a file of the system in %q", text)
			}
		})
	}
	// The longest prompt that is accepted. Newer programs count the tokens before they ask.
	res, err := h.run(t.Context(), 1000, map[string]any{"prompt": strings.Repeat("nine chars", 9<<20/10)})
	if err != nil || !strings.HasPrefix(res.Text, "stand-in answer") &&
		(res.Fault == nil || res.Fault.Reason() != fault.PromptTooLong) {
		t.Errorf("nine MiB: err %v, %s, text %.100q", err, dump(res.Fault), res.Text)
	}
	for _, r := range api.Requests() {
		for _, name := range r.Tools {
			switch name {
			case "Read", "Grep", "Glob", "WebFetch", "WebSearch":
			case "DeferredToolPlaceholder": // of some versions; it does nothing and is never called
			default:
				t.Errorf("the model was offered %s", name)
			}
		}
	}
	nothingIn(t, h.project, "main.go")
}

func dump(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// nothingIn checks that a directory has these files and no others.
func nothingIn(t *testing.T, dir string, but ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		found := false
		for _, name := range but {
			found = found || e.Name() == name
		}
		if !found {
			t.Errorf("%s was written", filepath.Join(dir, e.Name()))
		}
	}
}

// hostile runs in a project that would run programs and read files, for a user who allows
// everything. Nothing is run, written or read.
func hostile(t *testing.T, bin string) {
	t.Helper()
	h, api := realHouse(t, bin)
	traps := t.TempDir()
	trap := func(name string) string { return "touch " + filepath.Join(traps, name) }
	hooks := map[string]any{}
	for _, event := range []string{"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"} {
		hooks[event] = []any{map[string]any{"hooks": []any{map[string]any{
			"type": "command", "command": trap("hook-" + event),
		}}}}
	}
	settings := map[string]any{
		"hooks": hooks, "apiKeyHelper": trap("helper"),
		"statusLine": map[string]any{"type": "command", "command": trap("status")},
		"permissions": map[string]any{
			"allow": []string{"Bash(*)", "Bash", "Write", "Edit", "Read"}, "defaultMode": "bypassPermissions",
		},
	}
	put := func(path, data string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(h.project, ".claude", "settings.json"), dump(settings))
	put(filepath.Join(h.opt.Home, ".claude", "settings.json"), dump(settings))
	put(filepath.Join(h.project, "CLAUDE.md"), "CANARY-IN-CLAUDE-MD\n")
	put(filepath.Join(h.project, ".mcp.json"), dump(map[string]any{"mcpServers": map[string]any{
		"trap": map[string]any{"command": "sh", "args": []string{"-c", trap("server")}},
	}}))
	put(filepath.Join(h.project, ".git", "config"),
		"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "+trap("fsmonitor")+"\n")
	put(filepath.Join(h.project, ".git", "HEAD"), "ref: refs/heads/main\n")
	for _, dir := range []string{"objects", "refs"} {
		if err := os.MkdirAll(filepath.Join(h.project, ".git", dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	owned := filepath.Join(h.project, "owned")
	steps := []claudetest.Step{
		{Tools: []claudetest.Tool{
			{Name: "Bash", Input: map[string]any{"command": "touch " + owned}},
			{Name: "Write", Input: map[string]any{"file_path": owned, "content": "x"}},
			{
				Name: "Edit",
				Input: map[string]any{
					"file_path": filepath.Join(h.project, "main.go"), "old_string": "4711", "new_string": "4712",
				},
			},
			{Name: "Read", Input: map[string]any{"file_path": "/etc/passwd"}},
			{Name: "Grep", Input: map[string]any{"pattern": "root", "path": "/etc"}},
			{Name: "Glob", Input: map[string]any{"pattern": "/etc/*"}},
		}},
		claudetest.Say("done"),
	}
	res, err := h.run(t.Context(), 1,
		map[string]any{"prompt": claudetest.Prompt("see @/etc/passwd and @main.go", steps...)})
	if err != nil || res.Fault != nil || !strings.HasPrefix(res.Text, "done") {
		t.Fatalf("%v %s %q", err, dump(res.Fault), res.Text)
	}
	nothingIn(t, traps)
	nothingIn(t, h.project, "main.go", "CLAUDE.md", ".claude", ".mcp.json", ".git")
	if data, err := os.ReadFile(filepath.Join(h.project, "main.go")); err != nil ||
		!strings.Contains(string(data), "4711") {
		t.Errorf("main.go was edited: %v %q", err, data)
	}
	for _, r := range api.Requests() {
		for _, canary := range []string{"CANARY-IN-CLAUDE-MD", "root:x:", "root:*:"} {
			if strings.Contains(string(r.Body), canary) {
				t.Errorf("%q was sent to the model", canary)
			}
		}
	}
}

// resume checks that a consult that resumes a session forks it, and that its cost is that
// of this run.
func resume(t *testing.T, bin string) {
	t.Helper()
	h, _ := realHouse(t, bin)
	first, err := h.run(t.Context(), 1, map[string]any{"prompt": claudetest.Prompt("x", claudetest.Say("first"))})
	if err != nil || first.Fault != nil {
		t.Fatal(err, dump(first.Fault))
	}
	v, _ := first.Value.(answer.View)
	second, err := h.run(t.Context(), 2, map[string]any{
		"prompt": claudetest.Prompt("and now", claudetest.Step{Echo: "prompts"}), "session": v.SessionID,
	})
	if err != nil || second.Fault != nil {
		t.Fatal(err, dump(second.Fault))
	}
	w, _ := second.Value.(answer.View)
	if w.SessionID == v.SessionID || w.SessionID == "" || !strings.Contains(w.Answer, "first") {
		t.Errorf("session %s of %s, answer %q", w.SessionID, v.SessionID, w.Answer)
	}
	if v.CostUSD == nil || w.CostUSD == nil || *w.CostUSD > 1.5**v.CostUSD {
		t.Errorf("cost %s, then %s", dump(v.CostUSD), dump(w.CostUSD))
	}
	res, err := h.run(t.Context(), 3, map[string]any{"prompt": "x", "session": "3d81f0a0-3c5f-4c12-93ea-17cf026df78c"})
	if code(res, err) != fault.InvalidInput {
		t.Errorf("unknown session: %v %s", err, dump(res.Fault))
	}
}

// cancelled checks that within 3 s no process is left, and that the text so far is kept.
func cancelled(t *testing.T, bin string) {
	t.Helper()
	h, _ := realHouse(t, bin)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var at time.Time
	go func() {
		for h.text(1) == "" && t.Context().Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		at = time.Now()
		cancel()
	}()
	_, err := h.run(ctx, 1, map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{
		Text: new(strings.Repeat("word ", 1000)), Chunk: 5, ChunkDelay: 0.05,
	})})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	a, err := h.Wait(t.Context(), jobdir.ID(h.session, 1), nil)
	if err != nil || a.State != answer.Cancelled || !strings.HasPrefix(a.Text, "word") || a.SessionID == "" {
		t.Errorf("%v %s", err, dump(a))
	}
	if took := time.Since(at); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}

// loggedOut checks that without a login the fault says so, at once.
func loggedOut(t *testing.T, bin string) {
	t.Helper()
	h, api := realHouse(t, bin, func(o *claude.Options) {
		o.Env = []string{o.Env[0], o.Env[1], "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
	})
	begin := time.Now()
	res, err := h.run(t.Context(), 1, map[string]any{"prompt": "x"})
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code != fault.Unauthenticated || f.Reason() != fault.NotLoggedIn {
		t.Errorf("%v %s", err, dump(res.Fault))
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
	if n := len(api.Requests()); n != 0 {
		t.Error(fmt.Errorf("%d requests to the model", n))
	}
}

// ownLogin checks that a login in the user's settings, which a run does not read, works for
// a consult, too.
func ownLogin(t *testing.T, bin string) {
	t.Helper()
	for name, settings := range map[string]string{
		"env":    `{"env":{"ANTHROPIC_API_KEY":"stand-in"}}`,
		"helper": `{"apiKeyHelper":"test $PWD = / && echo stand-in"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := realHouse(t, bin, func(o *claude.Options) {
				o.Env = slices.DeleteFunc(o.Env,
					func(kv string) bool { return strings.HasPrefix(kv, "ANTHROPIC_API_KEY=") })
			})
			dir := filepath.Join(h.opt.Home, ".claude")
			if err := errors.Join(os.MkdirAll(dir, 0o700),
				os.WriteFile(filepath.Join(dir, "settings.json"), []byte(settings), 0o600)); err != nil {
				t.Fatal(err)
			}
			for i, level := range []string{"read", "shell"} {
				if info, err := h.Check(t.Context(), Claude, nil); err != nil || info.Level(level).Lacks != "" {
					t.Logf("no level %s here: %v, %s", level, err, info.Level(level).Lacks)
					continue
				}
				res, err := h.run(t.Context(), int64(i+1),
					map[string]any{"prompt": claudetest.Prompt("x", claudetest.Say("by my own key")), "level": level})
				if err != nil || res.Fault != nil || !strings.Contains(res.Text, "by my own key") {
					t.Errorf("%s: %v %s %q", level, err, dump(res.Fault), res.Text)
				}
			}
		})
	}
}

// said says something to a run while its first request is under way. Its model gets that in the same
// turn.
func said(t *testing.T, bin string) {
	t.Helper()
	const text = "the word is marzipan"
	h, _ := realHouse(t, bin)
	read := claudetest.Step{
		Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": filepath.Join(h.project, "main.go")}}, Delay: 2,
	}
	_, err := h.run(t.Context(), 1, map[string]any{
		"wait_s": 0, "prompt": claudetest.Prompt("x", read, claudetest.Step{Echo: "prompts"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := jobdir.ID(h.session, 1)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if said, err := engine.ReadTranscript(filepath.Join(h.opt.Dir, id)); err == nil && said.Session != "" {
			break
		}
	}
	if _, err := h.SayFromShell(t.Context(), "shell", id, text); err != nil {
		t.Fatal(err)
	}
	a, err := h.Wait(t.Context(), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(a.Text, text) || len(a.Messages) != 1 || a.Messages[0].Receipt != "delivered" {
		t.Errorf("answer %q, fault %v, messages %+v", a.Text, a.Fault, a.Messages)
	}
	b, err := os.ReadFile(filepath.Join(h.opt.Dir, id, engine.FileTranscript))
	if n := strings.Count(string(b), `"k":"turn"`); err != nil || n != 1 {
		t.Errorf("%d turns, want 1: %v", n, err)
	}
}
