package session

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// waitHangup returns when the peer has closed both directions of conn, or
// when ctx is done.
func waitHangup(ctx context.Context, conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	tick := time.NewTicker(hangupPoll)
	defer tick.Stop()
	for {
		hungUp := false
		err := raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n, err := unix.Poll(fds, 0)
			hungUp = err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
		})
		if err != nil || hungUp {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
