package attach

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdline/daemon/adapter/engines"
	"holdline/daemon/userenv"
	"holdline/protocol/socket"
)

func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS") == "daemon" {
		os.Exit(testDaemon())
	}
	os.Exit(m.Run())
}

// testDaemon is a started daemon, played by this test binary. It prints its environment and
// exits, or listens until its connection is closed.
func testDaemon() int {
	switch os.Getenv("TEST_DAEMON") {
	case "fail":
		fmt.Println("of another daemon that was started") // another daemon may log to the same file
		fmt.Fprintln(os.Stderr, "config.json:3:4: bad configuration")
		return 1
	case "yield":
		return 0
	}
	paths, err := socket.Resolve("", os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := socket.OpenDir(paths.Start())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer dir.Close()
	ln, err := socket.Listen(paths.Start())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cwd, _ := os.Getwd()
	sid, _ := unix.Getsid(0)
	in, _ := io.ReadAll(os.Stdin)
	fds, _ := os.ReadDir("/dev/fd")
	fmt.Printf("cwd=%s leader=%v stdin=%d leaked=%v env=%q\n", cwd, sid == os.Getpid(), len(in), leaked(fds),
		os.Environ())
	conn, err := ln.Accept()
	if err != nil {
		return 1
	}
	io.Copy(io.Discard, conn)
	ln.Close()
	return 0
}

// leaked reports whether a descriptor refers to the marker file of the test.
func leaked(fds []os.DirEntry) bool {
	for _, fd := range fds {
		if to, err := os.Readlink("/dev/fd/" + fd.Name()); err == nil && strings.HasSuffix(to, "/leak-marker") {
			return true
		}
	}
	return false
}

// newTestAutostart returns an Autostart that starts the test binary as a daemon, and its
// environment.
func newTestAutostart(t *testing.T, mode string) (*Autostart, map[string]string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe := filepath.Join(dir, "daemon")
	if err := writeProgram(exe,
		"#!/bin/sh\nexport TEST_AS=daemon TEST_DAEMON="+mode+"\nexec "+os.Args[0]+"\n"); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{
		"HOME": dir, "XDG_RUNTIME_DIR": dir, "XDG_STATE_HOME": filepath.Join(dir, "state"),
		"SHELL": "/bin/false", "CLAUDECODE": "1", "LANG": "C.UTF-8", "PATH": "/agent/bin:.::relative:/usr/bin",
		"HOLDLINE_TOKEN": "secret", "HOLDLINE_WORKER": "secret", "HOLDLINE_IDENTITY": "secret",
		"ANTHROPIC_API_KEY": "secret", "HOLDLINE_CONFIG": "/c.json",
	}
	for _, e := range engines.All {
		vars[e.Variable] = "/" + e.Name
	}
	env := func(k string) string { return vars[k] }
	paths, err := socket.Resolve("", env)
	if err != nil {
		t.Fatal(err)
	}
	a := NewAutostart(paths, env)
	a.exe = func() (string, error) { return exe, nil }
	a.args = nil
	return a, vars
}

// dialUntil dials until a daemon answers.
func dialUntil(t *testing.T, paths socket.Paths, exited <-chan error) io.Closer {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		conn, _, err := paths.Dial(t.Context())
		if err == nil {
			return conn
		}
		select {
		case end := <-exited:
			t.Fatalf("the daemon ended: %v", end)
		case <-limit:
			t.Fatalf("nobody listens: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestAutostart checks the process of a started daemon: its directory, session, stdin,
// descriptors, environment and log.
func TestAutostart(t *testing.T) {
	a, vars := newTestAutostart(t, "")
	// A descriptor that the agent passed on to this process by mistake.
	marker, err := os.Create(filepath.Join(vars["HOME"], "leak-marker"))
	if err != nil {
		t.Fatal(err)
	}
	defer marker.Close()
	fd, err := unix.Dup(int(marker.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	exited, err := a.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := dialUntil(t, a.paths, exited)
	conn.Close() // ends that daemon
	if err := <-exited; err != nil {
		t.Errorf("daemon ended with %v", err)
	}
	log := filepath.Join(vars["XDG_STATE_HOME"], "holdline", "logs", "daemon.log")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	wanted := []string{
		"cwd=/ leader=true stdin=0 leaked=false", `"LANG=C.UTF-8"`, `"SHELL=/bin/false"`, `"HOLDLINE_CONFIG=/c.json"`,
		`"PATH=/agent/bin:/usr/bin:` + strings.Replace(userenv.BasePath, "/usr/bin:", "", 1) + `"`,
		`"XDG_RUNTIME_DIR=` + vars["HOME"] + `"`, `"XDG_STATE_HOME=` + vars["XDG_STATE_HOME"] + `"`,
	}
	for _, e := range engines.All {
		wanted = append(wanted, fmt.Sprintf("%q", e.Variable+"=/"+e.Name))
	}
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("the daemon's log lacks %s: %s", want, text)
		}
	}
	for _, not := range []string{"CLAUDECODE", "secret"} {
		if strings.Contains(text, not) {
			t.Errorf("the daemon's environment has %s: %s", not, text)
		}
	}
	for path, want := range map[string]os.FileMode{log: 0o600, filepath.Dir(log): 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// TestAutostartEnds checks that the error for a daemon that ends at its start has that
// daemon's own output, and nothing else of the log.
func TestAutostartEnds(t *testing.T) {
	a, vars := newTestAutostart(t, "fail")
	log := filepath.Join(vars["XDG_STATE_HOME"], "holdline", "logs", "daemon.log")
	if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, []byte("of an earlier life\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	exited, err := a.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = <-exited
	if err == nil || !strings.Contains(err.Error(), "exit status 1\nconfig.json:3:4: bad configuration\n") ||
		!strings.Contains(err.Error(), log) || strings.Contains(err.Error(), "earlier life") ||
		strings.Contains(err.Error(), "another daemon") {
		t.Errorf("a daemon that failed: %v", err)
	}
	if b, err := os.ReadFile(log); err != nil || !strings.HasSuffix(string(b), "config.json:3:4: bad configuration\n") {
		t.Errorf("the log lacks what that daemon said: %v, %s", err, b)
	}
	// A log that has grown too long is started again.
	if err := os.Truncate(log, MaxDaemonLog+1); err != nil {
		t.Fatal(err)
	}
	if exited, err = a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-exited
	if info, err := os.Stat(log); err != nil || info.Size() > 4096 {
		t.Errorf("log of %v bytes, %v, want it cut", info.Size(), err)
	}

	y, _ := newTestAutostart(t, "yield")
	if exited, err = y.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-exited; err != nil {
		t.Errorf("a daemon that yields: %v, want nil", err)
	}
	a.exe = func() (string, error) { return "/nonexistent/holdline", nil }
	if _, err := a.Start(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start of a program that is not there: %v", err)
	}
}

// TestProgram checks that a daemon is started from the path by which this program was
// called, if there is one.
func TestProgram(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "holdline")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(link))
	for argv0, want := range map[string]string{link: link, "holdline": link, "/bin/sh": exe, "absent": exe, "": exe} {
		if got, err := Program(argv0); err != nil || got != want {
			t.Errorf("program(%q) = %q, %v, want %q", argv0, got, err, want)
		}
	}
}

// TestLastLines checks that the end of a log begins with a whole line and is bounded.
func TestLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	line := strings.Repeat("x", 99) + "\n"
	if err := os.WriteFile(path, []byte(strings.Repeat(line, 100)+"last"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := lastLines(f)
	if len(got) > logTail || !strings.HasSuffix(got, line+"last\n") || !strings.HasPrefix(got, line) {
		t.Errorf("last lines %q", got)
	}
	if got := lastLines(nil); got != "" {
		t.Errorf("last lines of no file: %q", got)
	}
}

// writeProgram writes a script. No child may be forked meanwhile: it would inherit the file
// open for writing, and the script could not be executed.
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o700)
}
