// Package workertest lets a test binary stand in for the holdline program
// where workers are started: its TestMain begins with [Dispatch], and the
// test names its own binary as the program.
package workertest

import (
	"io"
	"syscall"

	"holdline/daemon/worker"
)

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
		err = worker.Exec(environ)
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
