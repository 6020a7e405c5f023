package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/ttytest"
)

// TestCommandsStartTheDaemon checks that a command which starts the daemon says so on a terminal,
// in a line of its own and once, and says nothing of it in a pipe.
func TestCommandsStartTheDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	const words = "Holdline was not running, and is started now\n"
	args := []string{"--color", "never", "servers", "tools", "tools"}
	for _, want := range []int{1, 0} {
		shown := ttytest.OnScreen(t, func(tty *os.File) {
			cmd := p.command(args...)
			cmd.Stdout, cmd.Stderr = tty, tty
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
		if got := strings.Count(strings.ReplaceAll(shown, "\r\x1b[K", ""), words); got != want {
			t.Errorf("it is said %d times, want %d:\n%q", got, want, shown)
		}
	}
	p.stopForNow("--all")
	if _, errs, code := p.run("", args...); code != exitOK || strings.Contains(errs, "started") {
		t.Errorf("in a pipe: exit %d\n%s", code, errs)
	}
}

// TestNoUsableSocket checks what a user reads if the daemon's socket cannot be where it belongs:
// what is there, and what helps, without the words of the operating system's calls.
func TestNoUsableSocket(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	at := filepath.Join(p.dir, "run/holdline")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"start"}, {"consult", "x"}} {
		_, errs, code := p.run("", args...)
		if want := "holdline: the daemon did not start: " + at + " is to be a directory for the socket, and is a " +
			"file or a link: move it away, or name another socket with HOLDLINE_SOCKET\n"; code != exitFailure ||
			!strings.HasPrefix(errs, want) {
			t.Errorf("%q: exit %d\n%swant\n%s", args, code, errs, want)
		}
	}
}

// TestSocketDirOfAnotherUserRoot checks what a user reads if the socket's directory belongs to another user.
func TestSocketDirOfAnotherUserRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	p := newPlace(t).login()
	at := filepath.Join(p.dir, "run/holdline")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(at, 1, 1); err != nil {
		t.Fatal(err)
	}
	_, errs, code := p.run("", "status")
	want := "holdline: the daemon cannot be reached: the socket's directory " + at + " cannot be used: it belongs to " +
		"another user (1) (the path is from XDG_RUNTIME_DIR)\nhint: holdline doctor says what is wrong; "
	if code != exitFailure || !strings.HasPrefix(errs, want) {
		t.Errorf("status: exit %d\n%swant\n%s", code, errs, want)
	}
}
