package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// notices is the receiving end of a service manager's notify socket.
type notices struct {
	mu    sync.Mutex
	lines []string
}

// notices listens on a notify socket, and puts its path into the place's environment.
func (p *place) notices() *notices {
	p.t.Helper()
	path := filepath.Join(p.dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		p.t.Fatal(err)
	}
	n := &notices{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			k, err := conn.Read(buf)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.lines = append(n.lines, strings.Split(string(buf[:k]), "\n")...)
			n.mu.Unlock()
		}
	}()
	p.t.Cleanup(func() { conn.Close(); <-done })
	p.env = append(p.env, "NOTIFY_SOCKET="+path)
	return n
}

func (n *notices) has(prefix string) bool { return n.count(prefix) > 0 }

// count returns how many lines begin with prefix.
func (n *notices) count(prefix string) int {
	count := 0
	for _, l := range n.all() {
		if strings.HasPrefix(l, prefix) {
			count++
		}
	}
	return count
}

func (n *notices) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// handed starts a daemon as a service manager does: with the socket already open.
func (p *place) handed() *exec.Cmd {
	p.t.Helper()
	return p.handedTo(filepath.Join(programs, "holdline"))
}

// handedTo does the same with the program at bin.
func (p *place) handedTo(bin string) *exec.Cmd {
	p.t.Helper()
	path := filepath.Join(p.dir, "run/holdline/daemon.sock")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	_ = os.Remove(path) // as systemd does when it starts a socket unit
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		p.t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	defer ln.Close()
	f, err := ln.File()
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 6*waitLimit)
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" daemon`, bin)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = p.env, p.project, []*os.File{f}
	p.background(cmd)
	return cmd
}

// waitFor polls ok until it returns true, and fails the test after waitLimit.
func waitFor(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(waitLimit)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("waited for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestHandedSocketNeverYields hands a socket to a daemon while another one serves at that
// path. The other one exits, and the managed one serves.
func TestHandedSocketNeverYields(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	old := p.daemon()
	n := p.notices()
	cmd := p.handed()
	waitFor(t, "READY", func() bool { return n.has("READY=1") })
	waitFor(t, "the end of the daemon that held the lock", func() bool { return !alive(old.Process.Pid) })
	s := p.status()
	if s.Daemon.PID != cmd.Process.Pid || s.Daemon.StartedBy != "systemd" {
		t.Errorf("daemon = %+v, want %d", s.Daemon, cmd.Process.Pid)
	}
	if !n.has("EXTEND_TIMEOUT_USEC=") {
		t.Error("no more time was asked for")
	}
	if out, errs, code := p.run(piped, "mcp-stdio"); code != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("proxy: exit %d\n%s%s", code, out, errs)
	}
	_ = cmd.Process.Signal(sigTerm)
	waitFor(t, "the end", func() bool { return !alive(cmd.Process.Pid) })
	waitFor(t, "STOPPING", func() bool { return n.has("STOPPING=1") })
	if _, err := os.Stat(filepath.Join(p.dir, "run/holdline/daemon.sock")); err != nil {
		t.Errorf("the service manager's socket was removed: %v", err)
	}
}

// TestWatchdogPinged checks that the service manager's watchdog gets pings as long as the
// daemon works, with a status that was asked for through the socket.
func TestWatchdogPinged(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	n := p.notices()
	p.env = append(p.env, "WATCHDOG_USEC=1000000")
	cmd := p.handed()
	p.agent().shake()
	waitFor(t, "pings", func() bool { return n.count("WATCHDOG=1") >= 3 && n.has("STATUS=serving at "+p.dir) })
	waitFor(t, "the session in a status", func() bool {
		return slices.ContainsFunc(n.all(),
			func(l string) bool { return strings.HasPrefix(l, "STATUS=") && strings.Contains(l, "sessions 1,") })
	})
	if s := p.status(); s.Daemon.PID != cmd.Process.Pid {
		t.Errorf("daemon %d, want %d", s.Daemon.PID, cmd.Process.Pid)
	}
}

// TestDisowned removes the socket's path under a daemon. The daemon notices, and exits
// without touching what is there now.
func TestDisowned(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.daemon("--idle-exit", "1h")
	path := filepath.Join(p.dir, "run/holdline/daemon.sock")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the daemon to leave", func() bool { return !alive(d.Process.Pid) })
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("the file in its place is %q, %v", b, err)
	}
	// A daemon that finds something other than a socket there does not touch it.
	out, errs, code := p.run("", "daemon")
	if code != exitFailure || !strings.Contains(errs, "is to be the socket, and is something else") {
		t.Errorf("daemon: exit %d\n%s%s", code, out, errs)
	}
	_ = os.Remove(path)
}

// TestSocketPathTooLong checks that every command names a socket path that is too long, and
// the variable that changes it.
func TestSocketPathTooLong(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	long := filepath.Join(p.dir, strings.Repeat("x", 120), "s")
	for _, args := range [][]string{{"daemon"}, {"status"}, {"mcp-stdio", "--no-autostart"}} {
		_, errs, code := p.run(piped, append(args, "--socket", long)...)
		if code != exitFailure || !strings.Contains(errs, "too long") || !strings.Contains(errs, "HOLDLINE_SOCKET") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}

// TestOpenDirectoryRefused checks that neither daemon nor doctor accepts a runtime
// directory that other users can read.
func TestOpenDirectoryRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	dir := filepath.Join(p.dir, "run/holdline")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := p.run("", "daemon"); code != exitFailure || !strings.Contains(errs, "0755") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if out, _, code := p.run("", "doctor", "-v"); code != exitFailure || !strings.Contains(out, "0755") {
		t.Errorf("doctor: exit %d, %s", code, out)
	}
	_ = os.Chmod(dir, 0o700)
}
