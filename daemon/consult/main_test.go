package consult

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck/lockchecktest"
)

// unreadable has the path of a file that cannot be opened, for an error that passes; nil if there is none.
var unreadable atomic.Pointer[string]

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
	faultpoint.InstallOpening(func(path string) error {
		if bad := unreadable.Load(); bad != nil && *bad == path {
			return syscall.EIO
		}
		return nil
	})
	faultpoint.Install(func(name string) { // no time makes it damage
		for name == "consult.unread" && unreadable.Load() != nil {
			time.Sleep(time.Millisecond)
		}
	})
	os.Exit(lockchecktest.Run(m))
}
