package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestDialOtherUserRoot checks that a socket of another user is refused before a byte is sent
// to it.
func TestDialOtherUserRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	made := make(chan net.Listener, 1)
	go func() {
		// The thread changes its user and is never unlocked, so that it ends with this
		// goroutine.
		runtime.LockOSThread()
		defer close(made)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 1, 1, 1); errno != 0 {
			t.Errorf("setresuid: %v", errno)
			return
		}
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Errorf("listen as another user: %v", err)
			return
		}
		made <- ln
	}()
	ln, ok := <-made
	if !ok {
		return
	}
	defer ln.Close()
	p, err := Resolve(path, env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Dial(t.Context()); !errors.Is(err, ErrOtherUser) {
		t.Errorf("Dial = %v, want %v", err, ErrOtherUser)
	}
}
