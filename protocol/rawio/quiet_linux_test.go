//go:build amd64 || arm64

package rawio

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestQuietPolls checks that nothing of this process waits until a quiet socket can be written, as
// the runtime does for a connection of package net.
func TestQuietPolls(t *testing.T) {
	a, b := connect(t)
	quiet := Quiet(a)
	defer quiet.Close()
	defer b.Close()
	for _, c := range []struct {
		socket Socket
		events uint32 // for which an epoll instance waits
	}{{quiet, unix.EPOLLIN | unix.EPOLLRDHUP}, {b, unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLOUT}} {
		raw, err := c.socket.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var events uint32
		if err := raw.Control(func(fd uintptr) { events = polled(t, int(fd)) }); err != nil {
			t.Fatal(err)
		}
		if events &= unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLOUT; events != c.events {
			t.Errorf("%T: events %x, want %x", c.socket, events, c.events)
		}
	}
}

// polled returns the events for which the epoll instances of this process wait at a descriptor
// (proc_pid_fdinfo(5)).
func polled(t *testing.T, fd int) (events uint32) {
	t.Helper()
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		text, _ := os.ReadFile(info) // a descriptor of another test may be closed
		for line := range strings.Lines(string(text)) {
			var target int
			var of uint32
			if n, _ := fmt.Sscanf(line, "tfd: %d events: %x", &target, &of); n == 2 && target == fd {
				events |= of
			}
		}
	}
	return events
}
