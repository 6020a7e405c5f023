package sandbox

import (
	"os"
	"path/filepath"
	"syscall"
)

// openChecked opens the directory at path where the system cannot refuse links on the way: it looks for
// links behind that.
func openChecked(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	opened, err := dir.Stat()
	if err == nil {
		var resolved string
		var there os.FileInfo
		if resolved, err = filepath.EvalSymlinks(path); err == nil {
			there, err = os.Lstat(resolved)
		}
		if err == nil && (resolved != filepath.Clean(path) || !os.SameFile(opened, there)) {
			err = &os.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}
