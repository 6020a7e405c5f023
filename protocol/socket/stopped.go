package socket

import (
	"os"
	"path/filepath"

	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
)

// IsStopped reports whether the user has stopped the daemon of the runtime directory dir. A mark that can be
// read, and has a time that has not come yet, is damaged and not believed.
func IsStopped(dir string) bool {
	path := filepath.Join(dir, StoppedFile)
	if _, err := os.Lstat(path); err != nil {
		return false
	}
	mark, err := ownfile.Read(path, ownfile.MaxNumber)
	return err != nil || !bootclock.InFuture(mark)
}
