// Package ownfiletest makes files for tests of package ownfile and of those who use it.
package ownfiletest

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a new file with that text at path, by itself, as files from the host of a container
// often are, until the test ends. It returns the path of the file that was mounted. It skips the
// test if this user may not mount.
func Mount(tb testing.TB, path, text string) (from string) {
	tb.Helper()
	from = filepath.Join(tb.TempDir(), "from")
	for name, text := range map[string]string{from: text, path: ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		tb.Skip("this user may not mount:", err)
	}
	tb.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return from
}
