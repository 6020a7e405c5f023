// Package crew runs the calls of a session in few goroutines.
package crew

import (
	"sync"
	"sync/atomic"
)

// maxResting is how many goroutines of a session wait for its next calls: a
// client that asks one thing after the other needs one.
const maxResting = 2

// Crew runs functions in goroutines of its own. A goroutine that has ended one waits
// for the next, since a new goroutine would have to grow its stack first. One
// goroutine calls Go and Wait.
type Crew struct {
	running sync.WaitGroup
	resting atomic.Int32
	next    chan func() // taken by goroutines that rest; closed by Wait
}

// New returns a crew without goroutines.
func New() *Crew { return &Crew{next: make(chan func())} }

// Go runs f in a goroutine. It does not block.
func (c *Crew) Go(f func()) {
	select {
	case c.next <- f:
	default:
		c.running.Go(func() { c.work(f) })
	}
}

// work runs f, and then the functions that Go hands over, until enough other goroutines
// rest or Wait has closed the channel.
func (c *Crew) work(f func()) {
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

// Wait blocks until all that was begun has ended. Go must not be called afterwards.
func (c *Crew) Wait() {
	close(c.next)
	c.running.Wait()
}
