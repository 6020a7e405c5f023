package hosted_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"

	"holdline/daemon/worker/workertest"
	"holdline/protocol/lockcheck"
)

// TestMain lets the test binary run as the program that workers execute, and as the hosted
// servers.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "upstream" {
		if err := handOver(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0)
	}
	workertest.Dispatch(os.Args[1:], os.Environ(), os.Stderr)
	if os.Getenv(lockCheck) != "" {
		lockcheck.Watch(reportBlocked)
	}
	code := m.Run()
	if n := blocked.Load(); n > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d system calls were made under a lock\n", n)
		code = 1
	}
	os.Exit(code)
}

// lockCheck is the variable that makes a test binary watch for system calls under a lock.
const lockCheck = "HOLDLINE_LOCKCHECK"

// blocked counts the system calls that were made under a lock.
var blocked atomic.Int64

func reportBlocked(call string, stack []byte) {
	if blocked.Add(1) == 1 {
		fmt.Fprintf(os.Stderr, "%s under a lock:\n%s\n", call, stack)
	}
}

// TestNothingBlocksUnderLock runs the steps of TestIsolation in a test binary that watches
// for system calls. No shared lock may be held when a file, a socket or a process is used.
func TestNothingBlocksUnderLock(t *testing.T) {
	if os.Getenv(lockCheck) != "" {
		t.Skip("this is the binary that watches")
	}
	if raceEnabled {
		t.Skip("the race detector sees no more here, and takes a minute")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.run=^TestIsolation$")
	cmd.Env = append(cmd.Environ(), lockCheck+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// handOver plays a server whose part the test takes: it passes its stdin and stdout to the
// test, and lives until the test closes the connection.
func handOver(socket, name string) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("%s is no socket", socket)
	}
	if _, _, err := conn.WriteMsgUnix([]byte(name), syscall.UnixRights(0, 1), nil); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}
