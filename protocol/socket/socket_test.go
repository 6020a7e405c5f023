package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// shortDir returns a temporary directory with a short path, because the path of a socket
// has a low limit.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func env(m map[string]string) func(string) string {
	return func(k string) string { return m[k] }
}

// listen makes the directory of path and listens there.
func listen(t *testing.T, path string) *Listener {
	t.Helper()
	dir, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// TestResolve checks which paths are tried, and in which order, for an option and an
// environment.
func TestResolve(t *testing.T) {
	dir := shortDir(t)
	fallback := temporary(env(nil), strconv.Itoa(os.Geteuid())) + "/daemon.sock"
	long := "/" + strings.Repeat("x", maxPath)
	for _, tt := range []struct {
		name, flag string
		env        map[string]string
		want       string
		explicit   bool
		err        error
	}{
		{"flag before variable", "/f/s", map[string]string{Env: "/e/s"}, "/f/s", true, nil},
		{"flag below the home", "~/f/s", map[string]string{"HOME": "/h"}, "/h/f/s", true, nil},
		{"variable below the home", "", map[string]string{Env: "~/e/s", "HOME": "/h"}, "/h/e/s", true, nil},
		{
			"variable before runtime directory",
			"",
			map[string]string{Env: "/e/s", "XDG_RUNTIME_DIR": dir},
			"/e/s",
			true,
			nil,
		},
		{"runtime directory", "", map[string]string{"XDG_RUNTIME_DIR": dir}, dir + "/holdline/daemon.sock", false, nil},
		{"longest", long[:maxPath], nil, long[:maxPath], true, nil},
		{"too long", long, nil, long, true, ErrTooLong},
	} {
		p, err := Resolve(tt.flag, env(tt.env))
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: Resolve = %v, want %v", tt.name, err, tt.err)
		}
		if p.Start() != tt.want || p.Explicit() != tt.explicit {
			t.Errorf("%s: start %q explicit %v, want %q %v", tt.name, p.Start(), p.Explicit(), tt.want, tt.explicit)
		}
	}
	if _, err := Resolve(long, env(nil)); err == nil || !strings.Contains(err.Error(), strconv.Itoa(maxPath)) {
		t.Errorf("too long path: error %v, want one that names the limit", err)
	}
	// Runtime directories that are relative, missing or another user's are not used.
	for _, bad := range []string{"run", filepath.Join(dir, "absent"), ""} {
		p, err := Resolve("", env(map[string]string{"XDG_RUNTIME_DIR": bad}))
		if err != nil {
			t.Fatal(err)
		}
		got := p.Candidates()
		if last := got[len(got)-1]; last.Path != fallback {
			t.Errorf("XDG_RUNTIME_DIR=%q: last candidate %q, want %q", bad, last.Path, fallback)
		}
		if strings.Contains(p.Start(), dir) || strings.HasPrefix(p.Start(), "run") {
			t.Errorf("XDG_RUNTIME_DIR=%q: start %q", bad, p.Start())
		}
	}
	t.Chdir(dir)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if p, err := Resolve("s", env(nil)); err != nil || p.Start() != filepath.Join(here, "s") {
		t.Errorf("relative flag: %q, %v", p.Start(), err)
	}
}

// TestListenAndDial checks the permissions of the socket, and what Dial returns before,
// during and after a listener.
func TestListenAndDial(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "holdline", "daemon.sock")
	e := env(map[string]string{"XDG_RUNTIME_DIR": dir, "HOME": dir})
	p, err := Resolve("", e)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(p.Candidates(), func(c Candidate) bool { return c.Path == path }) {
		t.Fatalf("candidates %v, want %s among them", p.Candidates(), path)
	}
	ln := listen(t, path)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != os.ModeSocket|0o600 {
		t.Errorf("socket mode %v, want 0600", got)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v, %v, want mode 0700", info.Mode(), err)
	}
	conn, at, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at != path {
		t.Errorf("dialled %s, want %s", at, path)
	}
	server, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*net.UnixConn{"client": conn, "server": server} {
		peer, err := CheckPeer(c)
		if err != nil || peer != (Peer{UID: os.Geteuid(), PID: os.Getpid()}) {
			t.Errorf("peer seen by the %s: %+v, %v", name, peer, err)
		}
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if HungUp(server) {
		t.Error("a half-closed peer has hung up")
	}
	conn.Close()
	if !HungUp(server) {
		t.Error("a closed peer has not hung up")
	}
	server.Close()

	if _, err := Listen(path); !errors.Is(err, ErrInUse) {
		t.Errorf("second Listen = %v, want %v", err, ErrInUse)
	}
	if !ln.Still() {
		t.Error("Still = false for a socket in its place")
	}
	ln.Close()
	ln.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v, want no file", err)
	}
	explicit, err := Resolve(path, e)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := explicit.Dial(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("Dial after Close = %v, want %v", err, ErrNoDaemon)
	}
}

// TestListenerReplaced checks that a listener does not remove the socket of another process
// that replaced its own.
func TestListenerReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "d", "s")
	first := listen(t, path)
	if err := os.Rename(path, path+"0"); err != nil {
		t.Fatal(err)
	}
	second := listen(t, path)
	if first.Still() {
		t.Error("Still = true for a socket that was replaced")
	}
	first.Close()
	if !second.Still() {
		t.Error("the replaced listener removed its successor's socket")
	}
	adopted, err := Adopt(second.UnixListener, false)
	if err != nil {
		t.Fatal(err)
	}
	adopted.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a handed socket's file is gone after Close: %v", err)
	}
}

