package e2e

import (
	"fmt"
	"testing"
)

// TestNoCancellationOfAnsweredCalls kills the daemon several times after calls that are
// answered. No later daemon cancels one of them.
func TestNoCancellationOfAnsweredCalls(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().serve("shared")
	a, b := p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
	pid, n := p.pid(0), 0
	for round := range 8 {
		for range 12 {
			var ids []int
			for range 8 {
				n++
				ids = append(ids, a.effect(fmt.Sprint("e", n), 0))
			}
			b.wait(b.effect(fmt.Sprint("b", n), 0))
			for _, x := range a.waitAll(ids...) {
				if x.Error != nil || x.Result.IsError {
					t.Fatalf("round %d: %s", round, x.raw)
				}
			}
		}
		kill9(t, pid)
		pid = p.pid(pid)
	}
	a.wait(a.effect("last", 0)) // written behind any cancellation of the last daemon
	if stray := p.effectsOf("stray"); stray > 0 {
		t.Errorf("%d cancellations for %d calls, all of which had their answers", stray, n+n/8)
	}
	a.rest()
	b.rest()
}
