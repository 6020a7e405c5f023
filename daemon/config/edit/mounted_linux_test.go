package edit

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSwapMounted checks that a configuration that is mounted by itself, as from the host of a
// container, gets its new bytes, and that no other file is left.
func TestSwapMounted(t *testing.T) {
	dir := t.TempDir()
	from, path := filepath.Join(t.TempDir(), "from"), filepath.Join(dir, "config.json")
	old := `{"servers":{"a":{"command":"b"}}}`
	for name, text := range map[string]string{from: old, path: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		t.Skip("this user may not mount:", err)
	}
	defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
	if err := Swap(t.Context(), path, []byte(old), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(from); err != nil || string(got) != `{}` {
		t.Errorf("%q, %v", got, err)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "config.json" && e.Name() != ".lock" {
			t.Errorf("left beside it: %s, %v", e.Name(), err)
		}
	}
}
