package session_test

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"holdline/protocol/lockcheck"
)

// TestMain fails the tests if one of them made a system call under a lock. Benchmarks run
// without this check, which would be measured, too.
func TestMain(m *testing.M) {
	flag.Parse()
	var blocked atomic.Int64
	if flag.Lookup("test.bench").Value.String() == "" {
		lockcheck.Watch(func(call string, stack []byte) {
			if blocked.Add(1) == 1 {
				fmt.Fprintf(os.Stderr, "%s under a lock:\n%s\n", call, stack)
			}
		})
	}
	code := m.Run()
	if n := blocked.Load(); n > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d system calls were made under a lock\n", n)
		code = 1
	}
	os.Exit(code)
}
