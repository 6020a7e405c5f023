package peer

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestPeerGoneBeforeAccept checks that a client that ended before its connection was
// accepted does not count as one that may resume.
func TestPeerGoneBeforeAccept(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Skip(err)
	}
	if Of(cmd.Process.Pid).Alive() {
		t.Error("a process that has ended is alive")
	}
	if !Of(0).Alive() {
		t.Error("a process that cannot be seen is not alive")
	}
}

// TestPeerUnseen checks that a client is not given up because this process lacks the file
// descriptors to look at it.
func TestPeerUnseen(t *testing.T) {
	p := Of(os.Getppid())
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	alive, other := p.Alive(), Peer{PID: p.PID, Start: p.Start + 1}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !alive {
		t.Error("a process that cannot be looked at counts as gone")
	}
	if other.Alive() {
		t.Error("a process that has the pid by now counts as the peer")
	}
}
