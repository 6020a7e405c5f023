package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestDirectoryIsMovedAway_ItsPathOpensTheSame checks that a directory is not opened through links, and
// that who has opened it reaches it whatever is put in its place.
func TestDirectoryIsMovedAway_ItsPathOpensTheSame(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(base, name) }
	if err := errors.Join(os.MkdirAll(at("real/below"), 0o700), os.Symlink("real", at("link")),
		os.WriteFile(at("file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func(string) (*os.File, error){OpenDir, openChecked} {
		for _, name := range []string{"link", "link/below", "file", "none"} {
			if dir, err := open(at(name)); err == nil {
				t.Errorf("%s was opened as %s", name, dir.Name())
			}
		}
		dir, err := open(at("real/below"))
		if err != nil {
			t.Fatal(err)
		}
		_ = dir.Close()
	}
	dir, err := OpenDir(at("real"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if Reopen(dir) == dir.Name() {
		return // by its path alone
	}
	if err := errors.Join(os.Rename(at("real"), at("moved")), os.Symlink("/", at("real"))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(Reopen(dir), "below")); err != nil {
		t.Error(err)
	}
}
