package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdline/cmd/holdline/codextest"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/sandbox/writetest"
)

// claudeAgentVersion is that of Claude Code's adapter to the Agent Client Protocol.
const claudeAgentVersion = "0.49.0" // later ones want a newer node

// writer is a real program that answers consults and tries to write meanwhile. In place of its model
// a stand-in asks it to use tools.
type writer struct {
	name, engine string
	levels       []string
	needsAgents  bool // only the kernel can keep it from writing
	idle         bool // its shell was not seen to run a command: that nothing differs proves less

	// shell returns the use of its tool that runs a command; nil if it has none at level read.
	shell func(command string) claudetest.Tool
	// tools returns uses of its tools that write files, in a project and in another directory.
	tools func(project, outside string) []claudetest.Tool
	// begin starts the stand-in, and returns what the configuration says of consults, the prompt,
	// and a function that returns the requests to the model.
	begin func(t *testing.T, p *place, calls []claudetest.Tool) (map[string]any, string, func() [][]byte)
	// own are files and directories of the home that the program itself writes at any level.
	own []string
}

// perAnswer is how many tools an answer of the model uses at once.
const perAnswer = 6

// byClaudeAPI starts the stand-in for Anthropic's API, whose script is in the prompt.
func byClaudeAPI(t *testing.T, p *place, calls []claudetest.Tool) (string, string, func() [][]byte) {
	t.Helper()
	var steps []claudetest.Step
	for some := range slices.Chunk(calls, perAnswer) {
		steps = append(steps, claudetest.Step{Tools: some})
	}
	api := p.standIn(t)
	prompt := claudetest.Prompt("look around", append(steps, claudetest.Say("done"))...)
	return api.URL(), prompt, func() (bodies [][]byte) {
		for _, r := range api.Requests() {
			bodies = append(bodies, r.Body)
		}
		return bodies
	}
}

// use returns a function that makes the use of a tool for commands.
func use(name, argument string, more ...any) func(string) claudetest.Tool {
	return func(command string) claudetest.Tool {
		input := map[string]any{argument: command}
		for i := 0; i+1 < len(more); i += 2 {
			input[more[i].(string)] = more[i+1]
		}
		return claudetest.Tool{Name: name, Input: input}
	}
}

// claudeTools are the uses of the tools of Claude Code that write.
func claudeTools(project, outside string) (all []claudetest.Tool) {
	for _, dir := range []string{project, outside} {
		all = append(all,
			claudetest.Tool{Name: "Write", Input: map[string]any{"file_path": dir + "/written", "content": "x"}},
			claudetest.Tool{Name: "Edit", Input: map[string]any{
				"file_path": dir + "/f.txt", "old_string": "hi", "new_string": "ho",
			}},
			claudetest.Tool{Name: "NotebookEdit", Input: map[string]any{
				"notebook_path": dir + "/n.ipynb", "new_source": "x", "edit_mode": "insert",
			}})
	}
	return all
}

// claudeWriter returns a version of Claude Code.
func claudeWriter(version string) writer {
	return writer{
		name: "claude " + version, engine: "claude", levels: []string{"read", "shell"},
		shell: use("Bash", "command", "timeout", 5000), tools: claudeTools,
		begin: func(t *testing.T, p *place, calls []claudetest.Tool) (map[string]any, string, func() [][]byte) {
			t.Helper()
			p.env = append(p.env, "HOLDLINE_CLAUDE_BIN="+realClaude(t, version))
			_, prompt, seen := byClaudeAPI(t, p, calls)
			return map[string]any{}, prompt, seen
		},
		own: []string{".claude", ".claude.json"},
	}
}

