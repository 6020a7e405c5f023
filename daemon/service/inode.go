package service

import (
	"os"
	"syscall"
)

// inode returns which file info describes.
func inode(info os.FileInfo) (dev, ino uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(st.Dev), st.Ino, true //nolint:unconvert // the width of Dev depends on the system
}
