package consult

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/spawn"
	"holdline/daemon/worker"
)

// exit ends the process without the second that the race detector takes.
func exit(code int) { syscall.Exit(code) }

// TestMain lets the test binary be the worker, the step that becomes its
// child, and the consult program.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "worker":
		if err := worker.Main(os.Args[2:], os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			exit(1)
		}
		exit(0)
	case len(os.Args) > 1 && os.Args[1] == "exec":
		if err := spawn.Exec(os.Environ()); err != nil {
			exit(1)
		}
		exit(0)
	case os.Getenv(claudetest.FakeEnv) != "":
		os.Exit(claudetest.FakeMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	os.Exit(m.Run())
}