// writers returns the programs. Each is installed by its own test.
func writers() []writer {
	all := []writer{
		{
			name: "codex", engine: "codex", levels: []string{"read", "shell"},
			shell: use("exec_command", "cmd", "yield_time_ms", 5000),
			tools: func(project, outside string) (all []claudetest.Tool) {
				for _, dir := range []string{project, outside} {
					patch := "*** Begin Patch\n*** Add File: " + dir + "/patched\n+x\n*** End Patch\n"
					all = append(all, claudetest.Tool{Name: "apply_patch", Input: map[string]any{"input": patch}},
						use("exec_command", "cmd")("apply_patch <<'EOF'\n"+patch+"EOF"))
				}
				return all
			},
			begin: func(t *testing.T, _ *place, calls []claudetest.Tool) (map[string]any, string, func() [][]byte) {
				t.Helper()
				var steps []codextest.Step
				for some := range slices.Chunk(calls, perAnswer) {
					var all []codextest.Call
					for _, c := range some {
						all = append(all, codextest.Call{Name: c.Name, Arguments: c.Input})
					}
					steps = append(steps, codextest.Step{Call: &all[0], More: all[1:]})
				}
				api := codexStandIn(t, append(steps, codextest.Step{Text: "done"})...)
				seen := func() (bodies [][]byte) {
					for _, r := range api.Requests() {
						bodies = append(bodies, r.Body)
					}
					return bodies
				}
				return map[string]any{
					"codex_bin": realCodex(t), "model": "stand-in", "codex_config": api.Config(),
					"env": map[string]string{"STAND_IN_KEY": "stand-in"},
				}, "look around", seen
			},
			own: []string{".codex"},
		},
		{
			name: "claude-agent-acp", engine: "acp:real", levels: []string{"read"}, needsAgents: true,
			shell: use("Bash", "command", "timeout", 5000), tools: claudeTools,
			begin: func(t *testing.T, p *place, calls []claudetest.Tool) (map[string]any, string, func() [][]byte) {
				t.Helper()
				const of = "@agentclientprotocol/claude-agent-acp"
				root := npmInstall(t, "claude-agent-acp-"+claudeAgentVersion, of+"@"+claudeAgentVersion)
				url, prompt, seen := byClaudeAPI(t, p, calls)
				return oneAgent(map[string]any{
					"command": newNode(t), "args": []string{filepath.Join(root, "node_modules", of, "dist/index.js")},
					"mode": "acceptEdits", "env": map[string]string{
						"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "stand-in", "DISABLE_TELEMETRY": "1",
						"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
					},
				}), prompt, seen
			},
		},
		{
			name: "opencode", engine: "acp:real", levels: []string{"read"}, needsAgents: true,
			shell: use("bash", "command", "description", "try", "timeout", 5000),
			tools: func(project, outside string) (all []claudetest.Tool) {
				for _, dir := range []string{project, outside} {
					all = append(all,
						claudetest.Tool{Name: "write", Input: map[string]any{"filePath": dir + "/written", "content": "x"}},
						claudetest.Tool{Name: "edit", Input: map[string]any{
							"filePath": dir + "/f.txt", "oldString": "hi", "newString": "ho",
						}})
				}
				return all
			},
			begin: func(t *testing.T, p *place, calls []claudetest.Tool) (map[string]any, string, func() [][]byte) {
				t.Helper()
				name := "opencode-linux-" + npmArch()
				root := npmInstall(t, "opencode-"+opencodeVersion, name+"@"+opencodeVersion)
				url, prompt, seen := byClaudeAPI(t, p, calls)
				return oneAgent(map[string]any{
					"command": filepath.Join(root, "node_modules", name, "bin/opencode"), "args": []string{"acp"},
					"env": map[string]string{"OPENCODE_CONFIG_CONTENT": mustJSON(t, map[string]any{
						"provider": map[string]any{"fake": map[string]any{
							"npm": "@ai-sdk/anthropic", "options": map[string]any{"baseURL": url + "/v1", "apiKey": "stand-in"},
							"models": map[string]any{"m1": map[string]any{"name": "M1"}},
						}},
						"model": "fake/m1", "small_model": "fake/m1", "autoupdate": false, "share": "disabled",
					})},
				}), prompt, seen
			},
		},
		{
			name: "gemini", engine: "acp:real", levels: []string{"read"}, needsAgents: true, idle: true,
			shell: use("run_shell_command", "command", "description", "try"),
			tools: func(project, outside string) (all []claudetest.Tool) {
				for _, dir := range []string{project, outside} {
					all = append(all,
						claudetest.Tool{Name: "write_file", Input: map[string]any{"file_path": dir + "/written", "content": "x"}},
						claudetest.Tool{Name: "replace", Input: map[string]any{
							"file_path": dir + "/f.txt", "old_string": "hi", "new_string": "ho", "instruction": "try",
						}})
				}
				return all
			},
			begin: func(t *testing.T, _ *place, calls []claudetest.Tool) (map[string]any, string, func() [][]byte) {
				t.Helper()
				root := npmInstall(t, "gemini-"+geminiVersion, "@google/gemini-cli@"+geminiVersion)
				url, seen := geminiStandIn(t, calls)
				return oneAgent(map[string]any{
					"command": newNode(t),
					"args":    []string{filepath.Join(root, "node_modules/@google/gemini-cli/bundle/gemini.js"), "--acp"},
					"mode":    "yolo", "model": "gemini-3.8-flash",
					"env": map[string]string{
						"GEMINI_API_KEY": "stand-in", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true",
					},
				}), "look around", seen
			},
		},
	}
	for _, version := range claudetest.Versions() {
		all = append(all, claudeWriter(version))
	}
	return append(all, fakeAgentWriter())
}

