package cli

import (
	"fmt"
	"io"
	"os"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/spawn"
)

// runExec is the hidden command that becomes a worker's child. It is started
// by a worker only, with the child's own environment, and returns only if it
// could not become the child.
func runExec(args []string, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintln(stderr, "holdline: exec takes no arguments and is started by a worker only")
		return cmdenv.ExitUsage
	}
	_ = spawn.Exec(os.Environ()) // it returned: the worker was told why
	return cmdenv.ExitFailure
}
