package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManagerDoesNotAnswer checks that where systemd has to start the daemon and does not
// answer, no proxy and no command starts one, and that each says why and what to do.
func TestManagerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	units := filepath.Join(p.dir, "home/.config/systemd/user")
	wants := filepath.Join(units, "sockets.target.wants")
	for _, dir := range []string{wants, filepath.Join(p.dir, "run/systemd")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(units, "holdline.socket"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../holdline.socket", filepath.Join(wants, "holdline.socket")); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(p.dir, "run/systemd/private"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close() // the socket of a systemd that has ended
	for _, args := range [][]string{{"mcp-stdio"}, {"mcp-stdio", "--no-autostart"}, {"consult", "hello"}} {
		_, errs, code := p.run(piped, args...)
		if code == exitOK || !strings.Contains(errs, "systemd is to start the daemon, and does not answer") ||
			!strings.Contains(errs, "\nhint: systemctl --user status holdline.socket\n") {
			t.Errorf("%q: exit %d\n%s", args, code, errs)
		}
	}
	// What asks for the reason starts nothing, whoever asks.
	if _, errs, code := p.run("", "daemon", "--why"); code != 5 || strings.Count(errs, "\n") != 2 {
		t.Errorf("daemon --why: exit %d\n%s", code, errs)
	}
	if _, _, code := p.run("", "status"); code != exitNoDaemon {
		t.Errorf("status: exit %d, want no daemon", code)
	}
}
