package e2e

import (
	"os"

	"golang.org/x/sys/unix"
)

// useMemory puts temporary files into memory, if there is a directory for that with enough room, from
// which programs can be run: tests make very many small files. TMPDIR names another directory. Real
// clients have sandboxes with a /dev of their own, and systemd removes what is there at a logout.
func useMemory() {
	const dir, room = "/dev/shm", 4 << 30
	for _, other := range []string{"TMPDIR", "HOLDLINE_E2E", "HOLDLINE_LAB"} {
		if os.Getenv(other) != "" {
			return
		}
	}
	var fs unix.Statfs_t
	if unix.Access(dir, unix.W_OK) == nil && unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC &&
		fs.Flags&unix.ST_NOEXEC == 0 && fs.Bavail*uint64(fs.Bsize) >= room {
		_ = os.Setenv("TMPDIR", dir)
	}
}
