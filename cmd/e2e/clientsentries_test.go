package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServersRemove_NoEntryDangles removes a server that setup has moved. Its entries are gone from the files of all
// clients, the others stay, and neither setup nor doctor nor a later undo has anything to say about it.
func TestServersRemove_NoEntryDangles(t *testing.T) {
	t.Parallel()
	p, _, _ := connected(t)
	out := p.must("servers", "remove", "tools")
	for _, name := range []string{".cursor/mcp.json", ".codex/config.toml"} {
		text := p.read(t, name)
		if strings.Contains(text, "tools") || !strings.Contains(text, "holdline") {
			t.Errorf("%s has\n%s", name, text)
		}
		if !strings.Contains(out, filepath.Join(p.dir, "home", name)) {
			t.Errorf("%s is not named: %s", name, out)
		}
	}
	if out, _, code := p.run("", "doctor", "-v"); code != exitOK || strings.Contains(out, "does not have") {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}
	if out := p.must("setup", "--dry-run"); !strings.Contains(out, "Nothing to do") {
		t.Errorf("setup: %s", out)
	}
	if out, errs, code := p.run("", "setup", "--undo"); code != exitOK || strings.Contains(errs, "left") {
		t.Errorf("the undo: exit %d\n%s%s", code, out, errs)
	}
}

// TestServersRemove_GivesBack checks that --give-back leaves each client with the server that it had before setup.
func TestServersRemove_GivesBack(t *testing.T) {
	t.Parallel()
	p, _, before := connected(t)
	p.must("servers", "remove", "tools", "--give-back")
	for _, name := range []string{"/.cursor/mcp.json", "/.codex/config.toml"} {
		if text := p.home(t)[name]; !strings.Contains(text, "toolserver") || strings.Contains(text, `"tools"]`) {
			t.Errorf("%s has\n%s", name, text)
		}
	}
	p.must("setup", "--undo")
	for _, name := range []string{"/.cursor/mcp.json", "/.codex/config.toml"} {
		if text := p.home(t)[name]; text != before[name] {
			t.Errorf("after the undo %s has\n%s", name, text)
		}
	}
}

// TestDanglingEntry_IsFoundAndRepaired takes a server out of the configuration by hand. Doctor names the clients'
// files, and setup removes the entries.
func TestDanglingEntry_IsFoundAndRepaired(t *testing.T) {
	t.Parallel()
	p, _, _ := connected(t)
	p.configure(map[string]any{})
	p.must("reload", "--yes")
	out, _, code := p.run("", "doctor", "-v")
	if code != exitFailure || strings.Count(out, "starts servers that Holdline does not have: tools") != 2 ||
		!strings.Contains(out, "holdline setup --from cursor removes the entries") {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}
	if out := p.must("setup", "--dry-run"); !strings.Contains(out, "drops") ||
		!strings.Contains(out, "Holdline has no such server any more") {
		t.Errorf("the plan: %s", out)
	}
	if out := p.must("setup", "--yes"); !strings.Contains(out, "Done: 0 servers moved, 2 files written") {
		t.Errorf("setup: %s", out)
	}
	for _, name := range []string{".cursor/mcp.json", ".codex/config.toml"} {
		if text := p.read(t, name); strings.Contains(text, "tools") {
			t.Errorf("%s has\n%s", name, text)
		}
	}
	if out, _, code := p.run("", "doctor", "-v"); code != exitOK {
		t.Errorf("doctor, after the repair: exit %d\n%s", code, out)
	}
}