// fakeAgentWriter returns the fake agent, which asks nobody before it runs a command, and asks
// Holdline to write files. It has no model: what its transcript says it did stands for requests.
func fakeAgentWriter() writer {
	const write = "fs/write_text_file"
	return writer{
		name: "fake agent", engine: "acp:real", levels: []string{"read"}, needsAgents: true,
		shell: use("shell", "command"),
		tools: func(project, outside string) []claudetest.Tool {
			return []claudetest.Tool{
				use(write, "path", "content", "x")(project + "/written"),
				use(write, "path", "content", "x")(outside + "/written"),
			}
		},
		begin: func(t *testing.T, p *place, calls []claudetest.Tool) (map[string]any, string, func() [][]byte) {
			t.Helper()
			var steps []acptest.Step
			for _, c := range calls {
				step := acptest.Step{Call: write, Params: json.RawMessage(mustJSON(t, c.Input))}
				if command, ok := c.Input["command"].(string); ok {
					// What a command leaves in the background must not hold the output open.
					step = acptest.Step{Shell: "(" + command + "\n) >$TMPDIR/o 2>&1; cat $TMPDIR/o"}
				}
				steps = append(steps, step, acptest.Step{TellResult: true})
			}
			steps = append(steps, acptest.Step{Shell: "true"}, acptest.Step{Say: "done"})
			consult := oneAgent(map[string]any{"command": programs + fakeAgentProgram, "fs": true})
			return consult, acptest.Prompt("look around", steps...), func() [][]byte {
				files, _ := filepath.Glob(filepath.Join(p.dir, "home/.local/state/holdline/consults/*", engine.FileTranscript))
				return bytes.Split([]byte(content(t, files[0])), []byte("\n"))
			}
		},
	}
}

// oneAgent returns the part of the configuration about consults with an agent.
func oneAgent(entry map[string]any) map[string]any {
	return map[string]any{"agents": map[string]any{"real": entry}}
}

