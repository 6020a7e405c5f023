package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/cmd/holdline/codextest"
	"holdline/daemon/claude/claudetest"
)

// Versions of clients that are asked for their list of servers only.
const (
	geminiVersion   = "0.61.0"
	opencodeVersion = "1.18.34"
)

// importHome puts files into the place's home and imports them.
func (p *place) importHome(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(p.dir, "home", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.must("import", "--write")
}

// TestE2EImportClaude: the real Claude Code lists and calls what import wrote
// into its file, and finds its own words and its servers there after the undo.
func TestE2EImportClaude(t *testing.T) {
	bin := realClaude(t, claudetest.Versions()[0])
	p := clientPlace(t)
	p.standIn(t)
	own := p.toolsEntry(nil)
	delete(own, "holdline")
	own["type"] = "stdio"
	p.importHome(t, map[string]string{".claude.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{"tools": own}})})
	p.daemon()
	env := claudeEnv(p.env)

	out := p.client(t, env, bin, "mcp", "list").wait(t)
	for _, name := range []string{"tools: ", "holdline: "} {
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.HasPrefix(line, name) && strings.Contains(line, "mcp-stdio") && strings.Contains(line, "Connected")
		}) {
			t.Errorf("claude mcp list has no %sthat is connected:\n%s", name, out)
		}
	}
	prompt := claudetest.Prompt("work",
		claudetest.Step{Tool: claudetest.Tool{Name: "ToolSearch", Input: map[string]any{"query": "select:mcp__tools__effect", "max_results": 3}}},
		claudetest.Step{Tool: claudetest.Tool{Name: "mcp__tools__effect", Input: map[string]any{"token": "imported", "ms": 0}}},
		claudetest.Step{Echo: "tool_results"})
	run := readClaude(t, p.client(t, env, bin, "-p", "--output-format", "stream-json", "--verbose", "--allowedTools", "mcp__tools", "--permission-mode", "dontAsk", "--", prompt).wait(t))
	if got := toolResults(t, run.result, 2); got[1].text() != "imported" {
		t.Errorf("effect = %q", got[1].text())
	}
	path := filepath.Join(p.dir, "home/.claude.json")
	written, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(written), "firstStartTime") {
		t.Fatalf("the client wrote nothing of its own: %v\n%s", err, written)
	}
	p.must("import", "--undo")
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var after map[string]any
	decode(t, string(now), &after)
	if mustJSON(t, after["mcpServers"]) != mustJSON(t, map[string]any{"tools": own}) || after["firstStartTime"] == nil {
		t.Errorf("after the undo:\n%s", now)
	}
}

// TestE2EImportByClaude: the real Claude Code's own command edits its file, and
// the undo leaves nothing of that: the home directory is what it was, byte for
// byte.
func TestE2EImportByClaude(t *testing.T) {
	bin := realClaude(t, claudetest.Versions()[0])
	p := clientPlace(t)
	home := filepath.Join(p.dir, "home")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".claude.json", `{"mcpServers": {"a": {"command": "true"}, "kept": {"command": "true", "alwaysLoad": true, "mine": 1}},
		"projects": {"/p": {"mcpServers": {"b": {"command": "true"}}}}}`)
	write(".codex/config.toml", "# mine\n[mcp_servers.c]\ncommand = \"true\"\n")
	before := p.home(t)
	p.env = append(p.env, "PATH="+filepath.Dir(bin)+":"+programs+":"+os.Getenv("PATH"))
	p.must("import", "--write")
	b, err := os.ReadFile(filepath.Join(home, ".claude.json"))
	if err != nil || !strings.Contains(string(b), "machineID") || !strings.Contains(string(b), `"mine": 1`) || strings.Count(string(b), "mcp-stdio") != 4 {
		t.Errorf("the file, %v:\n%s", err, b)
	}
	if out := p.must("import"); !strings.Contains(out, "nothing to do") {
		t.Errorf("a second import:\n%s", out)
	}
	p.must("import", "--undo")
	p.sameHome(t, before)
}

