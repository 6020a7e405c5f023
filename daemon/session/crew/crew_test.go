package crew

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// count returns how many goroutines of a pool rest.
func (p *Pool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.resting)
}

// TestCrew checks that few goroutines are left after many calls, that they run the next
// calls and end when there are none, and that waiting for a crew waits for all its calls.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pool
		c, other := p.New(), p.New()
		var done atomic.Int32
		release := make(chan struct{})
		const many = maxResting + 50
		for range many {
			c.Go(func() { <-release; done.Add(1) })
		}
		close(release)
		synctest.Wait()
		if n := p.count(); done.Load() != many || n != maxResting {
			t.Errorf("%d of %d were done, and %d rest, want %d", done.Load(), many, n, maxResting)
		}
		for range 20 {
			other.Go(func() {})
			time.Sleep(restTime / 2)
		}
		if n := p.count(); n != 1 {
			t.Errorf("%d rest, want the one that is used", n)
		}
		last := make(chan struct{})
		c.Go(func() { <-last; done.Add(1) })
		time.AfterFunc(time.Second, func() { close(last) })
		c.Wait()
		if n := done.Load(); n != many+1 {
			t.Errorf("%d of %d were done", n, many+1)
		}
		other.Wait()
		if n := p.count(); n != 0 {
			t.Errorf("%d rest, and no crew is left", n)
		}
	})
}
