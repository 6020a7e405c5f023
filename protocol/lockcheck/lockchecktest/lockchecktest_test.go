package lockchecktest_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"holdline/protocol/lockcheck"
	"holdline/protocol/lockcheck/lockchecktest"
)

// envBlock makes TestBlocks make a system call under a lock.
const envBlock = "TEST_BLOCK"

func TestMain(m *testing.M) { os.Exit(lockchecktest.Run(m)) }

// TestBlocks is the test that TestNothingBlocksUnderLock runs.
func TestBlocks(*testing.T) {
	var m lockcheck.Mutex
	m.Lock()
	defer m.Unlock()
	if os.Getenv(envBlock) != "" {
		lockcheck.Blocking("open")
	}
}

// TestNothingBlocksUnderLock checks that tests which pass are failed if one of them makes a
// system call under a lock.
func TestNothingBlocksUnderLock(t *testing.T) {
	for _, tc := range []struct {
		block string
		code  int
	}{{"", 0}, {"1", 1}} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBlocks$")
		cmd.Env = append(cmd.Environ(), envBlock+"="+tc.block)
		out, err := cmd.CombinedOutput()
		code := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != tc.code || strings.Contains(string(out), "open under a lock:") != (code != 0) {
			t.Errorf("%s=%q: exit code %d, want %d:\n%s", envBlock, tc.block, code, tc.code, out)
		}
	}
}
