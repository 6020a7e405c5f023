package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// connected returns a place whose Cursor and Codex have a server, which setup has moved. Holdline is installed
// there, and before is the home as it was.
func connected(t *testing.T) (p *place, bin string, before map[string]string) {
	t.Helper()
	p = newPlace(t).login()
	own := p.toolsEntry(nil)
	delete(own, "holdline")
	p.putHome(t, map[string]string{
		".cursor/mcp.json":   mustJSON(t, map[string]any{"mcpServers": map[string]any{"tools": own}}) + "\n",
		".codex/config.toml": p.codexServers(t, "tools"),
	})
	before = p.home(t)
	p.must("install", "--bin")
	bin = filepath.Join(p.dir, "home/.local/bin/holdline")
	p.must("setup", "--yes")
	return p, bin, before
}

// TestUninstall_AgentsHaveTheirServersBack uninstalls holdline while an agent waits for an answer. Without a terminal
// the command refuses to choose. With --yes it names the agent, whose call ends with a fault that says what to do,
// and the home is as it was before.
func TestUninstall_AgentsHaveTheirServersBack(t *testing.T) {
	t.Parallel()
	p, bin, before := connected(t)
	connectedHome := p.home(t)
	out, errs, code := p.run("", "uninstall")
	if code != exitUsage || !strings.Contains(errs, "--yes") || !strings.Contains(errs, "--keep-clients") {
		t.Errorf("without a terminal: exit %d\n%s%s", code, out, errs)
	}
	if dry := p.must("uninstall", "--dry-run"); !strings.Contains(dry, "would take back") ||
		!strings.Contains(dry, ".cursor/mcp.json") || !strings.Contains(dry, "would remove "+bin) {
		t.Errorf("a dry run says\n%s", dry)
	}
	for _, name := range []string{"/.cursor/mcp.json", "/.codex/config.toml", "/.local/bin/holdline"} {
		if now := p.home(t)[name]; now != connectedHome[name] {
			t.Errorf("%s has changed before a yes: %s", name, now)
		}
	}
	a := p.agent("--server", "tools", "--identity", "ada-agent").shake()
	id := a.call("hang", map[string]any{"token": "waits"})
	p.untilEffect("begin waits")
	out, errs, code = p.run("", "uninstall", "--yes", "--purge")
	if code != exitOK || !strings.Contains(out, "restart these agents") || !strings.Contains(out, "ada-agent") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if x := a.wait(id); !strings.Contains(x.raw, "uninstalled; restart the agent") {
		t.Errorf("the call ends with %s", x.raw)
	}
	_ = a.stdin.Close()
	_ = a.cmd.Wait() // it has lost its daemon
	if said := a.errs.String(); !strings.Contains(said, "hint: restart the agent") {
		t.Errorf("the proxy says %q", said)
	}
	p.sameHome(t, before)
}

// TestUninstall_EditedEntryKeepsTheProgram edits an entry that setup has written. --yes takes back all others,
// names this one last, fails, and leaves a holdline that serves it. With --keep-clients the rest goes.
func TestUninstall_EditedEntryKeepsTheProgram(t *testing.T) {
	t.Parallel()
	p, bin, _ := connected(t)
	path := filepath.Join(p.dir, "home/.cursor/mcp.json")
	edited := strings.Replace(p.read(t, ".cursor/mcp.json"), `"--server",`, `"--identity", "mine", "--server",`, 1)
	if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := p.run("", "uninstall", "--yes")
	if lines := strings.Split(strings.TrimSpace(errs), "\n"); code != exitFailure ||
		!strings.Contains(lines[len(lines)-1], path) || !strings.Contains(out, "stays installed") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if codex := p.read(t, ".codex/config.toml"); codex != p.codexServers(t, "tools") {
		t.Errorf("Codex has\n%s", codex)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Errorf("the program: %v", err)
	}
	a := p.agent("--identity", "mine", "--server", "tools").shake()
	if x := a.wait(a.call("effect", map[string]any{"token": "still"})); x.text() != "still" {
		t.Errorf("the entry that is left has a server that answers %s", x.raw)
	}
	a.leave()
	out, errs, code = p.run("", "uninstall", "--keep-clients")
	if code != exitOK || !strings.Contains(errs, "will not find holdline") || !strings.Contains(errs, path) {
		t.Errorf("--keep-clients: exit %d\n%s%s", code, out, errs)
	}
	if _, err := os.Stat(bin); err == nil {
		t.Error("the program is left")
	}
	if now := p.read(t, ".cursor/mcp.json"); !strings.Contains(now, `"mine"`) {
		t.Errorf("the entry is gone: %s", now)
	}
}

