package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestStrayFiles_GoWithTheNextDaemon checks that the next daemon removes the temporary file
// of a daemon that was killed while it replaced a file, in every directory.
func TestStrayFiles_GoWithTheNextDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	// A pid above all, and that of this process with the start time of an earlier one.
	writers := []string{"4194305.7", fmt.Sprintf("%d.1", os.Getpid())}
	var stray []string
	for _, dir := range []string{
		"run/holdline", "home/.local/state/holdline", "home/.local/state/holdline/catalog",
		"home/.local/state/holdline/servers",
	} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, writer := range writers {
			path := filepath.Join(p.dir, dir, ".tools.json."+writer+"-7")
			if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
			stray = append(stray, path)
		}
	}
	p.daemon()
	p.status()
	for _, path := range stray {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
}
