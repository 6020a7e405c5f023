package socket

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListenFor checks which modes the socket of guests and its directory get, that the modes of what
// is there already stay, and that what guests put in its place is replaced and not followed.
func TestListenFor(t *testing.T) {
	base, err := os.MkdirTemp("", "hlg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	mode := func(path string) os.FileMode {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	listen := func(path string, others bool, dirMode, sockMode os.FileMode) *Listener {
		t.Helper()
		l, err := ListenFor(path, others)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if got := mode(filepath.Dir(path)); got != dirMode {
			t.Errorf("the directory of %s has mode %#o, want %#o", path, got, dirMode)
		}
		if got := mode(path); got != sockMode {
			t.Errorf("%s has mode %#o, want %#o", path, got, sockMode)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if names, _ := filepath.Glob(filepath.Join(base, ".new*")); len(names) > 0 {
			t.Errorf("left: %q", names)
		}
		return l
	}
	listen(filepath.Join(base, "mine", "s"), false, 0o700, 0o600)
	open := filepath.Join(base, "open", "s")
	listen(open, true, 0o711, 0o666)

	// The path leads elsewhere: nothing there changes.
	victim := filepath.Join(base, "victim")
	if err := os.WriteFile(victim, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(base, "linked", "s")
	if err := os.Mkdir(filepath.Dir(linked), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, linked); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenFor(linked, true); err == nil || !strings.Contains(err.Error(), "is something else") {
		t.Errorf("at a link: %v", err)
	}
	if b, err := os.ReadFile(victim); string(b) != "x" || err != nil || mode(victim) != 0o600 {
		t.Errorf("the file behind a link has %q, %v, mode %#o", b, err, mode(victim))
	}

	closed := filepath.Join(base, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenFor(filepath.Join(closed, "s"), true); err == nil || !strings.Contains(err.Error(), "chmod 711") {
		t.Errorf("in a directory that is closed: %v", err)
	}
	if mode(closed) != 0o700 {
		t.Errorf("the directory has mode %#o now", mode(closed))
	}
}
