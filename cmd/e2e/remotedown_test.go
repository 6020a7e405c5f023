package e2e

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdline/protocol/control"
)

// reserve returns a port of this machine that nobody listens on, and which no other program gets during
// the test: it is bound. A server of the test can listen on it.
func reserve(t *testing.T) (address string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	unix.CloseOnExec(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String() //nolint:forcetypeassert // it was bound so
}

// TestServerByAddressIsDown_ShownAndBackByItself has a remote server that is down when its first
// session comes, and later goes down after a call. Each time its state says so, and it works again without
// a command once it is up.
func TestServerByAddressIsDown_ShownAndBackByItself(t *testing.T) {
	t.Parallel()
	f := newFar(t, false)
	address := reserve(t)
	f.url = "http://" + address
	up := func() (down func()) {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: f.serve}
		go func() { _ = s.Serve(l) }()
		down = func() { _ = s.Close() }
		t.Cleanup(down)
		return down
	}
	p := newPlace(t).remote(f, f.token).login()
	a := p.agent().shake()
	isDown := func() {
		t.Helper()
		s := p.until("the server is shown as unreachable", func(s control.StatusAnswer) bool {
			return find(t, s, "far").State == "unreachable"
		})
		if one := find(t, s, "far"); one.UnreachableMS == 0 || !strings.Contains(one.Unreachable, "cannot be reached") {
			t.Errorf("the server: %+v", one)
		}
		if x := a.ask("tools/call", map[string]any{"name": "health_snapshot"}); !strings.Contains(x.text(),
			"\nfar: has been unreachable for ") {
			t.Errorf("the health: %s", x.raw)
		}
	}
	works := func(token string) {
		t.Helper()
		p.until("the server is back by itself", func(s control.StatusAnswer) bool {
			one := find(t, s, "far")
			return one.State == "ready" && one.Unreachable == "" && one.UnreachableMS == 0 && one.Circuit == "closed"
		})
		x := a.wait(a.call("far__slow", map[string]any{"token": token, "ms": 0}))
		if x.text() != "did "+token || f.times(token) != 1 {
			t.Errorf("a call when the server is back: %s", x.raw)
		}
	}
	isDown()
	down := up()
	works("first")
	down()
	for range 3 { // one may have been sent on the earlier call's connection, which was being closed
		x := a.wait(a.call("far__slow", map[string]any{"token": "lost", "ms": 0}))
		if x.code() == "transport_failure" {
			break
		}
	}
	isDown()
	up()
	works("second")
	if s := p.server("far"); s.Ejected || s.Restarts != 0 {
		t.Errorf("the server: %+v", s)
	}
	a.rest()
}
