package consult

import (
	"os"
	"syscall"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/lockcheck/lockchecktest"
)

// envRefuse makes the exec step fail to confine itself.
const envRefuse = "TEST_REFUSE"

// TestMain lets the test binary run as the worker, the exec step and the consult program. It
// fails the tests if one of them made a system call under a lock.
func TestMain(m *testing.M) {
	// No descriptor is left for the ruleset of a run.
	if os.Getenv(envRefuse) != "" && os.Getenv("CLAUDE_CODE_TMPDIR") != "" {
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 5, Max: 5})
	}
	workertest.Dispatch(os.Args[1:], os.Environ(), os.Stderr)
	if os.Getenv(claudetest.FakeEnv) != "" {
		os.Exit(claudetest.FakeMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	os.Exit(lockchecktest.Run(m))
}
