package clients

import (
	"os"
	"path/filepath"
	"testing"

	"holdline/daemon/clienttable"
	"holdline/protocol/ownfile/ownfiletest"
)

// TestSwapMounted checks that a file that is mounted by itself, as many are in containers, gets its
// new bytes, whether these are more or fewer, and that nothing else is left.
func TestSwapMounted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	old := `{"some":"text"}`
	from := ownfiletest.Mount(t, path, old)
	for _, text := range []string{`{"some":"longer text"}`, `{}`} {
		if err := (&Client{clienttable.Row{Name: "cursor"}}).Swap(t.Context(), path, []byte(old), []byte(text)); err != nil {
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
