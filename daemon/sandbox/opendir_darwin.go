package sandbox

import "os"

// OpenDir opens the directory at path, which is absolute, and follows no link on the way. With one the
// error is [syscall.ELOOP].
func OpenDir(path string) (*os.File, error) { return openChecked(path) }

// Reopen returns the path by which the directory was opened: this system has no other.
func Reopen(dir *os.File) string { return dir.Name() }
