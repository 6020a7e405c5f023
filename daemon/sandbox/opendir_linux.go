package sandbox

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// OpenDir opens the directory at path, which is absolute, and follows no link on the way. With one the
// error is [syscall.ELOOP], or [syscall.ENOTDIR] if the last name is one.
func OpenDir(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.6, or in an old container
		return openChecked(path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Reopen returns a path by which a child of this process reaches the open directory, whatever is put in
// the place of the one that it was opened by.
func Reopen(dir *os.File) string {
	path := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(dir.Fd()))
	if _, err := os.Stat(path); err != nil {
		return dir.Name() // no /proc
	}
	return path
}
