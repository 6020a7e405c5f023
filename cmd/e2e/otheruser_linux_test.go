package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol"
)

// TestOtherUserRoot checks that another user who can reach the socket, which should be
// impossible, is refused because of the user id that the kernel reports.
func TestOtherUserRoot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	p := newPlace(t)
	p.daemon()
	const nobody = 65534
	sock := filepath.Join(p.dir, "run/holdline/daemon.sock")
	say := func() string {
		t.Helper()
		cmd := p.copier(sock)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Stdin = strings.NewReader(`{"holdline":1,"role":"mcp","resume":false}` + "\n" +
			`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
		out, _ := cmd.Output() // it fails if it cannot connect
		return string(out)
	}
	// Open the way to the socket, except for the modes that holdline itself has set.
	p.letPass(t, p.dir, filepath.Join(p.dir, "run"))
	if got := say(); got != "" {
		t.Errorf("through the modes came %q", got)
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(sock): 0o711, sock: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if got := say(); strings.Contains(got, `"result"`) || !strings.Contains(got, protocol.RefusedIdentity) {
		t.Errorf("another user was told %q", got)
	}
}

// letPass lets other users pass the directories, and run the program that copies to a socket.
func (p *place) letPass(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range append(dirs, filepath.Dir(programs), programs) {
		if info, err := os.Stat(dir); err != nil {
			t.Fatal(err)
		} else if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(p.copier().Path, 0o755); err != nil {
		t.Fatal(err)
	}
}
