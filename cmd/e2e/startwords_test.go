package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestFailedStartsAtOnce starts many proxies whose daemons cannot start. Each prints what
// its own daemon said, once, and nothing of the others. The log has all of it.
func TestFailedStartsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().configure(nil)
	p.misconfigure()
	const proxies = 8
	var all sync.WaitGroup
	for range proxies {
		all.Go(func() {
			_, errs, code := p.run(piped, "mcp-stdio")
			if n := strings.Count(errs, "config.json:"); code != exitNoDaemon || n != 1 {
				t.Errorf("exit %d, the mistake is told %d times, want once:\n%s", code, n, errs)
			}
		})
	}
	all.Wait()
	logs := filepath.Join(p.stateRoot(), "logs")
	b, err := os.ReadFile(filepath.Join(logs, "daemon.log"))
	if n := strings.Count(string(b), "config.json:"); err != nil || n != proxies {
		t.Errorf("%v, the log tells the mistake %d times, want %d:\n%s", err, n, proxies, b)
	}
	if left, _ := filepath.Glob(filepath.Join(logs, "start-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestServingDaemonOwnsItsStderr checks that once a daemon that a proxy started serves, its
// stderr is the log, so that a crash report of the Go runtime gets there.
func TestServingDaemonOwnsItsStderr(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().up()
	log, err := os.Stat(filepath.Join(p.stateRoot(), "logs", "daemon.log"))
	if err != nil {
		t.Fatal(err)
	}
	fd := filepath.Join("/proc", strconv.Itoa(p.pid(0)), "fd", "2")
	if info, err := os.Stat(fd); err != nil || !os.SameFile(info, log) {
		to, _ := os.Readlink(fd)
		t.Errorf("stderr is %s, %v, want the log", to, err)
	}
}
