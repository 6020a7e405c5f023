package session

import (
	"sync"
	"sync/atomic"
)

// maxResting is how many goroutines of a session wait for its next calls: a
// client that asks one thing after the other needs one.
const maxResting = 2

// crew runs the calls of a session. A goroutine that is through with one waits
// for the next, since a new one would have to grow its stack first. Go and wait
// are called by one goroutine.
type crew struct {
	running sync.WaitGroup
	resting atomic.Int32
	next    chan func() // taken by those that rest; closed by wait
}

func newCrew() *crew { return &crew{next: make(chan func())} }

// Go runs f in a goroutine. It never waits.
func (c *crew) Go(f func()) {
	select {
	case c.next <- f:
	default:
		c.running.Go(func() { c.work(f) })
	}
}

func (c *crew) work(f func()) {
	for ok := true; ok; {
		f()
		if c.resting.Add(1) > maxResting {
			c.resting.Add(-1)
			return
		}
		f, ok = <-c.next
		c.resting.Add(-1)
	}
}

// wait waits for all that was begun. Nothing may be begun afterwards.
func (c *crew) wait() {
	close(c.next)
	c.running.Wait()
}
