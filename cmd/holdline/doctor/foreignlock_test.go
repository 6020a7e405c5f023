package doctor

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/socket"
)

// TestForeignLock checks that something else in the place of a lock file, which keeps every
// daemon from starting, is a problem with its fix.
func TestForeignLock(t *testing.T) {
	dir := t.TempDir()
	if f := checkLock(dir, "daemon"); f.State != OK {
		t.Errorf("without a lock file: %+v", f)
	}
	path := filepath.Join(dir, socket.LockFile)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f := checkLock(dir, "daemon")
	if f.State != Problem || !strings.Contains(f.What, path+" is a named pipe") || f.Why == "" ||
		!strings.Contains(f.Fix, path) {
		t.Errorf("with a named pipe in its place: %+v", f)
	}
}
