package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"holdline/daemon/adapter/engine/claude/claudetest"
)

// TestE2EInstallAndBack installs holdline, has two real clients work through one daemon,
// which the first of them starts, and uninstalls it. The clients have their old servers,
// what they wrote since is there, and nothing of holdline is left.
func TestE2EInstallAndBack(t *testing.T) {
	t.Parallel()
	claude, codex := realClaude(t, claudetest.Versions()[0]), realCodex(t)
	p := newPlace(t)
	p.standIn(t)
	p.login()
	text, own := p.claudeServers(t, "tools")
	p.putHome(t, map[string]string{".claude.json": text, ".codex/config.toml": p.codexServers(t, "more")})

	p.must("install", "--bin")
	p.exe = filepath.Join(p.dir, "home/.local/bin/holdline")
	p.must("import", "--write")
	for _, name := range []string{".claude.json", ".codex/config.toml"} {
		if now := p.read(t, name); strings.Count(now, p.exe) != 2 {
			t.Errorf("%s does not start %s twice:\n%s", name, p.exe, now)
		}
	}
	p.claudeWorks(t, claude, "tools")
	by := p.status().Daemon
	p.codexWorks(t, codex, "more")
	p.client(t, codexEnv(p.env), codex, "mcp", "add", "marker", "--", "true").wait(t)
	if now := p.status().Daemon; now.PID != by.PID || by.StartedBy != "proxy" {
		t.Errorf("Claude Code had daemon %d (started by %s), Codex %d", by.PID, by.StartedBy, now.PID)
	}
	p.faultless(t)

	p.must("import", "--undo")
	p.must("uninstall", "--purge")
	p.exe = ""
	if _, _, code := p.run("", "status"); code != exitNoDaemon {
		t.Errorf("a daemon runs: exit %d", code)
	}
	var after map[string]any
	decode(t, p.read(t, ".claude.json"), &after)
	if mustJSON(t, after["mcpServers"]) != mustJSON(t, map[string]any{"tools": own}) || after["firstStartTime"] == nil {
		t.Errorf("Claude Code's file: %v", after)
	}
	var servers, was struct {
		All map[string]map[string]any `toml:"mcp_servers"`
	}
	now := p.read(t, ".codex/config.toml")
	if err := toml.Unmarshal([]byte(now), &servers); err != nil || servers.All["marker"]["command"] != "true" {
		t.Errorf("Codex's file, %v:\n%s", err, now)
	}
	delete(servers.All, "marker")
	if err := toml.Unmarshal([]byte(p.codexServers(t, "more")), &was); err != nil ||
		mustJSON(t, servers.All) != mustJSON(t, was.All) {
		t.Errorf("Codex's servers, %v:\n%s", err, now)
	}
	p.nothingOfOurs(t)
}

// nothingOfOurs checks that no file or directory of holdline is left, and that the clients'
// configuration files do not mention it.
func (p *place) nothingOfOurs(t *testing.T) {
	t.Helper()
	for _, root := range []string{"home", "run"} {
		err := filepath.WalkDir(filepath.Join(p.dir, root), func(path string, d fs.DirEntry, err error) error {
			if d != nil && strings.Contains(d.Name(), "holdline") {
				t.Errorf("%s is left", path)
			}
			if path == filepath.Join(p.dir, "home/.cache") { // Claude Code's logs, named after its servers
				return fs.SkipDir
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, rel := range []string{".local", ".config"} {
		if _, err := os.Lstat(filepath.Join(p.dir, "home", rel)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", rel, err)
		}
	}
	for _, name := range []string{".claude.json", ".codex/config.toml"} {
		if now := p.read(t, name); strings.Contains(now, "holdline") || strings.Contains(now, "mcp-stdio") {
			t.Errorf("%s still names holdline:\n%s", name, now)
		}
	}
}
