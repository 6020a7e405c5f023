package hosted_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"holdline/daemon/worker/workertest"
)

// TestMain lets the test binary stand in for the program that workers run, and
// for the hosted servers.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "upstream" {
		if err := handOver(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0)
	}
	workertest.Dispatch(os.Args[1:], os.Environ(), os.Stderr)
	os.Exit(m.Run())
}

// handOver plays a server in whose place the test speaks: the test is given
// its stdin and stdout, and the process stays until the test lets it go.
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
