package worker

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"holdline/protocol/lockcheck"
)

// TestMain fails the tests if one of them made a system call that can block under a lock.
func TestMain(m *testing.M) {
	var blocked atomic.Int64
	lockcheck.Watch(func(call string, stack []byte) {
		if blocked.Add(1) == 1 {
			fmt.Fprintf(os.Stderr, "%s under a lock:\n%s\n", call, stack)
		}
	})
	code := m.Run()
	if blocked.Load() > 0 {
		code = 1
	}
	os.Exit(code)
}