// TestUninstall_TakesOwnEntriesAway checks that an entry which the user has added by hand, of no use without
// holdline, goes with it, and that a file which cannot be read keeps the program.
func TestUninstall_TakesOwnEntriesAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.must("install", "--bin")
	bin := filepath.Join(p.dir, "home/.local/bin/holdline")
	p.putHome(t, map[string]string{
		".cursor/mcp.json": `{"mcpServers": {"holdline": {"command": "holdline", "args": ["mcp-stdio"]}, "b": {"command": "b"}}}`,
		".claude.json":     `{"mcpServers": {"a": {"command": "a"}}}`,
	})
	p.must("import", "--write", "--no-check", "--from", "claude")
	written := p.read(t, ".claude.json")
	p.putHome(t, map[string]string{".claude.json": written + "}"})
	out, errs, code := p.run("", "uninstall", "--yes")
	if lines := strings.Split(strings.TrimSpace(errs), "\n"); code != exitFailure ||
		!strings.Contains(lines[len(lines)-1], ".claude.json") {
		t.Errorf("with a file that cannot be read: exit %d\n%s%s", code, out, errs)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Errorf("the program: %v", err)
	}
	if cursor := p.read(t, ".cursor/mcp.json"); strings.Contains(cursor, "holdline") || !strings.Contains(cursor, `"b"`) {
		t.Errorf("Cursor has %s", cursor)
	}
	p.putHome(t, map[string]string{".claude.json": written})
	p.must("uninstall", "--yes")
	if claude := p.read(t, ".claude.json"); claude != `{"mcpServers": {"a": {"command": "a"}}}` {
		t.Errorf("Claude Code has %s", claude)
	}
	if _, err := os.Stat(bin); err == nil {
		t.Error("the program is left")
	}
}

// TestUninstall_FileThatCannotBeReadKeepsTheProgram breaks the file in which the user has added holdline by hand, the
// only one that starts it. The program and the daemon stay, and the file is named, until it can be read or the user
// gives its entries up.
func TestUninstall_FileThatCannotBeReadKeepsTheProgram(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"--yes", "--keep-clients"} {
		p := newPlace(t).login()
		p.must("install", "--bin")
		bin := filepath.Join(p.dir, "home/.local/bin/holdline")
		entry := `{"mcpServers": {"holdline": {"command": "holdline", "args": ["mcp-stdio"]}}}`
		p.putHome(t, map[string]string{
			".claude.json":     entry + "}",
			".cursor/mcp.json": `{"projects": ["holdline"]`, // it starts nothing
		})
		a := p.agent("--server", "holdline").shake()
		for _, args := range [][]string{
			{"uninstall"}, {"uninstall", "--dry-run"}, {"uninstall", "--yes"}, {"uninstall", "--yes", "--purge"},
		} {
			out, errs, code := p.run("", args...)
			if code != exitFailure || !strings.Contains(errs, ".claude.json") || strings.Contains(errs, ".cursor") ||
				!strings.Contains(out, "installed, since agents may still start it") || !strings.Contains(out, "--keep-clients") {
				t.Errorf("%q: exit %d\n%s%s", args, code, out, errs)
			}
			if _, err := os.Stat(bin); err != nil {
				t.Fatalf("%q: the program: %v", args, err)
			}
			if _, _, code := p.run("", "status"); code != exitOK {
				t.Errorf("%q: the daemon is gone: exit %d", args, code)
			}
		}
		a.leave()
		if last == "--yes" {
			p.putHome(t, map[string]string{".claude.json": entry})
		}
		out, errs, code := p.run("", "uninstall", last)
		if _, err := os.Stat(bin); code != exitOK || err == nil || strings.Contains(errs, ".claude.json") != (last == "--keep-clients") {
			t.Errorf("%s: exit %d, %v\n%s%s", last, code, err, out, errs)
		}
		_, kept, _ := strings.Cut(out, "as they were: ")
		kept, _, _ = strings.Cut(kept, "\n")
		if b, err := os.ReadFile(kept); last == "--yes" && (err != nil || !strings.Contains(string(b), "mcp-stdio")) {
			t.Errorf("the entry is not kept: %v\n%s\n%s", err, b, out)
		}
	}
}
