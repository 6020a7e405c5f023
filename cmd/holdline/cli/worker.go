package cli

import (
	"errors"
	"fmt"
	"io"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/worker"
)

// runWorker is the hidden command that owns one child process. It is started
// by the daemon only.
func runWorker(args []string, stderr io.Writer) int {
	err := worker.Main(args, stderr)
	switch {
	case errors.Is(err, worker.ErrUsage):
		fmt.Fprintf(stderr, "holdline: %v\n", err)
		return cmdenv.ExitUsage
	case err != nil:
		fmt.Fprintf(stderr, "holdline: worker: %v\n", err)
		return cmdenv.ExitFailure
	}
	return cmdenv.ExitOK
}
