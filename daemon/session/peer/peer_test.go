package peer

import (
	"os/exec"
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
