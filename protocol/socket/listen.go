package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"holdline/protocol/ownfile"
)

// ErrInUse is returned by [Listen] if a process answers at the path although
// the caller holds the lock: a service manager's socket unit, for example.
var ErrInUse = errors.New("another process listens there")

// Listener is a listening socket that knows the file it made.
type Listener struct {
	*net.UnixListener
	path   string
	file   os.FileInfo // of the socket's file
	unlink bool
	once   sync.Once
	err    error
}

// Listen binds a socket with mode 0600 at path. The caller holds the daemon's
// lock and has opened the directory with [OpenDir]: only then may a stale
// socket be removed, and only a socket is removed, after no process answered.
//
// The mode comes from the umask, so the socket is at no instant open to
// others. The umask belongs to the process: call Listen at its start, before
// other goroutines make files.
func Listen(path string) (*Listener, error) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return bind(path)
}

// ListenFor is [Listen] for the socket of guests, at any time of the process. The directory of
// path is made if it is not there, and must be this user's own, writable by no other. The socket is
// this user's alone unless others is set: then each user of the machine can connect, whose
// number the caller must check. The umask must keep new files from other users.
//
// Guests may have the directory, and may replace what is in it at any moment. So the socket is made
// in a private directory beside it, and comes to its path when it is complete.
func ListenFor(path string, others bool) (*Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	dir, mode, perm := filepath.Dir(path), os.FileMode(0o600), os.FileMode(0o700)
	if others {
		mode, perm = 0o666, 0o711
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("the directory of the socket cannot be made: %w", err)
	}
	if os.Mkdir(dir, perm) == nil {
		if err := os.Chmod(dir, perm); err != nil { // the umask may have taken a part
			return nil, fmt.Errorf("the directory of the socket: %w", err)
		}
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the directory of the socket: %w", err)
	case !info.IsDir(), ownfile.Owner(info) != os.Geteuid(), info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s must be a directory of your own that no other user may write to", dir)
	case others && info.Mode().Perm()&0o011 == 0:
		return nil, fmt.Errorf("other users cannot pass %s: chmod 711 %s", dir, dir)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(dir), ".new")
	if err != nil {
		return nil, fmt.Errorf("no socket can be made beside %s: %w", dir, bare(err))
	}
	defer func() { _ = os.RemoveAll(private) }()
	made := filepath.Join(private, "s")
	l, err := bind(made)
	if err != nil {
		return nil, err
	}
	if err = os.Chmod(made, mode); err == nil {
		err = os.Rename(made, path)
	}
	l.path = path
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the socket %s: %w", path, bare(err)), l.Close())
	}
	return l, nil
}

// bind binds a socket at path, whose directory is ready, in place of a stale one.
func bind(path string) (*Listener, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("no socket can be made at %s: %w", path, bare(err))
	}
	ln.SetUnlinkOnClose(false) // see Close
	l, err := newListener(ln, path, true)
	if err != nil {
		ln.Close()
		return nil, err
	}
	return l, nil
}

// Adopt makes a Listener of a socket that was handed to this process: by a
// service manager, which keeps the file (unlink false), or by the program that
// this one replaced (unlink true).
func Adopt(ln *net.UnixListener, unlink bool) (*Listener, error) {
	ln.SetUnlinkOnClose(false)
	return newListener(ln, ln.Addr().String(), unlink)
}

// newListener returns the listener of a socket whose file is at path.
func newListener(ln *net.UnixListener, path string, unlink bool) (*Listener, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("the socket %s is gone again: %w", path, bare(err))
	}
	return &Listener{UnixListener: ln, path: path, file: info, unlink: unlink}, nil
}

// Path returns the socket's path.
func (l *Listener) Path() string { return l.path }

// Still reports whether the path still leads to this socket. If not, no client can
// find the daemon any more, and another one may have taken its place.
func (l *Listener) Still() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(info, l.file)
}

// Close stops listening and removes the socket's file if it still is ours and
// was not a service manager's. It may be called more than once.
func (l *Listener) Close() error {
	l.once.Do(func() {
		// The file goes first: between the two steps a client is refused
		// whichever comes first, but a file without listener looks like a crash.
		if l.unlink && l.Still() {
			l.err = os.Remove(l.path)
		}
		l.err = errors.Join(l.err, l.UnixListener.Close())
	})
	return l.err
}

// removeStale removes a socket that a dead daemon left behind.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("the socket's path %s cannot be used: %w", path, bare(err))
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is to be the socket, and is something else: move it away, or name another path with %s",
			path, Env)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("%s: %w", path, ErrInUse)
	case errors.Is(err, syscall.EAGAIN): // its backlog is full
		return fmt.Errorf("%s: %w", path, ErrInUse)
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("the socket %s may still be in use: %w", path, bare(err))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the socket %s, which a daemon has left, cannot be removed: %w", path, bare(err))
	}
	return nil
}
