package edit

import (
	"os"
	"path/filepath"
	"testing"

	"holdline/protocol/ownfile/ownfiletest"
)

// TestSwapMounted checks that a configuration that is mounted by itself, as from the host of a
// container, gets its new bytes, and that no other file is left.
func TestSwapMounted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	old := `{"servers":{"a":{"command":"b"}}}`
	from := ownfiletest.Mount(t, path, old)
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
