package starter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdline/protocol/process"
	"holdline/protocol/programtest"
	"holdline/protocol/socket"
	"holdline/proxy"
)

func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS") == "daemon" {
		os.Exit(testDaemon())
	}
	os.Exit(m.Run())
}

// testDaemon is a started daemon, played by this test binary. It exits, or writes its
// environment to a file and listens until its connection is closed.
func testDaemon() int {
	switch os.Getenv("TEST_DAEMON") {
	case "fail":
		fmt.Fprintln(os.Stderr, "config.json:3:4: bad configuration")
		return 1
	case "yield":
		return 0
	case "managed":
		fmt.Fprint(os.Stderr, "systemd sleeps\nwake it\n")
		return ExitManaged
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
	report := fmt.Sprintf("args=%q\ncwd=%s leader=%v stdin=%d leaked=%v env=%q\n", os.Args[1:], cwd, sid == os.Getpid(),
		len(in), leaked(fds), os.Environ())
	if err := os.WriteFile(filepath.Join(os.Getenv("HOME"), "report"), []byte(report), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
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

// newTestStarter returns a starter of the test binary as a daemon, its paths, and its
// environment.
func newTestStarter(t *testing.T, mode string) (*Starter, socket.Paths, map[string]string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe := filepath.Join(dir, "daemon")
	programtest.Write(t, exe, "#!/bin/sh\nexport TEST_AS=daemon TEST_DAEMON="+mode+"\nexec "+os.Args[0]+" \"$@\"\n")
	vars := map[string]string{
		"HOME": dir, "XDG_RUNTIME_DIR": dir, "XDG_STATE_HOME": filepath.Join(dir, "state"),
		"SHELL": "/bin/false", "CLAUDECODE": "1", "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin",
		"HOLDLINE_TOKEN": "secret", "HOLDLINE_WORKER": "secret", "HOLDLINE_IDENTITY": "secret",
		"ANTHROPIC_API_KEY": "secret", "HOLDLINE_CONFIG": "/c.json", "GOGC": "1",
	}
	env := func(k string) string { return vars[k] }
	paths, err := socket.Resolve("", env)
	if err != nil {
		t.Fatal(err)
	}
	return New(paths, env, func() (string, error) { return exe, nil }), paths, vars
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

// TestStart checks the process of a started daemon: its arguments, directory, session, stdin,
// descriptors and environment.
func TestStart(t *testing.T) {
	s, paths, vars := newTestStarter(t, "")
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
	exited, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	conn := dialUntil(t, paths, exited)
	conn.Close() // ends that daemon
	if err := <-exited; err != nil {
		t.Errorf("daemon ended with %v", err)
	}
	b, err := os.ReadFile(filepath.Join(vars["HOME"], "report"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{
		`args=["daemon" "--started-by" "proxy" "--idle-exit" "30m" "--wanted=`,
		"cwd=/ leader=true stdin=0 leaked=false", `"LANG=C.UTF-8"`, `"SHELL=/bin/false"`, `"HOLDLINE_CONFIG=/c.json"`,
		`"PATH=/usr/bin:/bin"`, `"XDG_RUNTIME_DIR=` + vars["HOME"] + `"`,
		`"XDG_STATE_HOME=` + vars["XDG_STATE_HOME"] + `"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the daemon lacks %s: %s", want, text)
		}
	}
	for _, not := range []string{"CLAUDECODE", "GOGC", "secret", "--socket"} {
		if strings.Contains(text, not) {
			t.Errorf("the daemon has %s: %s", not, text)
		}
	}
}

// TestStartEnds checks that the error for a daemon that ends at its start has that
// daemon's own output, and nothing else of the log, and how other ends are reported.
func TestStartEnds(t *testing.T) {
	ended := func(s *Starter) error {
		t.Helper()
		exited, err := s.Start()
		if err != nil {
			t.Fatal(err)
		}
		return <-exited
	}
	s, _, vars := newTestStarter(t, "fail")
	log := filepath.Join(vars["XDG_STATE_HOME"], "holdline", "logs", "daemon.log")
	// The daemon makes the directory of its log, and may fail before.
	if err := ended(s); err == nil || !strings.Contains(err.Error(), "bad configuration\n(log: "+log) {
		t.Errorf("a daemon that failed without a log: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, []byte("of an earlier life\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := ended(s)
	if err == nil || !strings.Contains(err.Error(), "config.json:3:4: bad configuration\n") ||
		!strings.Contains(err.Error(), log) || strings.Contains(err.Error(), "earlier life") {
		t.Errorf("a daemon that failed: %v", err)
	}
	if b, err := os.ReadFile(log); err != nil || !strings.HasSuffix(string(b), "config.json:3:4: bad configuration\n") {
		t.Errorf("the log lacks what that daemon said: %v, %s", err, b)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(log), "start-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	if y, _, _ := newTestStarter(t, "yield"); ended(y) != nil {
		t.Errorf("a daemon that yields ends with an error")
	}
	m, _, _ := newTestStarter(t, "managed")
	managed, ok := errors.AsType[*proxy.ManagedError](ended(m))
	if !ok || managed.Why != "systemd sleeps" || managed.Hint != "wake it" {
		t.Errorf("a daemon of a service manager's: %+v", managed)
	}
	if managed := m.Absent(t.Context()); managed == nil || managed.Why != "systemd sleeps" {
		t.Errorf("Absent = %+v", managed)
	}
	if managed := s.Absent(t.Context()); managed != nil {
		t.Errorf("Absent of a daemon that fails = %+v", managed)
	}

	s.program = func() (string, error) { return "/nonexistent/holdline", nil }
	if _, err := s.Start(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start of a program that is not there: %v", err)
	}
}

// TestStartHangs_EndedAndNextOneServes starts a program that hangs, with a child of its own, and is then
// repaired. It is ended with all that belongs to it, and the next start brings up a daemon.
func TestStartHangs_EndedAndNextOneServes(t *testing.T) {
	s, paths, vars := newTestStarter(t, "")
	s.hung = 300 * time.Millisecond
	exe, err := s.program()
	if err != nil {
		t.Fatal(err)
	}
	works, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	child := filepath.Join(vars["HOME"], "child")
	programtest.Write(t, exe, "#!/bin/sh\nsleep 1000 &\necho $! > "+child+"\nwait\n")
	var b []byte
	for ; len(b) == 0; s.hung *= 2 { // a busy machine may take longer to run the script
		exited, err := s.Start()
		if err != nil {
			t.Fatal(err)
		}
		ended := <-exited
		if b, err = os.ReadFile(child); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if !errors.Is(ended, proxy.ErrKilled) || len(b) > 0 && !strings.Contains(ended.Error(), exe) {
			t.Fatalf("the program that hung: %v, want that it was killed, and its name", ended)
		}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); isThere(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d of the program that hung is left", pid)
		}
	}
	programtest.Write(t, exe, string(works))
	s.hung = time.Minute
	exited, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	dialUntil(t, paths, exited).Close()
	if err := <-exited; err != nil {
		t.Errorf("the repaired program: %v", err)
	}
}

// isThere reports whether a process with this number runs.
func isThere(pid int) bool {
	_, err := process.Lookup(pid)
	return err == nil
}

// TestSlowStart_EndedWithoutLockOnly checks that a daemon which has its lock and takes long until it
// listens is not ended, and that one is which another daemon's lock keeps from serving.
func TestSlowStart_EndedWithoutLockOnly(t *testing.T) {
	s, paths, vars := newTestStarter(t, "")
	dir, err := socket.OpenDir(paths.Start())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	slow := exec.Command("sleep", "1000")
	slow.Dir, slow.SysProcAttr = vars["HOME"], &syscall.SysProcAttr{Setsid: true}
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- slow.Wait() }()
	t.Cleanup(func() { _ = slow.Process.Kill() })
	holds := func(pid int) {
		t.Helper()
		holder, err := process.Lookup(pid)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%d %d\n", holder.PID, holder.Start)
		if err := os.WriteFile(filepath.Join(filepath.Dir(paths.Start()), socket.LockFile), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	holds(slow.Process.Pid)
	if s.endHung(slow.Process) {
		t.Fatal("the daemon that holds its lock was ended")
	}
	holds(os.Getpid())
	if !s.endHung(slow.Process) {
		t.Fatal("a daemon without the lock was not ended")
	}
	<-ended
	if s.endHung(slow.Process) {
		t.Error("a process that has ended was ended again")
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

// TestRelativeConfig checks that a daemon, which runs in another directory, reads the same
// configuration as the commands of the user that starts it.
func TestRelativeConfig(t *testing.T) {
	vars := map[string]string{"HOME": "/h", "HOLDLINE_CONFIG": "sub/c.json"}
	getenv := func(name string) string { return vars[name] }
	paths, err := socket.Resolve("/h/s", getenv)
	if err != nil {
		t.Fatal(err)
	}
	want, err := filepath.Abs("sub/c.json")
	if err != nil {
		t.Fatal(err)
	}
	if s := New(paths, getenv, nil); !slices.Contains(s.environ, "HOLDLINE_CONFIG="+want) {
		t.Errorf("environment %q, want the configuration %s", s.environ, want)
	}
	// So are those of programs. A name alone is looked up on PATH.
	vars["HOLDLINE_CLAUDE_BIN"], vars["HOLDLINE_CODEX_BIN"] = "sub/claude", "codex"
	s := New(paths, getenv, nil)
	claude := filepath.Join(filepath.Dir(want), "claude")
	for _, want := range []string{"HOLDLINE_CLAUDE_BIN=" + claude, "HOLDLINE_CODEX_BIN=codex"} {
		if !slices.Contains(s.environ, want) {
			t.Errorf("the environment lacks %s: %q", want, s.environ)
		}
	}
	vars = map[string]string{"HOME": "/h"}
	if s := New(paths, getenv, nil); len(s.environ) != 1 {
		t.Errorf("environment %q, want HOME alone", s.environ)
	}
}