// TestStaleSocket checks that a listener replaces a stale socket, and nothing else.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "d", "s")
	ln := listen(t, path)
	ln.UnixListener.Close() // as after a crash, the file stays
	again, err := Listen(path)
	if err != nil {
		t.Fatalf("Listen over a stale socket: %v", err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("Listen over a file = %v, want a refusal", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("the file that was in the way: %q, %v", b, err)
	}
	os.Remove(path)
	if err := os.Symlink("/dev/null", path); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil {
		t.Error("Listen over a symbolic link worked")
	}
}

// refuses checks that a directory of dir is refused for a socket as prepare leaves it, that the error says
// what to do, and that the directory stays as it is.
func refuses(t *testing.T, dir, name, want string, prepare func(path string) error) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := prepare(path); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Lstat(path)
	d, err := OpenDir(filepath.Join(path, "s"))
	if err == nil {
		d.Close()
		t.Fatalf("%s: OpenDir worked", name)
	}
	if msg := err.Error(); !strings.Contains(msg, path) || !strings.Contains(msg, Env) ||
		!strings.Contains(msg, want) {
		t.Errorf("%s: error %q, want the path, %s and %q", name, msg, Env, want)
	}
	if after, _ := os.Lstat(path); after.Mode() != before.Mode() {
		t.Errorf("%s: mode changed from %v to %v", name, before.Mode(), after.Mode())
	}
}

// TestOpenDirOfAnotherUserRoot checks that a directory of another user is refused for a socket.
func TestOpenDirOfAnotherUserRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	refuses(t, shortDir(t), "foreign", "belongs to user 1", func(p string) error {
		return errors.Join(os.Mkdir(p, 0o700), os.Chown(p, 1, 1))
	})
}

// TestOpenDirRefuses checks which directories are refused for a socket, and that the error
// says what to do.
func TestOpenDirRefuses(t *testing.T) {
	dir := shortDir(t)
	refuses(t, dir, "open", "0755", func(p string) error { return os.Mkdir(p, 0o755) })
	// The user may have named any path, so the advice must not be to remove it.
	refuses(t, dir, "mine", "or if this is one: chmod 700 ", func(p string) error { return os.Mkdir(p, 0o755) })
	refuses(t, dir, "file", "is a file or a link", func(p string) error { return os.WriteFile(p, nil, 0o600) })
	refuses(t, dir, "link", "is a file or a link", func(p string) error { return os.Symlink(t.TempDir(), p) })
	if _, err := OpenDir(filepath.Join(dir, "absent", "holdline", "s")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a parent: %v", err)
	}
	d, err := OpenDir(filepath.Join(dir, "good", "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Hold(); err != nil {
		t.Error(err)
	}
}

// TestPointer checks that a proxy that has only HOME finds the daemon of one that has
// XDG_RUNTIME_DIR.
func TestPointer(t *testing.T) {
	run, home, state := shortDir(t), shortDir(t), shortDir(t)
	full := map[string]string{"XDG_RUNTIME_DIR": run, "HOME": home, "XDG_STATE_HOME": state}
	p, err := Resolve("", env(full))
	if err != nil {
		t.Fatal(err)
	}
	path := p.Start()
	listen(t, path)
	if err := p.WritePointer(path); err != nil {
		t.Fatal(err)
	}
	files := []string{state + "/holdline/daemon.path", home + "/.local/state/holdline/daemon.path"}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", f, info, err)
		}
	}
	if left, _ := os.ReadDir(state + "/holdline"); len(left) != 1 {
		t.Errorf("state directory holds %v, want the pointer alone", left)
	}
	bare, err := Resolve("", env(map[string]string{"HOME": home}))
	if err != nil {
		t.Fatal(err)
	}
	conn, at, err := bare.Dial(t.Context())
	if err != nil || at != path {
		t.Fatalf("with HOME alone dialled %q, %v, want %q", at, err, path)
	}
	conn.Close()

	private, err := Resolve(filepath.Join(run, "p"), env(full))
	if err != nil {
		t.Fatal(err)
	}
	if err := private.WritePointer(private.Start()); err != nil {
		t.Fatal(err)
	}
	if got, _ := readPointer(files[0]); got != path {
		t.Errorf("after a private daemon the pointer is %q, want %q", got, path)
	}
	if err := p.RemovePointer("/other"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(files[0]); err != nil {
		t.Errorf("another daemon's RemovePointer: %v", err)
	}
	// The pointer of another daemon is kept, and one that was removed is written again.
	if err := os.WriteFile(files[0], []byte("/other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.RemovePointer(path), p.KeepPointer(path),
		private.KeepPointer(private.Start())); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"/other", path} {
		if got, err := readPointer(files[i]); got != want {
			t.Errorf("after KeepPointer %s is %q, %v, want %q", files[i], got, err, want)
		}
	}
	if err := p.WritePointer(path); err != nil {
		t.Fatal(err)
	}
	// A pointer that other users could have written is not used.
	if err := os.Chmod(files[1], 0o622); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(bare.Candidates(), func(c Candidate) bool { return c.Path == path }) {
		t.Error("a pointer that others can write is trusted")
	}
	os.Chmod(files[1], 0o600)
	if err := p.RemovePointer(path); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := os.Stat(f); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after RemovePointer: %v", f, err)
		}
	}
}

// TestDialBusy checks that a full backlog is reported as a busy daemon, not as no daemon.
func TestDialBusy(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(path, env(nil))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		conn, _, err := p.Dial(t.Context())
		if err != nil {
			if errors.Is(err, ErrNoDaemon) || errors.Is(err, os.ErrPermission) {
				t.Fatalf("dial of a full backlog = %v, want a passing error", err)
			}
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("the backlog does not fill here")
}

func TestDialCancelled(t *testing.T) {
	p, err := Resolve(filepath.Join(shortDir(t), "s"), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, want %v", err, context.Canceled)
	}
}
