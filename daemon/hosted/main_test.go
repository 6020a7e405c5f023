package hosted_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"holdline/daemon/worker/workertest"
	"holdline/protocol/lockcheck/lockchecktest"
)

// TestMain lets the test binary run as the program that workers execute, and as the hosted
// servers. The tests fail if one of them makes a system call under a lock.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "upstream" {
		if err := handOver(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0)
	}
	workertest.Dispatch(os.Args[1:], os.Environ(), os.Stderr)
	os.Exit(lockchecktest.Run(m))
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
