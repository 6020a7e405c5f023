package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdline/protocol/process"
)

// part is the variable that makes the test binary play a daemon that replaces its own
// program. Its value is the number of hand-overs left.
const part = "HOLDLINE_TEST_PART"

func TestMain(m *testing.M) {
	if os.Getenv(part) != "" {
		if err := play(); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play is one generation of that daemon. The first makes a socket, a lock and a child that
// it does not wait for. Each hands over to the next, and the last prints what it found.
func play() error {
	h, err := Take(os.Getenv(Env), os.Getpid())
	if err != nil {
		return err
	}
	if err := os.Unsetenv(Env); err != nil {
		return err
	}
	dir := os.Args[1]
	var ln *net.UnixListener
	var lock *os.File
	if h == nil {
		if ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "sock"), Net: "unix"}); err != nil {
			return err
		}
		if lock, err = os.Create(filepath.Join(dir, "lock")); err != nil {
			return err
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return err
		}
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			return err
		}
		h = &Handover{PID: os.Getpid(), From: "1"}
	} else if ln, lock, err = h.Files("lock"); err != nil {
		return err
	}
	if h.Rollouts < 3 {
		h.Rollouts++
		exe, err := Image()
		if err != nil {
			return err
		}
		if err := Exec(filepath.Join(dir, "missing"), os.Args, os.Environ(), ln, lock, *h); !errors.Is(err,
			os.ErrNotExist) {
			return fmt.Errorf("exec of a missing file: %w", err)
		}
		if err := inherited(ln, lock); err != nil {
			return err
		}
		return Exec(exe, os.Args, os.Environ(), ln, lock, *h)
	}
	if err := inherited(ln, lock); err != nil {
		return err
	}
	children := len(h.Children)
	fds, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	fmt.Printf("pid=%d rollouts=%d children=%d fds=%d env=%v\n", os.Getpid(), h.Rollouts, children, len(fds),
		slices.ContainsFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, Env+"=") }))
	conn, err := ln.AcceptUnix() // the client has waited in the backlog all the time
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("hello"))
	return err
}

// inherited returns an error if a child would get one of the descriptors.
func inherited(ln *net.UnixListener, lock *os.File) error {
	for _, c := range []syscall.Conn{ln, lock} {
		if err := withFD(c, func(fd int) error {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err == nil && flags&unix.FD_CLOEXEC == 0 {
				err = fmt.Errorf("descriptor %d is open to children", fd)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// TestExec has a process replace its program three times. Its pid, its socket, its lock and
// the waiting client stay.
func TestExec(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, dir)
	cmd.Env = append(os.Environ(), part+"=1", "GORACE=atexit_sleep_ms=0")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var conn net.Conn
	limit := time.Now().Add(time.Minute)
	for conn == nil {
		if conn, err = net.Dial("unix", filepath.Join(dir, "sock")); err != nil && time.Now().After(limit) {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	defer conn.Close()
	if err := conn.SetDeadline(limit); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	n, err := conn.Read(buf)
	if err != nil || string(buf[:n]) != "hello" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var pid, rollouts, children, fds int
	var env bool
	if _, err := fmt.Sscanf(out.String(), "pid=%d rollouts=%d children=%d fds=%d env=%t", &pid, &rollouts, &children,
		&fds, &env); err != nil {
		t.Fatalf("%v in %q", err, out.String())
	}
	if pid != cmd.Process.Pid || rollouts != 3 || children != 1 || env || fds > 16 {
		t.Errorf("the last image says %s, want pid %d, rollouts 3, children 1, few descriptors, env false",
			out.String(), cmd.Process.Pid)
	}
}

// TestTake checks that a hand-over for another process is ignored, and that an invalid one
// is an error.
func TestTake(t *testing.T) {
	encode := func(h Handover) string {
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if h, err := Take("", 7); h != nil || err != nil {
		t.Errorf("Take of nothing = %v, %v", h, err)
	}
	if h, err := Take(encode(Handover{PID: 8, Listener: 5, Lock: 6}), 7); h != nil || err != nil {
		t.Errorf("Take of another process's = %v, %v", h, err)
	}
	for _, bad := range []string{"x", encode(Handover{PID: 7}), encode(Handover{PID: 7, Listener: 5, Lock: 5})} {
		if h, err := Take(bad, 7); err == nil {
			t.Errorf("Take(%s) = %v, want an error", bad, h)
		}
	}
}

// TestReap checks that a child that has ended, and one that ends later, are reaped, and
// that other children are left to the code that waits for them.
func TestReap(t *testing.T) {
	start := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	other := start("sh", "-c", "exit 3")
	quick := start("true")
	slow := start("sleep", "600")
	pids := process.Children(os.Getpid())
	for _, c := range []*exec.Cmd{other, quick, slow} {
		if !slices.Contains(pids, c.Process.Pid) {
			t.Errorf("children = %v, want %d in it", pids, c.Process.Pid)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); Reap(t.Context(), []int{quick.Process.Pid, slow.Process.Pid}) }()
	_ = syscall.Kill(slow.Process.Pid, syscall.SIGKILL)
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Reap does not return")
	}
	for _, pid := range []int{quick.Process.Pid, slow.Process.Pid} {
		if _, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
			t.Errorf("process %d was not waited for: %v", pid, err)
		}
	}
	if err := other.Wait(); err == nil || other.ProcessState.ExitCode() != 3 {
		t.Errorf("the other child ended with %v, want its exit status", err)
	}
}