// TestE2EImportCodex: the real Codex lists and calls what import wrote.
func TestE2EImportCodex(t *testing.T) {
	bin := realCodex(t)
	p := clientPlace(t)
	text := "# mine\n[mcp_servers.tools]\ncommand = " + mustJSON(t, filepath.Join(programs, "toolserver")) + "\nargs = " + mustJSON(t, []string{"-ledger", p.effects()}) +
		"\nrequired = true\ndefault_tools_approval_mode = \"approve\"\n"
	p.importHome(t, map[string]string{".codex/config.toml": text})
	p.daemon()
	api, err := codextest.StartAPI(
		codextest.Step{Call: &codextest.Call{Namespace: "mcp__tools", Name: "effect", Arguments: map[string]any{"token": "imported", "ms": 0}}},
		codextest.Step{Echo: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Close(); err != nil {
			t.Errorf("closing the stand-in: %v", err)
		}
	})
	env := append(without(p.env, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), "STAND_IN_KEY=stand-in")
	out := p.client(t, env, bin, "mcp", "list").wait(t)
	for _, want := range []string{"tools", "holdline", "mcp-stdio --server tools"} {
		if !strings.Contains(out, want) {
			t.Errorf("codex mcp list has no %s:\n%s", want, out)
		}
	}
	argv := []string{bin, "exec", "--json", "--sandbox", "read-only", "--skip-git-repo-check", "-C", p.project, "--model", "stand-in"}
	for _, setting := range api.Config() {
		argv = append(argv, "-c", setting)
	}
	message, calls := readCodex(t, p.client(t, env, append(argv, "--", "work")...).wait(t))
	if !slices.Equal(calls, []string{"tools/effect completed"}) || !strings.Contains(message, "imported") {
		t.Errorf("calls %q, message %q", calls, message)
	}
	p.must("import", "--undo")
	if b, err := os.ReadFile(filepath.Join(p.dir, "home/.codex/config.toml")); err != nil || string(b) != text {
		t.Errorf("after the undo %v:\n%s", err, b)
	}
}

// TestE2EImportGemini: the real Gemini CLI knows the servers that import wrote.
func TestE2EImportGemini(t *testing.T) {
	root := npmInstall(t, "gemini-"+geminiVersion, "@google/gemini-cli@"+geminiVersion)
	p := clientPlace(t)
	p.importHome(t, map[string]string{".gemini/settings.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{"tools": map[string]any{"command": filepath.Join(programs, "toolserver")}}})})
	p.daemon()
	c := p.client(t, append(slices.Clone(p.env), "GEMINI_CLI_TRUST_WORKSPACE=true"), newNode(t), filepath.Join(root, "node_modules/@google/gemini-cli/bundle/gemini.js"), "mcp", "list")
	out := c.wait(t) + c.errs.String()
	for _, want := range []string{"tools:", "holdline:", "--server tools"} {
		if !strings.Contains(out, want) {
			t.Errorf("gemini mcp list has no %s:\n%s", want, out)
		}
	}
}

// TestE2EImportOpencode: the real opencode knows the servers that import wrote.
func TestE2EImportOpencode(t *testing.T) {
	name := "opencode-linux-" + npmArch()
	root := npmInstall(t, "opencode-"+opencodeVersion, name+"@"+opencodeVersion)
	p := clientPlace(t)
	p.importHome(t, map[string]string{".config/opencode/opencode.json": mustJSON(t, map[string]any{"mcp": map[string]any{"tools": map[string]any{"type": "local", "command": []string{filepath.Join(programs, "toolserver")}}}})})
	p.daemon()
	c := p.client(t, p.env, filepath.Join(root, "node_modules", name, "bin/opencode"), "mcp", "list")
	out := c.wait(t) + c.errs.String()
	for _, want := range []string{"tools", "holdline", "connected"} {
		if !strings.Contains(out, want) {
			t.Errorf("opencode mcp list has no %s:\n%s", want, out)
		}
	}
}
