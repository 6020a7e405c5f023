// Package lockchecktest makes a test binary watch for system calls under a lock, with package
// lockcheck.
package lockchecktest

import (
	"flag"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/petermattis/goid"

	"holdline/protocol/lockcheck"
)

// Watch calls report for each system call of this process that is made under a lock, after it
// has written the call and its stack to w. Several goroutines may do so at the same time. Watch
// is called before other goroutines run.
func Watch(w io.Writer, report func()) {
	lockcheck.Watch(goid.Get, func(call string, stack []byte) {
		_, _ = fmt.Fprintf(w, "%s under a lock:\n%s\n", call, stack)
		report()
	})
}

// Run runs the tests of m and returns the exit code, which is not 0 if one of them made a system
// call under a lock. Benchmarks run without this check, which they would measure.
func Run(m *testing.M) int {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		return m.Run()
	}
	var blocked atomic.Int64
	Watch(os.Stderr, func() { blocked.Add(1) })
	code := m.Run()
	if n := blocked.Load(); n > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d system calls were made under a lock\n", n)
		code = 1
	}
	return code
}
