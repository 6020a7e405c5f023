package e2e

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// TestRootInAnothersHome_RefusedAndChangesNothing checks that root who works in the home of a user, as with sudo, is told so
// by each command, and leaves no file there that the user's daemon could not use. With a home of its own, root is told
// that the user's daemon is another one.
func TestRootInAnothersHome_RefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can work in another user's home")
	}
	const nobody = 65534
	p := newPlace(t)
	home := filepath.Join(p.dir, "home")
	give := func(path string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(path, 0o700), os.Chown(path, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	give(home)
	if _, errs, code := p.run("", "status"); code != exitNoDaemon || strings.Contains(errs, "root") {
		t.Errorf("a container whose root has such a home: exit %d, %s", code, errs)
	}
	plain := p.env
	refused := func(when string) {
		t.Helper()
		before := filesBelow(t, home)
		for _, args := range [][]string{
			{},
			{"status"},
			{"start"},
			{"stop"},
			{"servers"},
			{"servers", "add", "x", "--no-check", "--", "cat"},
			{"doctor"},
			{"logs"},
			{"config", "set", "consult.timeout", "30m"},
			{"setup", "--dry-run"},
			{"install", "--bin"},
			{"uninstall", "--yes"},
			{"env", "set", "A=b"},
			{"consult", "list"},
			{"import"},
			{"reload"},
			{"hosts"},
			{"telemetry"},
			{"sessions"},
		} {
			out, errs, code := p.run("", args...)
			if code != exitFailure || !strings.HasPrefix(errs, "holdline: you are root, and HOME is that of nobody: ") ||
				!strings.Contains(errs, "\nhint: run it as nobody, without sudo: holdline") {
				t.Errorf("%s: %v: exit %d\n%s%s", when, args, code, out, errs)
			}
		}
		if after := filesBelow(t, home); !maps.Equal(before, after) {
			t.Errorf("%s: of %v became %v", when, before, after)
		}
		for _, args := range [][]string{{"version"}, {"--help"}, {"status", "--help"}, {"config", "path"}, {"completion", "bash"}} {
			if _, errs, code := p.run("", args...); code != exitOK {
				t.Errorf("%s: %v: exit %d, %s", when, args, code, errs)
			}
		}
	}
	p.env = append(slices.Clone(plain), "SUDO_UID=65534", "SUDO_USER=nobody")
	refused("by sudo")
	p.env = plain
	for _, dir := range []string{".local", ".local/state", ".local/state/holdline"} {
		give(filepath.Join(home, dir))
	}
	refused("by su, and the user has Holdline")
	if err := os.Chown(home, 0, 0); err != nil {
		t.Fatal(err)
	}
	p.env = append(slices.Clone(plain), "SUDO_UID=65534", "SUDO_USER=nobody")
	if _, errs, code := p.run("", "status"); code != exitNoDaemon || !strings.Contains(errs, "hint: you are root; nobody ") {
		t.Errorf("in root's own home: exit %d, %s", code, errs)
	}
}
