package importer

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPending checks that what an undo could not reach, for example in a broken file, is
// left for a later undo.
func TestPending(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	path := filepath.Join(home, ".cursor/mcp.json")
	write(t, path, `{"mcpServers": {"a": {"command": "x"}}}`)
	was := tree(t, home)
	carryOut(t, look(t, o))
	imported := read(t, path)
	write(t, path, imported[1:])
	if d := undo(t, o); len(d.Left) != 1 || d.Left[0].Key != "" {
		t.Errorf("left %v", d.Left)
	}
	if more, left, err := Pending(o.State); !more || left != nil || err != nil {
		t.Errorf("a broken file: pending %v, left %v, %v", more, left, err)
	}
	write(t, path, imported)
	undo(t, o)
	if more, left, err := Pending(o.State); more || left != nil || err != nil {
		t.Errorf("pending %v, left %v, %v", more, left, err)
	}
	sameTree(t, tree(t, home), was)
}

// TestJournalDamaged_UndoNamesItAndRevertsNothing checks that an undo whose journal is damaged or gone says
// so, with the path, and leaves all files and copies as they are; it does not take it for an import that
// had not begun. Once the journal is whole again, the undo reverts the import.
func TestJournalDamaged_UndoNamesItAndRevertsNothing(t *testing.T) {
	for name, damage := range map[string]func(text string) string{
		"emptied":       func(string) string { return "" },
		"halved":        func(text string) string { return text[:len(text)/2] },
		"an object":     func(string) string { return "{}" },
		"no edits":      func(string) string { return `{"version": 1}` },
		"another path":  func(text string) string { return strings.Replace(text, ".cursor", ".cursos", 1) },
		"gone":          nil,
		"without its k": func(text string) string { return strings.Replace(text, `"keys"`, `"keyz"`, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			o := options(home)
			write(t, filepath.Join(home, ".cursor/mcp.json"), `{"mcpServers": {"a": {"command": "x"}}}`)
			was := tree(t, home)
			path := filepath.Join(carryOut(t, look(t, o)).Backup, "journal.json")
			whole := read(t, path)
			if damage == nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else {
				write(t, path, damage(whole))
			}
			before := tree(t, home)
			if _, err := Undo(t.Context(), o); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("the undo: %v, want an error that names %s", err, path)
			}
			if _, _, err := Pending(o.State); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("pending: %v, want an error that names %s", err, path)
			}
			sameTree(t, tree(t, home), before)
			write(t, path, whole)
			undo(t, o)
			sameTree(t, tree(t, home), was)
		})
	}
}

// TestSecretsStay checks that holdline's file is readable by its user alone, even if every
// user could read the client's file, and that nothing is moved into a git work tree without
// being asked.
func TestSecretsStay(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "SECRET"}}}}`)
	write(t, o.Config, "{} // mine\n")
	if err := os.Chmod(o.Config, 0o644); err != nil {
		t.Fatal(err)
	}
	before := tree(t, home)
	p := look(t, o)
	var shown bytes.Buffer
	p.Print(&shown)
	if !strings.Contains(shown.String(), "(mode 0644 becomes 0600: ") {
		t.Errorf("the plan:\n%s", &shown)
	}
	carryOut(t, p)
	if info, err := os.Stat(o.Config); err != nil || info.Mode() != 0o600 ||
		!strings.Contains(read(t, o.Config), "SECRET") {
		t.Errorf("%v, %v: %s", info.Mode(), err, read(t, o.Config))
	}
	undo(t, o)
	sameTree(t, tree(t, home), before)

	write(t, filepath.Join(filepath.Dir(o.Config), ".git"), "")
	before = tree(t, home)
	p = look(t, o)
	if s := p.Files[0].Servers[0]; s.Verdict != Stays || !strings.Contains(s.Why, "git work tree") {
		t.Errorf("server %+v", s)
	}
	carryOut(t, p)
	if strings.Contains(read(t, o.Config), "SECRET") {
		t.Errorf("holdline's file: %s", read(t, o.Config))
	}
	undo(t, o)
	sameTree(t, tree(t, home), before)
	o.Project = true
	carryOut(t, look(t, o))
	if !strings.Contains(read(t, o.Config), "SECRET") {
		t.Errorf("holdline's file: %s", read(t, o.Config))
	}
	undo(t, o)
	sameTree(t, tree(t, home), before)
}

// TestClaudeElsewhere checks that with CLAUDE_CONFIG_DIR Claude Code's file and logins are
// read there, and that the directory alone shows that Claude Code is used.
func TestClaudeElsewhere(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	dir := filepath.Join(home, "elsewhere")
	o.Getenv = func(name string) string { return map[string]string{"CLAUDE_CONFIG_DIR": dir}[name] }
	write(t, filepath.Join(dir, "settings.json"), "{}")
	before := tree(t, home)
	p := look(t, o)
	if len(p.Files) != 1 || p.Files[0].Path != filepath.Join(dir, ".claude.json") || p.Files[0].Consult == "" {
		t.Fatalf("files %+v", p.Files)
	}
	carryOut(t, p)
	undo(t, o)
	sameTree(t, tree(t, home), before)
	write(t, filepath.Join(dir, ".claude.json"), `{"mcpServers": {"a": {"type": "http", "url": "https://a/mcp"}}}`)
	write(t, filepath.Join(dir, ".credentials.json"),
		`{"mcpOAuth": {"a|1": {"serverName": "a", "serverUrl": "https://a/mcp", "accessToken": "x"}}}`)
	if s := look(t, o).Files[0].Servers[0]; s.Verdict != Moves || !slices.Contains(s.Notes, "log in once: holdline servers login a") {
		t.Errorf("server %+v", s)
	}
}
