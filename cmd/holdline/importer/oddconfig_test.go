package importer

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/cmd/holdline/clients"
)

// TestReadRegular checks that a named pipe or a huge file in the place of a file is refused
// at once, with a reason for the user.
func TestReadRegular(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, huge := filepath.Join(dir, "pipe"), filepath.Join(dir, "huge")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 6<<30); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "no regular file", huge: "more than"} {
		p := &Plan{Config: path}
		if err := p.readOwn(); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("holdline's configuration: %v, want %q", err, want)
		}
		if _, err := clients.ReadFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a client's file: %v, want %q", err, want)
		}
	}
}
