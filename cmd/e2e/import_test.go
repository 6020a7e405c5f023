package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOwnToolsAlone checks that an agent with "holdline" as its server has holdline's own
// tools and no server's, and starts none.
func TestOwnToolsAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{})}).daemon()
	a := p.agent("--server", "holdline").shake()
	var names []string
	for _, tool := range a.ask("tools/list", map[string]any{}).Result.Tools {
		names = append(names, tool.Name)
	}
	if !slices.Contains(names, "consult") ||
		slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "__") }) {
		t.Errorf("tools %q", names)
	}
	if x := a.wait(a.call("health_snapshot", map[string]any{})); x.Error != nil {
		t.Errorf("health_snapshot: %s", x.raw)
	}
	if x := a.wait(a.call("tools__effect", map[string]any{"token": "x"})); x.Error == nil {
		t.Errorf("a hosted tool: %s", x.raw)
	}
	if s := p.server("tools"); s.RefCount != 0 || s.Active {
		t.Errorf("the server is %+v", s)
	}
	a.rest()
}

// TestImported checks that the entry that import wrote into a client's file gives agents
// the server's own tools, through one process, and that nothing of it is left after the
// undo.
func TestImported(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	home := filepath.Join(p.dir, "home")
	path := filepath.Join(home, ".cursor/mcp.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	own := p.toolsEntry(nil)
	delete(own, "holdline")
	text := mustJSON(t, map[string]any{"mcpServers": map[string]any{"tools": own}})
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.daemon() // reads the new configuration when it is written
	p.must("import", "--write")
	var conf struct {
		Servers map[string]struct {
			Command string
			Args    []string
		} `json:"mcpServers"`
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decode(t, string(b), &conf)
	entry := conf.Servers["tools"]
	if entry.Command != filepath.Join(programs, "holdline") || len(conf.Servers) != 2 {
		t.Fatalf("entries %+v", conf.Servers)
	}
	one, other := p.agent(entry.Args[1:]...).shake(), p.agent(entry.Args[1:]...).shake()
	for _, a := range []*agent{one, other} {
		if x := a.wait(a.call("effect", map[string]any{"token": "t"})); x.text() != "t" {
			t.Errorf("effect: %s", x.raw)
		}
	}
	if s := p.server("tools"); s.RefCount != 2 {
		t.Errorf("the server is %+v", s)
	}
	one.rest()
	other.rest()
	p.must("import", "--undo")
	if b, err := os.ReadFile(path); string(b) != text || err != nil {
		t.Errorf("after the undo: %s, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(home, ".config/holdline")); !os.IsNotExist(err) {
		t.Errorf("holdline's configuration is there: %v", err)
	}
}

// TestImport_UnreadableFile checks that a client's file that cannot be parsed is named with
// its place and makes the command fail, and that the other clients' files are imported. In a
// pipe the progress is a line for each server.
func TestImport_UnreadableFile(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	own := p.toolsEntry(nil)
	delete(own, "holdline")
	const broken = "x = 1\n[mcp_servers.a]\ncommand = \"a\n"
	p.putHome(t, map[string]string{
		".claude.json":       mustJSON(t, map[string]any{"mcpServers": map[string]any{"tools": own}}),
		".codex/config.toml": broken,
	})
	path := filepath.Join(p.dir, "home/.codex/config.toml")
	for _, args := range [][]string{{"import"}, {"import", "--json"}, {"import", "--write"}} {
		out, errs, code := p.run("", args...)
		if code != exitFailure || !strings.Contains(out, path) || !strings.Contains(out, "line 3, column 13") ||
			!strings.Contains(out, "tools") || !strings.Contains(errs, "tools: starts, ") {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errs)
		}
	}
	if got := p.read(t, ".claude.json"); !strings.Contains(got, "mcp-stdio") {
		t.Errorf("the readable file is not imported:\n%s", got)
	}
	if got := p.read(t, ".codex/config.toml"); got != broken {
		t.Errorf("the unreadable file is\n%s", got)
	}
	p.must("import", "--undo")
}

// TestImportFromBuild checks that a temporary program, as of `go run`, is written into no
// client's file. It shows what it would do, and once holdline is installed it names the
// installed program.
func TestImportFromBuild(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	path := filepath.Join(p.dir, "home/.cursor/mcp.json")
	const text = `{"mcpServers": {"a": {"command": "true"}}}`
	build := filepath.Join(p.dir, "go-build1/b001/exe")
	for _, dir := range []string{filepath.Dir(path), build} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(build, "holdline")
	if out, err := exec.Command("cp", filepath.Join(programs, "holdline"), bin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(args ...string) (string, error) {
		cmd := exec.Command(bin, args...)
		cmd.Env = p.env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("import"); err != nil || !strings.Contains(out, "to do it: holdline import --write") {
		t.Errorf("the plan: %v\n%s", err, out)
	}
	out, err := run("import", "--write")
	if err == nil || !strings.Contains(out, bin) || !strings.Contains(out, "hint: holdline install --bin") {
		t.Errorf("import --write: %v\n%s", err, out)
	}
	if b, err := os.ReadFile(path); string(b) != text || err != nil {
		t.Errorf("the client's file: %s, %v", b, err)
	}
	if out, err := run("install", "--bin"); err != nil {
		t.Fatalf("install --bin: %v\n%s", err, out)
	}
	bin = filepath.Join(p.dir, "home/.local/bin/holdline")
	if out, err := run("import", "--write"); err != nil {
		t.Errorf("import --write by what was installed: %v\n%s", err, out)
	}
	if b, err := os.ReadFile(path); !strings.Contains(string(b), bin) || err != nil {
		t.Errorf("the client's file: %s, %v", b, err)
	}
}