// geminiStandIn starts a stand-in for Google's API, whose model uses some of the tools in each
// answer, and then says done. It returns its URL, and what returns the requests.
func geminiStandIn(t *testing.T, calls []claudetest.Tool) (string, func() [][]byte) {
	t.Helper()
	answers := slices.Collect(slices.Chunk(calls, perAnswer))
	var mu sync.Mutex
	var seen [][]byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		var q struct {
			Contents []struct{ Role string }
			Tools    []json.RawMessage
		}
		if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &q) != nil {
			http.NotFound(w, r)
			return
		}
		mu.Lock()
		seen = append(seen, body)
		mu.Unlock()
		k := 0
		for _, c := range q.Contents {
			if c.Role == "model" {
				k++
			}
		}
		parts := []any{map[string]any{"text": "done"}}
		if len(q.Tools) > 0 && k < len(answers) {
			parts = nil
			for _, c := range answers[k] {
				parts = append(parts, map[string]any{"functionCall": map[string]any{"name": c.Name, "args": c.Input}})
			}
		}
		b, err := json.Marshal(map[string]any{
			"candidates": []any{map[string]any{
				"index": 0, "finishReason": "STOP", "content": map[string]any{"role": "model", "parts": parts},
			}},
			"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
		})
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(r.URL.Path, ":stream") {
			w.Header().Set("Content-Type", "text/event-stream")
			b = fmt.Appendf(nil, "data: %s\n\n", b)
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// TestE2EWriteMatrix has real programs run every command of testdata/commands.txt and use every tool
// that writes, at each level that is claimed for them, for a user and in a project that allow
// everything. But for the program's own places, nothing differs in content, name or place.
func TestE2EWriteMatrix(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	commands, err := os.ReadFile("testdata/commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range writers() {
		for _, level := range w.levels {
			t.Run(w.name+" "+level, func(t *testing.T) {
				t.Parallel()
				if w.needsAgents {
					needAgents(t)
				}
				w.try(t, level, strings.Split(strings.TrimSpace(string(commands)), "\n"))
			})
		}
	}
}

// try runs a consult that tries to write.
func (w *writer) try(t *testing.T, level string, commands []string) {
	t.Helper()
	p := newPlace(t)
	home, outside := filepath.Join(p.dir, "home"), filepath.Join(p.dir, "outside")
	places := []string{outside, filepath.Join(home, "docs"), p.project}
	for _, dir := range places {
		if err := writetest.Prepare(dir); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"f.txt": "hi\n", "n.ipynb": `{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}`,
			"Makefile": "all:\n\ttouch made\n", "package.json": `{"scripts":{"test":"touch tested"}}`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	git := exec.CommandContext(t.Context(), "sh", "-c",
		"rm -rf .git && git init -q . && git add f.txt && git -c user.name=a -c user.email=a@b commit -qm one")
	git.Dir, git.Env = p.project, p.env
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p.allowEverything(t, outside)

	calls := []claudetest.Tool{w.shell("seq 42 42 | sed s/^/control-/")} // some refuse what is in $()
	for i, dir := range places {
		for _, command := range commands {
			if i > 0 && !strings.Contains(command, "OUTSIDE") {
				continue
			}
			// A kernel that does not keep signals in would let it end this machine.
			command = strings.Replace(command, "kill 1", "kill -0 1", 1)
			calls = append(calls, w.shell(strings.ReplaceAll(command, "OUTSIDE", dir)))
		}
	}
	calls = append(calls, w.tools(p.project, outside)...)
	consult, prompt, seen := w.begin(t, p, calls)
	consult["allow"] = map[string]any{"*": map[string]any{"levels": []string{"read", "shell"}}}
	p.configure(map[string]any{}, "consult", consult)
	p.daemon()
	before := p.contents(t, w.own)
	a := p.agent("--no-autostart").shake()
	x := a.wait(a.call("consult", map[string]any{
		"engine": w.engine, "level": level, "prompt": prompt, "timeout_s": 600, "wait_s": 1, "render": "json", "detail": "full",
	}))
	if x.code() == "denied" {
		t.Skip(x.text())
	}
	var v struct {
		ID      string `json:"consult_id"`
		State   string
		Answer  string
		Denials int `json:"permission_denial_count"`
	}
	err := json.Unmarshal(x.Result.StructuredContent, &v)
	for err == nil && (v.State == "running" || v.State == "queued") {
		x = a.wait(a.call("consult_result", map[string]any{
			"consult_id": v.ID, "wait_s": 20, "render": "json", "detail": "full",
		}))
		err = json.Unmarshal(x.Result.StructuredContent, &v)
	}
	if err != nil || x.Result.IsError || v.Answer != "done" {
		t.Errorf("%v: %.2000s", err, x.raw)
	}
	ran := slices.ContainsFunc(seen(), func(body []byte) bool { return bytes.Contains(body, []byte("control-42")) })
	t.Logf("%d calls, %d requests, %d denials, the commands ran: %v", len(calls), len(seen()), v.Denials, ran)
	// Claude Code has no shell at level read. An agent that asks before it runs a command is refused.
	if !ran && v.Denials == 0 && !w.idle && (w.engine != "claude" || level == "shell") {
		t.Error("no command ran, and none was refused: that proves nothing")
	}
	if n := len(seen()); n < len(calls)/perAnswer {
		t.Errorf("%d requests to the model: it was not asked for all of %d calls", n, len(calls))
	}
	after := p.contents(t, w.own)
	for line := range before {
		if !after[line] {
			t.Errorf("there was %s", line)
		}
	}
	for line := range after {
		if !before[line] {
			t.Errorf("there is %s", line)
		}
	}
	a.leave()
}

// allowEverything writes settings of each program, of the user and of the project, that allow
// everything and run commands by themselves.
func (p *place) allowEverything(t *testing.T, outside string) {
	t.Helper()
	run := map[string]any{"type": "command", "command": "touch " + outside + "/hooked"}
	hook := map[string]any{"hooks": []any{run}}
	settings := mustJSON(t, map[string]any{
		"permissions": map[string]any{
			"defaultMode": "bypassPermissions", "allow": []string{"Bash(*)", "Bash", "Write", "Edit", "NotebookEdit"},
		},
		"hooks":   map[string]any{"SessionStart": []any{hook}, "PreToolUse": []any{hook}, "Stop": []any{hook}},
		"sandbox": map[string]any{"enabled": false, "excludedCommands": []string{"touch", "git"}},
	})
	server := map[string]any{"command": "touch", "args": []string{outside + "/served"}}
	opencode := mustJSON(t, map[string]any{"permission": map[string]any{"*": "allow", "bash": "allow", "edit": "allow"}})
	gemini := mustJSON(t, map[string]any{
		"mcpServers": map[string]any{"x": server}, "tools": map[string]any{"allowed": []string{"run_shell_command"}},
	})
	codex := "sandbox_mode = \"danger-full-access\"\napproval_policy = \"never\"\n"
	for path, text := range map[string]string{
		"home/.claude/settings.json": settings, "p/.claude/settings.json": settings,
		"p/.mcp.json":                         mustJSON(t, map[string]any{"mcpServers": map[string]any{"x": server}}),
		"p/opencode.json":                     opencode,
		"home/.config/opencode/opencode.json": opencode,
		"p/.gemini/settings.json":             gemini,
		"home/.gemini/settings.json":          gemini,
		"p/.codex/config.toml":                codex,
		"home/.codex/config.toml":             codex,
	} {
		path = filepath.Join(p.dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns a line for each file of the place, with its kind and content, but for what the
// daemon writes and what a program has in the user's home. The user's settings are no such thing.
func (p *place) contents(t *testing.T, own []string) map[string]bool {
	t.Helper()
	listing, err := writetest.Listing(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	skip := []string{"/run", "/daemon.log", "/home/.local/state/holdline", "/home/.cache/holdline"}
	for _, name := range own {
		skip = append(skip, "/home/"+name)
	}
	found := map[string]bool{}
	for line := range strings.Lines(listing) {
		settings := strings.HasPrefix(line, "/home/.claude/settings.json ") ||
			strings.HasPrefix(line, "/home/.codex/config.toml ")
		if settings || !slices.ContainsFunc(skip, func(s string) bool { return strings.HasPrefix(line, s) }) {
			found[line[:min(len(line), 300)]] = true
		}
	}
	return found
}
