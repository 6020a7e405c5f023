package socket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/protocol/ownfile"
)

// Dir is the directory that holds the socket, opened and checked.
type Dir struct {
	f    *os.File
	path string
}

// OpenDir makes the directory of the socket path with mode 0700, if it is not
// there, and opens it. A directory that is a symbolic link, another user's
// or open to others is an error and is never repaired: its maker may hold files in
// it open. The parent must exist. The caller closes the Dir.
func OpenDir(socket string) (*Dir, error) {
	if err := CheckPath(socket); err != nil {
		return nil, err
	}
	path := filepath.Dir(socket)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("the socket's directory %s cannot be made: %w; %s names another socket",
			path, bare(err), Env)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR): // a link gives one or the other
		return nil, fmt.Errorf("%s is to be a directory for the socket, and is a file or a link: move it away, "+
			"or name another socket with %s", path, Env)
	case err != nil:
		return nil, fmt.Errorf("the socket's directory %s cannot be opened: %w; %s names another socket",
			path, bare(err), Env)
	}
	d := &Dir{f: f, path: path}
	if err := d.check(); err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// check returns an error unless the directory is this user's and closed to others.
func (d *Dir) check() error {
	info, err := d.f.Stat()
	if err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	uid, perm := ownfile.Owner(info), info.Mode().Perm()
	switch {
	case uid != os.Geteuid():
		return fmt.Errorf("the socket's directory %s belongs to user %d, not to you: "+
			"have it removed, or name another socket with %s", d.path, uid, Env)
	case perm != 0o700:
		return fmt.Errorf("the socket's directory %s has mode %#o, and no other user may open it: "+
			"name a socket in a directory of its own with %s, or if this is one: chmod 700 %s",
			d.path, perm, Env, d.path)
	}
	return nil
}

// Path returns the directory's path.
func (d *Dir) Path() string { return d.path }

// Hold takes a shared flock on the directory for as long as the Dir is open,
// so that cleaners of temporary files (systemd-tmpfiles) leave it alone.
func (d *Dir) Hold() error {
	if err := unix.Flock(int(d.f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return fmt.Errorf("hold socket directory %s: %w", d.path, err)
	}
	return nil
}

// bare returns the reason of a failed operation without the operation and its path, which the
// caller says in words; it returns err if that has none.
func bare(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// Close closes the directory and ends [Dir.Hold].
func (d *Dir) Close() error { return d.f.Close() }
