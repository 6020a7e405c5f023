package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"holdline/protocol/bootclock"
)

// TestStopBesideStop_AllSucceed runs several stops of one daemon at the same time, held while the
// daemon ends. Each of them succeeds, and none says that something is broken.
func TestStopBesideStop_AllSucceed(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"stop"}, {"stop", "--all"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).faults()
			p.daemon()
			p.dieAs("stop.told", death{held: true})
			var all sync.WaitGroup
			stop := func() {
				out, errs, code := p.run("", args...)
				if code != exitOK || !strings.Contains(out, "stopped") && !strings.Contains(out, "not running") {
					t.Errorf("exit %d: %s%s", code, out, errs)
				}
			}
			all.Go(stop)
			p.reached("stop.told")
			for range 4 {
				all.Go(stop)
			}
			p.letGo("stop.told")
			all.Wait()
			p.untilEmpty(t)
		})
	}
}

// TestStopBeforeStartTakesLock_NoDaemonStarts stops holdline after a proxy has decided to start a daemon, and before
// that daemon has done anything. It does not serve, whether workers are to end or not.
func TestStopBeforeStartTakesLock_NoDaemonStarts(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"stop"}, {"stop", "--all"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			kill9(t, p.up().pid(0))
			p.untilEmpty(t)
			decided := fmt.Sprint("--wanted=", bootclock.Now())
			if out, errs, code := p.run("", args...); code != exitOK || !strings.Contains(out, "not running") {
				t.Fatalf("exit %d: %s%s", code, out, errs)
			}
			out, errs, code := p.run("", "daemon", "--started-by", "proxy", "--idle-exit", "1s", decided)
			if code != exitOK || !strings.Contains(out+errs, "it was stopped while this one was starting") {
				t.Errorf("the daemon: exit %d, %s%s", code, out, errs)
			}
			p.refusedAgent()
			p.must("start")
			p.agent().shake().leave()
		})
	}
}
