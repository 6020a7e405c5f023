package clients

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSwapMounted checks that a file that is mounted by itself, as many are in containers, gets its
// new bytes, whether these are more or fewer, and that nothing else is left.
func TestSwapMounted(t *testing.T) {
	dir := t.TempDir()
	from, path := filepath.Join(t.TempDir(), "from"), filepath.Join(dir, "mcp.json")
	old := `{"some":"text"}`
	for name, text := range map[string]string{from: old, path: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		t.Skip("this user may not mount:", err)
	}
	defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
	for _, text := range []string{`{"some":"longer text"}`, `{}`} {
		if err := (&Client{Name: "cursor"}).Swap(t.Context(), path, []byte(old), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(from); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
		old = text
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left beside it: %v, %v", entries, err)
	}
}
