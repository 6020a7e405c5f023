package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/cmd/holdline/codextest"
	"holdline/daemon/adapter/engine/claude/claudetest"
)

// Versions of clients that are only asked for their list of servers.
const (
	geminiVersion   = "0.61.0"
	opencodeVersion = "1.18.34"
)

// putHome writes files into the place's home.
func (p *place) putHome(t *testing.T, files map[string]string) {
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
}

// importHome writes files into the place's home, and sets holdline up for the clients that have
// them.
func (p *place) importHome(t *testing.T, files map[string]string) {
	t.Helper()
	p.putHome(t, files)
	p.must("setup", "--yes")
}

// claudeServers returns a file of Claude Code's with one server, and that server.
func (p *place) claudeServers(t *testing.T, name string) (text string, own map[string]any) {
	t.Helper()
	own = p.toolsEntry(nil)
	delete(own, "holdline")
	own["type"] = "stdio"
	return mustJSON(t, map[string]any{"mcpServers": map[string]any{name: own}}), own
}

// claudeWorks has the real Claude Code list an imported server and holdline, and call a
// tool of the server.
func (p *place) claudeWorks(t *testing.T, bin, server string) {
	t.Helper()
	env := claudeEnv(p.env)
	out := p.client(t, env, bin, "mcp", "list").wait(t)
	for _, name := range []string{server + ": ", "holdline: "} {
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.HasPrefix(line, name) && strings.Contains(line, "mcp-stdio") &&
				strings.Contains(line, "Connected")
		}) {
			t.Errorf("claude mcp list has no %sthat is connected:\n%s", name, out)
		}
	}
	tool := "mcp__" + server + "__effect"
	prompt := claudetest.Prompt("work",
		claudetest.Step{Tool: claudetest.Tool{
			Name: "ToolSearch", Input: map[string]any{"query": "select:" + tool, "max_results": 3},
		}},
		claudetest.Step{Tool: claudetest.Tool{Name: tool, Input: map[string]any{"token": "imported", "ms": 0}}},
		claudetest.Step{Echo: "tool_results"})
	run := readClaude(t, p.client(t, env, bin, "-p", "--output-format", "stream-json", "--verbose",
		"--allowedTools", "mcp__"+server, "--permission-mode", "dontAsk", "--", prompt).wait(t))
	if got := toolResults(t, run.result, 2); got[1].text() != "imported" {
		t.Errorf("effect = %q", got[1].text())
	}
}

// codexServers returns a file of Codex's with one server.
func (p *place) codexServers(t *testing.T, name string) string {
	t.Helper()
	return "# mine\n[mcp_servers." + name + "]\ncommand = " + mustJSON(t, filepath.Join(programs, "toolserver")) +
		"\nargs = " + mustJSON(t, []string{"-ledger", p.effects()}) +
		"\nrequired = true\ndefault_tools_approval_mode = \"approve\"\n"
}

// codexEnv returns the environment of Codex in a place.
func codexEnv(place []string) []string {
	return append(without(place, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), "STAND_IN_KEY=stand-in")
}

// codexWorks has the real Codex list an imported server and holdline, and call a tool of
// the server.
func (p *place) codexWorks(t *testing.T, bin, server string) {
	t.Helper()
	api := codexStandIn(t,
		codextest.Step{Call: &codextest.Call{
			Namespace: "mcp__" + server, Name: "effect", Arguments: map[string]any{"token": "imported", "ms": 0},
		}},
		codextest.Step{Echo: true})
	env := codexEnv(p.env)
	out := p.client(t, env, bin, "mcp", "list").wait(t)
	for _, want := range []string{server, "holdline", "mcp-stdio --server " + server} {
		if !strings.Contains(out, want) {
			t.Errorf("codex mcp list has no %s:\n%s", want, out)
		}
	}
	argv := []string{
		bin, "exec", "--json", "--sandbox", "read-only", "--skip-git-repo-check", "-C", p.project,
		"--model", "stand-in",
	}
	for _, setting := range api.Config() {
		argv = append(argv, "-c", setting)
	}
	message, calls := readCodex(t, p.client(t, env, append(argv, "--", "work")...).wait(t))
	if !slices.Equal(calls, []string{server + "/effect completed"}) || !strings.Contains(message, "imported") {
		t.Errorf("calls %q, message %q", calls, message)
	}
}