// TestServersAdd_TriesAndConnects checks that a server which works is added with an entry for each client that setup
// has connected, and that one which does not work is not added unless the user insists. An uninstall takes all of
// that back.
func TestServersAdd_TriesAndConnects(t *testing.T) {
	t.Parallel()
	p, _, before := connected(t)
	config := filepath.Join(p.dir, "home/.config/holdline/config.json")
	was, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	_, errs, code := p.run("", "servers", "add", "dead", "--", "sh", "-c", "echo these are my last words >&2; exit 3")
	now, err := os.ReadFile(config)
	if code != exitFailure || err != nil || string(now) != string(was) || !strings.Contains(errs, "these are my last words") ||
		!strings.Contains(errs, "--force") {
		t.Errorf("a server that ends: exit %d, %v\n%s\n%s", code, err, errs, now)
	}
	server := []string{"--", filepath.Join(programs, "toolserver"), "-ledger", p.effects()}
	out := p.must(append([]string{"servers", "add", "more", "--scope", "shared"}, server...)...)
	if !strings.Contains(out, "more works: 15 tools") || !strings.Contains(out, "its entry is added to Claude Code, Codex, Cursor") {
		t.Errorf("servers add says\n%s", out)
	}
	if codex, cursor := p.read(t, ".codex/config.toml"), p.read(t, ".cursor/mcp.json"); !strings.Contains(
		codex, "[mcp_servers.more]") || !strings.Contains(cursor, `"more"`) {
		t.Errorf("Codex has\n%s\nCursor has\n%s", codex, cursor)
	}
	a := p.agent("--server", "more").shake()
	if x := a.wait(a.call("effect", map[string]any{"token": "added"})); x.text() != "added" {
		t.Errorf("the server answers %s", x.raw)
	}
	a.leave()
	p.must(append([]string{"servers", "add", "quiet", "--no-connect"}, server...)...)
	if _, errs, code := p.run("", "servers", "add", "dead", "--force", "--", "false"); code != exitOK ||
		!strings.Contains(errs, "warning: dead does not work") {
		t.Errorf("--force: exit %d\n%s", code, errs)
	}
	if cursor := p.read(t, ".cursor/mcp.json"); strings.Contains(cursor, "quiet") || !strings.Contains(cursor, `"dead"`) {
		t.Errorf("Cursor has\n%s", cursor)
	}
	if out, _, _ := p.run("", "servers", "remove", "dead"); strings.Contains(p.read(t, ".cursor/mcp.json"), "dead") {
		t.Errorf("it is not removed: %s", out)
	}
	p.must("uninstall", "--yes", "--purge")
	p.sameHome(t, before)
}

// TestEntriesOfAnotherHoldline_StayWhereTheyAre checks that no command removes an entry that may start another holdline
// than this one, though this one has no server of that name, or is about to lose it.
func TestEntriesOfAnotherHoldline_StayWhereTheyAre(t *testing.T) {
	t.Parallel()
	p, bin, _ := connected(t)
	others := map[string]any{
		"far":   map[string]any{"command": "ssh", "args": []string{"box", "holdline", "mcp-stdio", "--server", "tools"}},
		"guest": map[string]any{"command": "holdline", "args": []string{"mcp-stdio", "--guest", "/g", "--server", "none"}},
		"other": map[string]any{
			"command": "holdline", "args": []string{"mcp-stdio", "--server", "none"}, "env": map[string]any{"HOLDLINE_CONFIG": "/c"},
		},
	}
	path := ".gemini/settings.json"
	p.putHome(t, map[string]string{path: mustJSON(t, map[string]any{"mcpServers": others})})
	was := p.read(t, path)
	p.must("setup", "--yes", "--no-call")
	p.must("servers", "remove", "tools")
	if _, errs, code := p.run("", "servers", "remove", "none"); code != exitFailure {
		t.Errorf("a server that is not there: exit %d, %s", code, errs)
	}
	out, errs, code := p.run("", "uninstall", "--yes")
	if code != exitOK || strings.Count(errs, "may start another holdline") != len(others) {
		t.Errorf("uninstall: exit %d\n%s%s", code, out, errs)
	}
	if now := p.read(t, path); now != was {
		t.Errorf("the file was\n%s\nand is\n%s", was, now)
	}
	if _, err := os.Stat(bin); err == nil {
		t.Error("the program is left")
	}
}

// TestServersRemove_KeepsTheTextOfOwnEntries removes a server for which the user has added an entry by hand. The entry
// goes, and its text is kept in a file that the command names.
func TestServersRemove_KeepsTheTextOfOwnEntries(t *testing.T) {
	t.Parallel()
	p, _, _ := connected(t)
	p.putHome(t, map[string]string{
		".gemini/settings.json": `{"mcpServers": {"mine": {"command": "holdline", "args": ["mcp-stdio", "--server", "tools"], "trust": true}}}`,
	})
	out, errs, code := p.run("", "servers", "remove", "tools")
	_, kept, _ := strings.Cut(out+errs, "are kept as they were in ")
	kept, _, _ = strings.Cut(kept, "\n")
	text, err := os.ReadFile(kept)
	if code != exitOK || err != nil || !strings.Contains(string(text), `\"trust\": true`) || strings.Contains(string(text), ".cursor") {
		t.Errorf("exit %d, %v\n%s%s\n%s", code, err, out, errs, text)
	}
	if now := p.read(t, ".gemini/settings.json"); strings.Contains(now, "mine") {
		t.Errorf("the entry is left: %s", now)
	}
}
