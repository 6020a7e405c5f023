package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLookPath checks that only an executable file in an absolute directory of PATH is
// found.
func TestLookPath(t *testing.T) {
	dir, second := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(dir, "prog"): 0o755, filepath.Join(dir, "data"): 0o644,
		filepath.Join(second, "prog"): 0o755, filepath.Join(second, "data"): 0o755,
		filepath.Join(second, "other"): 0o644,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	both := dir + ":" + second
	for _, c := range []struct {
		name, path, want string
		err              error
	}{
		{"prog", both, filepath.Join(dir, "prog"), nil},
		{"prog", second + ":" + dir, filepath.Join(second, "prog"), nil},
		{"data", both, filepath.Join(second, "data"), nil},
		{"other", both, "", syscall.EACCES},
		{"none", both, "", syscall.ENOENT},
		{filepath.Join(dir, "prog"), "", filepath.Join(dir, "prog"), nil},
		{"prog", "", "", syscall.ENOENT},
		{"prog", ".", "", syscall.ENOENT},
		{"prog", ":", "", syscall.ENOENT},
		{"prog", "::../" + filepath.Base(dir), "", syscall.ENOENT},
		{"prog", ".:" + second + ":", filepath.Join(second, "prog"), nil},
	} {
		got, err := LookPath(c.name, c.path)
		if c.err != nil && got == "" && errors.Is(err, c.err) || c.err == nil && err == nil && got == c.want {
			continue
		}
		t.Errorf("LookPath(%q, %q) = %q, %v, want %q, %v", c.name, c.path, got, err, c.want, c.err)
	}
}

// TestLookPathSaysWhere checks that the error names the directories that were searched.
func TestLookPathSaysWhere(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	path := "/nowhere:" + dir
	for name, want := range map[string]string{
		"none": "none is in none of /nowhere, " + dir, "data": filepath.Join(dir, "data") + " is no program (",
		filepath.Join(dir, "data"): " is no program (-rw-r--r--)", filepath.Join(dir, "none"): "none is not there",
	} {
		if _, err := LookPath(name, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("LookPath(%s) = %v, want %q", name, err, want)
		}
	}
}

// TestSafePath checks that relative and empty elements are removed from a PATH.
func TestSafePath(t *testing.T) {
	for path, want := range map[string]string{
		"": "", ":": "", ".": "", "a:b/c:./d": "", "/a:/b": "/a:/b", ":/a:.:/b:/a:": "/a:/b",
	} {
		if got := SafePath(path); got != want {
			t.Errorf("SafePath(%q) = %q, want %q", path, got, want)
		}
	}
}
