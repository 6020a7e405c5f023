package consult

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/lockcheck"
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
	var blocked atomic.Int64
	lockcheck.Watch(func(call string, stack []byte) {
		if blocked.Add(1) == 1 {
			fmt.Fprintf(os.Stderr, "%s under a lock:\n%s\n", call, stack)
		}
	})
	code := m.Run()
	if n := blocked.Load(); n > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d system calls were made under a lock\n", n)
		code = 1
	}
	os.Exit(code)
}
