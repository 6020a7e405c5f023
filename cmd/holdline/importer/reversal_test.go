package importer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config"
)

// TestUndoElsewhere checks that an undo in another directory keeps the server that a changed entry
// of a project still starts.
func TestUndoElsewhere(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.Project, o.Cwd = true, filepath.Join(home, "project")
	path := filepath.Join(o.Cwd, ".mcp.json")
	write(t, path, `{"mcpServers": {"a": {"command": "x"}}}`)
	carryOut(t, look(t, o))
	write(t, path, strings.Replace(read(t, path), `"a": {`, `"a": {"env": {"MINE": "1"}, `, 1))
	o.Cwd = home
	d := undo(t, o)
	var left []string
	for _, l := range d.Left {
		left = append(left, filepath.Base(l.Path)+" "+l.Key+": "+l.Why)
	}
	want := []string{".mcp.json a: it was changed since", "config.json a: the entry a of " + path + " still starts it"}
	if !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
	cfg, err := config.Load(o.Config)
	if err != nil || cfg.Servers["a"].Command != "x" {
		t.Errorf("servers %v, %v", cfg.Servers, err)
	}
}

// TestMemberTwice checks that an entry with a member twice stays: which of both its client uses is
// not known, and an edit would change only one.
func TestMemberTwice(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, ".cursor/mcp.json")
	write(t, path, `{"mcpServers": {"a": {"command": "x", "command": "y"}}}`)
	p := look(t, options(home))
	if s := p.Files[0].Servers[0]; s.Verdict != Stays || s.Why != "its command is there twice" {
		t.Errorf("%s: %s", s.Verdict, s.Why)
	}
}

// TestClaudeNowhere checks that Claude Code's file is made where its directory does not exist yet.
func TestClaudeNowhere(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.From = []string{"claude"}
	o.Getenv = func(name string) string {
		return map[string]string{"CLAUDE_CONFIG_DIR": filepath.Join(home, "none/claude")}[name]
	}
	before := tree(t, home)
	if d := carryOut(t, look(t, o)); len(d.Left) > 0 {
		t.Errorf("left %v", d.Left)
	}
	undo(t, o)
	sameTree(t, tree(t, home), before)
}

// TestUnclearFiles checks that a file stays as it is if its client reads it otherwise than an edit
// would, or not at all.
func TestUnclearFiles(t *testing.T) {
	for text, why := range map[string]string{
		`{"mcpServers": {"a": {"command": "x", "env": {"A": "` + "\xff" + `"}}}}`:        "it is not valid UTF-8",
		`{"mcpServers": {"a": {"command": "x"}}, "mcpServers": {"b": {"command": "y"}}}`: "mcpServers is there twice",
	} {
		home := t.TempDir()
		path := filepath.Join(home, ".cursor/mcp.json")
		write(t, path, text)
		p := look(t, options(home))
		if f := p.Files[0]; f.Why != why || !p.Empty() {
			t.Errorf("%q: %q, want %q", text, f.Why, why)
		}
	}
}