// read returns the content of a file in the home.
func (p *place) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "home", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestE2EImportClaude checks that the real Claude Code lists and calls what import wrote
// into its file. After the undo its own settings and servers are there.
func TestE2EImportClaude(t *testing.T) {
	t.Parallel()
	bin := realClaude(t, claudetest.Versions()[0])
	p := newPlace(t)
	p.standIn(t)
	text, own := p.claudeServers(t, "tools")
	p.importHome(t, map[string]string{".claude.json": text})
	p.daemon()
	p.claudeWorks(t, bin, "tools")
	if written := p.read(t, ".claude.json"); !strings.Contains(written, "firstStartTime") {
		t.Fatalf("the client wrote nothing of its own:\n%s", written)
	}
	p.must("import", "--undo")
	var after map[string]any
	decode(t, p.read(t, ".claude.json"), &after)
	if mustJSON(t, after["mcpServers"]) != mustJSON(t, map[string]any{"tools": own}) || after["firstStartTime"] == nil {
		t.Errorf("after the undo: %v", after)
	}
}

// TestE2EImportBesideClaude imports with the real Claude Code on the PATH. Keys that Claude
// Code's entries do not have stay, and after the undo the home directory is unchanged, byte
// for byte.
func TestE2EImportBesideClaude(t *testing.T) {
	t.Parallel()
	bin := realClaude(t, claudetest.Versions()[0])
	p := newPlace(t)
	p.putHome(t, map[string]string{
		".claude.json": `{"mcpServers": {"a": {"command": "true"}, "kept": {"command": "true", "alwaysLoad": true, "mine": 1}},
		"projects": {"/p": {"mcpServers": {"b": {"command": "true"}}}}}`,
		".codex/config.toml": "# mine\n[mcp_servers.c]\ncommand = \"true\"\n",
	})
	before := p.home(t)
	p.env = append(p.env, "PATH="+filepath.Dir(bin)+":"+programs+":"+os.Getenv("PATH"))
	p.must("import", "--write", "--no-check") // the server is not a real one
	if text := p.read(t, ".claude.json"); !strings.Contains(text, `"mine": 1`) ||
		strings.Count(text, "mcp-stdio") != 4 {
		t.Errorf("the file:\n%s", text)
	}
	if out := p.must("import"); !strings.Contains(out, "nothing to do") {
		t.Errorf("a second import:\n%s", out)
	}
	p.must("import", "--undo")
	p.sameHome(t, before)
}

// TestE2EImportCodex checks that the real Codex lists and calls what import wrote.
func TestE2EImportCodex(t *testing.T) {
	t.Parallel()
	bin := realCodex(t)
	p := newPlace(t)
	text := p.codexServers(t, "tools")
	p.importHome(t, map[string]string{".codex/config.toml": text})
	p.daemon()
	p.codexWorks(t, bin, "tools")
	p.must("import", "--undo")
	if now := p.read(t, ".codex/config.toml"); now != text {
		t.Errorf("after the undo:\n%s", now)
	}
}

// TestE2EImportGemini checks that the real Gemini CLI lists the servers that import wrote.
func TestE2EImportGemini(t *testing.T) {
	t.Parallel()
	root := npmInstall(t, "gemini-"+geminiVersion, "@google/gemini-cli@"+geminiVersion)
	p := newPlace(t)
	p.importHome(t,
		map[string]string{".gemini/settings.json": mustJSON(t,
			map[string]any{"mcpServers": map[string]any{"tools": map[string]any{"command": filepath.Join(programs,
				"toolserver")}}})})
	p.daemon()
	c := p.client(t, append(slices.Clone(p.env), "GEMINI_CLI_TRUST_WORKSPACE=true"), newNode(t),
		filepath.Join(root, "node_modules/@google/gemini-cli/bundle/gemini.js"), "mcp", "list")
	out := c.wait(t) + c.errs.String()
	for _, want := range []string{"tools:", "holdline:", "--server tools"} {
		if !strings.Contains(out, want) {
			t.Errorf("gemini mcp list has no %s:\n%s", want, out)
		}
	}
}

// TestE2EImportOpencode checks that the real opencode lists the servers that import wrote.
func TestE2EImportOpencode(t *testing.T) {
	t.Parallel()
	name := "opencode-linux-" + npmArch()
	root := npmInstall(t, "opencode-"+opencodeVersion, name+"@"+opencodeVersion)
	p := newPlace(t)
	p.importHome(t,
		map[string]string{".config/opencode/opencode.json": mustJSON(t,
			map[string]any{"mcp": map[string]any{"tools": map[string]any{
				"type": "local", "command": []string{filepath.Join(programs, "toolserver")},
			}}})})
	p.daemon()
	c := p.client(t, p.env, filepath.Join(root, "node_modules", name, "bin/opencode"), "mcp", "list")
	out := c.wait(t) + c.errs.String()
	for _, want := range []string{"tools", "holdline", "connected"} {
		if !strings.Contains(out, want) {
			t.Errorf("opencode mcp list has no %s:\n%s", want, out)
		}
	}
}
