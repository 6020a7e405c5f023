package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/programtest"
)

// TestDirect_ServesWithoutDaemon checks that a client can use a configured server without
// the daemon, with the program, variables and directory that the daemon would give it.
func TestDirect_ServesWithoutDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	entry := p.toolsEntry(hosting{})
	bin := filepath.Join(p.dir, "home/.local/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\npwd > \"$WHERE\"\nexec " + filepath.Join(programs, "toolserver") + " \"$@\"\n"
	programtest.Write(t, filepath.Join(bin, "my-server"), script)
	where := filepath.Join(p.dir, "where")
	entry["command"], entry["env"] = "my-server", map[string]any{"WHERE": "${WHERE_TO}"}
	profile := "export PATH=" + bin + ":$PATH WHERE_TO=" + where + "\n"
	if err := os.WriteFile(filepath.Join(p.dir, "home/.profile"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	p.configure(map[string]any{"tools": entry})

	a := p.agent("--direct", "tools").shake()
	if x := a.wait(a.call("effect", map[string]any{"token": "once"})); x.text() != "once" {
		t.Errorf("effect: %s", x.raw)
	}
	a.leave()
	if out, _, code := p.run("", "status"); code != exitNoDaemon {
		t.Errorf("status ended with %d, want no daemon: %s", code, out)
	}
	if got, err := os.ReadFile(where); err != nil || strings.TrimSpace(string(got)) != realPath(t, p.project) {
		t.Errorf("the server ran in %q, %v; want the project %s", got, err, p.project)
	}

	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--direct", "nope"}, `no server "nope" is configured; there is tools`},
		{[]string{"--direct", "tools", "--server", "tools"}, "--direct and --server do not go together"},
	} {
		if _, errs, code := p.run("", append([]string{"mcp-stdio"}, c.args...)...); code != exitUsage ||
			!strings.Contains(errs, c.want) {
			t.Errorf("%q: exit %d, %s, want %s", c.args, code, errs, c.want)
		}
	}
}

// realPath returns path without symbolic links.
func realPath(t *testing.T, path string) string {
	t.Helper()
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// TestImport_LeavesServersThatDoNotStart checks that import moves a server only if it works
// in the daemon's environment. The plan says why a server does not work, without its
// secrets.
func TestImport_LeavesServersThatDoNotStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	own := p.toolsEntry(nil)
	delete(own, "holdline")
	text := mustJSON(t, map[string]any{"mcpServers": map[string]any{
		"works":   own,
		"missing": map[string]any{"command": "no-such-program-anywhere"},
		"needs":   map[string]any{"command": own["command"], "args": []string{"${NO_SUCH_VARIABLE}"}},
		"dies": map[string]any{
			"command": "sh", "args": []string{"-c", `echo "the key $KEY is not accepted" >&2; exit 7`},
			"env": map[string]any{"KEY": "a-long-secret-key"},
		},
		"refuses": map[string]any{
			"command": "sh",
			"args": []string{
				"-c",
				`read line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no licence"}}'
					read line; echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no licence"}}'
					cat >/dev/null`,
			},
		},
		"old": map[string]any{"type": "sse", "url": "http://127.0.0.1:1/sse"},
	}})
	path := filepath.Join(p.dir, "home/.claude.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	before := p.home(t)
	plan := p.must("import")
	for name, want := range map[string]string{
		"works":   "moves works Claude Code; ",
		"missing": "stays missing Claude Code: it does not start: no-such-program-anywhere was not found on the ",
		"needs":   "stays needs Claude Code: it does not start: variable NO_SUCH_VARIABLE is not set; to keep it: holdline env set NO_SUCH_VARIABLE",
		"dies": "stays dies Claude Code: it does not start: it ended before it answered (exit status 7): " +
			"the key *** is not accepted",
		"refuses": "stays refuses Claude Code: it does not start: it refused to begin: no licence",
		"old":     "stays old Claude Code: it speaks the old transport sse, which Holdline does not",
	} {
		found := false
		for line := range strings.Lines(plan) {
			found = found || strings.HasPrefix(strings.Join(strings.Fields(line), " "), want)
		}
		if !found {
			t.Errorf("the plan does not say that %s %s:\n%s", name, want, plan)
		}
	}
	if strings.Contains(plan, "a-long-secret-key") {
		t.Errorf("the plan shows a secret:\n%s", plan)
	}
	p.must("import", "--write")
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{
		"no-such-program-anywhere", "${NO_SUCH_VARIABLE}", "exit 7", "no licence", "http://127.0.0.1:1/sse",
	} {
		if !strings.Contains(string(after), kept) {
			t.Errorf("the client's file has lost %s:\n%s", kept, after)
		}
	}
	if !strings.Contains(string(after), `"works"`) || strings.Contains(string(after), `"toolserver"`) {
		t.Errorf("the server that works did not move:\n%s", after)
	}
	// The state directory exists now, and a plan must not change it.
	written := p.home(t)
	p.must("import")
	p.sameHome(t, written)
	if out := p.must("import", "--no-check"); !strings.Contains(out, "missing") ||
		strings.Contains(out, "does not start") {
		t.Errorf("import --no-check: %s", out)
	}
	p.must("import", "--undo")
	p.sameHome(t, before)
	p.must("stop")
}
