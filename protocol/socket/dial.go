package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdline/protocol/ownfile"
)

// ErrNoDaemon is wrapped by [Paths.Dial] if no daemon listens at any path.
var ErrNoDaemon = errors.New("no daemon")

// ErrOtherUser is wrapped by [CheckPeer] and [Paths.Dial] if the other end is
// another user's.
var ErrOtherUser = errors.New("it belongs to another user")

// Peer is the process at the other end of a connection, as the kernel says.
type Peer struct {
	UID int
	PID int // 0 if the system does not say; of the process that connected or listened
}

// Dial connects to the first candidate at which a daemon of this user
// listens, and says which that was. The error wraps [ErrNoDaemon] if there is
// none, and anything else may pass: a full backlog, for example. It wraps
// os.ErrPermission or [ErrOtherUser] if what is at [Paths.Start] must not or
// cannot be used, since no daemon can listen there. At any other candidate that
// counts as no daemon: other users can make what they like in a shared directory.
func (p Paths) Dial(ctx context.Context) (*net.UnixConn, string, error) {
	var tried []string
	var hard error
	for c := range p.each {
		conn, err := p.dial(ctx, c.Path)
		switch {
		case err == nil:
			return conn, c.Path, nil
		case refused(err) && c.Path == p.Start():
			hard = fmt.Errorf("%w (the path is from %s)", err, c.Origin)
		case isAbsent(err), refused(err):
			tried = append(tried, c.Path)
		default:
			return nil, c.Path, err
		}
	}
	if hard != nil {
		return nil, "", hard
	}
	if mark := p.Stopped(); mark != nil {
		return nil, "", mark
	}
	return nil, "", fmt.Errorf("%w listens at %s", ErrNoDaemon, strings.Join(tried, ", "))
}

// refused reports whether err says that what is at a path is not for this user.
func refused(err error) bool {
	return errors.Is(err, ErrOtherUser) || errors.Is(err, os.ErrPermission)
}

// dial connects, and checks before a byte is sent that the other end is a
// process of this user: in a shared directory other users may listen. It does
// not even connect in a directory that belongs to another user, unless the user
// named the path: a full backlog there would look like a busy daemon.
func (p Paths) dial(ctx context.Context, path string) (*net.UnixConn, error) {
	if dir := filepath.Dir(path); !p.Explicit() {
		if info, err := os.Lstat(dir); err == nil && ownfile.Owner(info) != p.uid && ownfile.Owner(info) > 0 {
			return nil, fmt.Errorf("the socket's directory %s cannot be used: %w (%d)", dir, ErrOtherUser, ownfile.Owner(info))
		}
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("the socket %s cannot be used: %w", path, bare(err))
	}
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("%s is no unix socket", path)
	}
	if _, err := CheckPeer(uc); err != nil && !p.guest {
		uc.Close()
		return nil, fmt.Errorf("what listens at %s cannot be used: %w", path, err)
	}
	return uc, nil
}

// isAbsent reports whether err says that no process listens at a path.
func isAbsent(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.ENOENT, syscall.ECONNREFUSED, syscall.ENOTDIR, syscall.ELOOP, syscall.ENOTSOCK, syscall.EPROTOTYPE,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// CheckPeer returns the process at the other end. The error wraps [ErrOtherUser] if
// that is another user's; the Peer is valid with that error, too.
func CheckPeer(c *net.UnixConn) (Peer, error) {
	peer, err := PeerOf(c)
	if err != nil {
		return peer, err
	}
	if peer.UID != os.Geteuid() {
		return peer, fmt.Errorf("%w (%d, not %d)", ErrOtherUser, peer.UID, os.Geteuid())
	}
	return peer, nil
}

// PeerOf returns the process at the other end of c: for a listener the one that
// connected, for a client the one that called listen.
func PeerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	var peer Peer
	var inner error
	if err := raw.Control(func(fd uintptr) { peer, inner = peerOf(int(fd)) }); err != nil {
		inner = err
	}
	if inner != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", inner)
	}
	return peer, nil
}

// HungUp reports whether the other end of c is closed, though bytes of
// it may still wait to be read. A half-closed peer has not hung up.
func HungUp(c syscall.Conn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP and POLLERR need no asking
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}
