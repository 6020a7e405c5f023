package supervisor

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRemoveFiles checks that what a worker has left of long lines goes, in a directory of any
// name, and that nothing else does.
func TestRemoveFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "with [brackets]*")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stdout", "stdout.new", "calls.jsonl", "calls.jsonl.new", "long.1", "in.23", "answer.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := New(Options{RuntimeDir: t.TempDir(), StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err := s.Clear(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"answer.json", "calls.jsonl"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left is %q, want %q: %v", left, want, err)
	}
}
