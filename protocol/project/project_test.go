package project

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestKey checks that all directories of a work tree have one key, and directories
// outside of one each their own.
func TestKey(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repo, deep, other := filepath.Join(root, "repo"), filepath.Join(root, "repo", "a", "b"),
		filepath.Join(root, "other")
	os.MkdirAll(deep, 0o755)
	os.MkdirAll(other, 0o755)
	os.WriteFile(filepath.Join(repo, ".git"), []byte("gitdir: elsewhere\n"), 0o644) // as in a worktree
	link := filepath.Join(root, "link")
	os.Symlink(deep, link)
	want := Key(repo)
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(want) {
		t.Errorf("key %q", want)
	}
	for _, dir := range []string{deep, link, filepath.Dir(deep)} {
		if got := Key(dir); got != want {
			t.Errorf("key of %s = %s, want that of the repository, %s", dir, got, want)
		}
	}
	if Key(other) == want || Key(other) == Key(root) {
		t.Error("directories without .git share a key")
	}
}

// TestRootIgnoresFiles checks that what a directory has in it does not matter, whatever its name
// and wherever a link leads.
func TestRootIgnoresFiles(t *testing.T) {
	root := t.TempDir()
	repo, other := filepath.Join(root, "repo"), filepath.Join(root, "other")
	os.MkdirAll(filepath.Join(repo, ".git"), 0o755)
	os.MkdirAll(filepath.Join(other, ".git"), 0o755)
	want := Key(repo)
	for _, name := range []string{"x", "a", "main.go"} {
		if err := os.Symlink(filepath.Join(other, ".git"), filepath.Join(repo, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := Root(repo); got != repo {
		t.Errorf("root %s, want %s", got, repo)
	}
	if got := Key(repo); got != want {
		t.Errorf("key %s, want %s", got, want)
	}
}
