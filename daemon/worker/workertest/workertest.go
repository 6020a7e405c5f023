// Package workertest lets a test binary stand in for the holdline program
// where workers are started: its TestMain begins with [Dispatch], and the
// test names its own binary as the program.
package workertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/spawn"
	"holdline/daemon/worker"
)

// Freeze stops the process pid as SIGSTOP does, and returns when it stands
// still: the signal alone lets a busy machine run it on for a while.
func Freeze(tb testing.TB, pid int) {
	tb.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		running := 0
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // none but on Linux
		for _, f := range stats {
			if b, err := os.ReadFile(f); err == nil && !bytes.Contains(b, []byte(") T ")) {
				running++
			}
		}
		if running == 0 {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("process %d does not stop", pid)
		}
	}
}

// Dispatch plays the worker or its exec step if the arguments (of the process,
// without its name) ask for one, and then does not return.
func Dispatch(args, environ []string, stderr io.Writer) {
	if len(args) == 0 {
		return
	}
	var err error
	switch args[0] {
	case "worker":
		err = worker.Main(args[1:], stderr)
	case "exec":
		err = spawn.Exec(environ)
	default:
		return
	}
	code := 0
	if err != nil {
		code = 1
	}
	// Not the os package's, which under the race detector sleeps for a second.
	syscall.Exit(code)
}
