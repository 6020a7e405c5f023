package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/cmd/holdline/ttytest"

	"golang.org/x/sys/unix"
)

// fillTerminal writes to a terminal until it accepts no more.
func fillTerminal(t *testing.T, tty *os.File) {
	t.Helper()
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", tty.Fd()),
		unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for ready := 1; ready > 0; { // the terminal moves data between its buffers
		for err := error(nil); err == nil; {
			_, err = unix.Write(fd, []byte("x"))
		}
		ready, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 200)
	}
}

// writesInVain reports whether a thread of a process is blocked in a write to a terminal.
func writesInVain(t *testing.T, pid int) bool {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		call, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, task.Name()))
		number, rest, _ := strings.Cut(string(call), " ")
		if number == fmt.Sprint(unix.SYS_WRITE) &&
			(strings.HasPrefix(rest, "0x1 ") || strings.HasPrefix(rest, "0x2 ")) {
			return true
		}
	}
	return false
}

// TestSignalEndsProxyOnDeafTerminal checks that a proxy whose output is a terminal that
// does not read ends on a signal, whichever of its streams is blocked.
func TestSignalEndsProxyOnDeafTerminal(t *testing.T) {
	t.Parallel()
	if _, err := os.ReadFile("/proc/self/syscall"); err != nil {
		t.Skipf("this kernel does not say in which call a thread waits: %v", err)
	}
	for stream, arrange := range map[string]func(t *testing.T, p *place, cmd *exec.Cmd, tty *os.File){
		"stdout": func(t *testing.T, p *place, cmd *exec.Cmd, tty *os.File) {
			t.Helper()
			p.daemon()
			cmd.Stdout = tty
		},
		"stderr": func(t *testing.T, _ *place, cmd *exec.Cmd, tty *os.File) {
			t.Helper()
			fillTerminal(t, tty)
			cmd.Stderr = tty // on which the proxy says that there is no daemon
		},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run(fmt.Sprintf("%s, %v", stream, sig), func(t *testing.T) {
				p := newPlace(t)
				tty, _ := ttytest.Open(t)
				cmd := p.command("mcp-stdio", "--no-autostart")
				arrange(t, p, cmd, tty)
				stdin, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				var asked strings.Builder
				for id := range 5000 { // far more answers than a terminal holds
					fmt.Fprintf(&asked, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", id)
				}
				go func() { _, _ = io.WriteString(stdin, asked.String()) }() // ends with the process
				waitFor(t, "a write that waits", func() bool { return writesInVain(t, cmd.Process.Pid) })
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-ended:
					if err != nil {
						t.Errorf("the proxy ended with %v, want exit 0", err)
					}
				case <-time.After(waitLimit):
					_ = cmd.Process.Kill()
					t.Error("the proxy still runs")
				}
			})
		}
	}
}
