package crew

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestCrew checks that few goroutines are left after many calls, that they run the next
// calls, and that waiting for the crew waits for all calls.
func TestCrew(t *testing.T) {
	c := New()
	var done atomic.Int32
	release := make(chan struct{})
	const many = 50
	for range many {
		c.Go(func() { <-release; done.Add(1) })
	}
	close(release)
	for done.Load() < many || c.resting.Load() < maxResting {
		runtime.Gosched()
	}
	for range many {
		one := make(chan struct{})
		c.Go(func() { close(one) })
		<-one
	}
	last := make(chan struct{})
	c.Go(func() { <-last; done.Add(1) })
	close(last)
	c.Wait()
	if n := done.Load(); n != many+1 {
		t.Errorf("%d of %d were done", n, many+1)
	}
	if n := c.resting.Load(); n != 0 {
		t.Errorf("%d rest", n)
	}
}
