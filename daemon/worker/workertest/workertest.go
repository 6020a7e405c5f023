// Package workertest lets a test binary stand in for the holdline program
// where workers are started: its TestMain begins with [Dispatch], and the
// test names its own binary as the program.
package workertest

import (
	"io"

	"holdline/daemon/worker"
)

// Dispatch plays the worker or its exec step if the arguments (of the process,
// without its name) ask for one, and then returns true and the exit code.
func Dispatch(args, environ []string, stderr io.Writer) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	var err error
	switch args[0] {
	case "worker":
		err = worker.Main(args[1:], stderr)
	case "exec":
		err = worker.Exec(environ)
	default:
		return 0, false
	}
	if err != nil {
		return 1, true
	}
	return 0, true
}
