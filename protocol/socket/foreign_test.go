package socket

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// foreignDir makes a directory that this user may not use: another user's if the test runs
// as root, else one without permissions.
func foreignDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(shortDir(t), "holdline-1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	change := func() error { return os.Chmod(dir, 0) }
	if os.Geteuid() == 0 {
		change = func() error { return os.Chown(dir, 1, 1) }
	}
	if err := change(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDial_DirectoryOfAnotherUser checks that another user's directory is ignored at a path
// where this user's daemon would not listen. It is a permanent error only at the path where
// a daemon would be started, or at one that the user named.
func TestDial_DirectoryOfAnotherUser(t *testing.T) {
	dir := foreignDir(t)
	foreign := filepath.Join(dir, socketName)
	own := filepath.Join(shortDir(t), dirName, socketName)
	uid := os.Geteuid()
	fallback := []Candidate{{foreign, "fall-back"}}

	p := Paths{runtime: own, fallback: fallback, uid: uid}
	if _, _, err := p.Dial(t.Context()); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), own) {
		t.Errorf("a fall-back of another user's: %v, want %v at %s", err, ErrNoDaemon, own)
	}
	listen(t, own)
	conn, at, err := p.Dial(t.Context())
	if err != nil || at != own {
		t.Fatalf("dialled %q, %v, want %q", at, err, own)
	}
	conn.Close()

	p = Paths{fallback: fallback, uid: uid}
	if _, _, err := p.Dial(t.Context()); !refused(err) || !strings.Contains(err.Error(), "fall-back") {
		t.Errorf("where a daemon would listen: %v, want a refusal", err)
	}
	p.fallback = append([]Candidate{{own + "0", "own"}}, fallback...)
	if _, _, err := p.Dial(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("a second fall-back of another user's: %v, want %v", err, ErrNoDaemon)
	}
}

// TestDial_FullBacklogOfAnotherUserRoot checks that another user's socket that accepts no
// connection does not look like a busy daemon.
func TestDial_FullBacklogOfAnotherUserRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := foreignDir(t)
	path := filepath.Join(dir, socketName)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	p := Paths{
		runtime: filepath.Join(shortDir(t), dirName, socketName), fallback: []Candidate{{path, "fall-back"}}, uid: 0,
	}
	for range 200 {
		if _, _, err := p.Dial(t.Context()); !errors.Is(err, ErrNoDaemon) {
			t.Fatalf("Dial = %v, want %v", err, ErrNoDaemon)
		}
	}
}
