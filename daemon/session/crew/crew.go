// Package crew runs the calls of sessions in few goroutines.
package crew

import (
	"sync"
	"time"
)

const (
	// maxResting is how many goroutines of a pool wait for the next calls.
	maxResting = 64
	// restTime is the time after which a goroutine ends that had nothing to do.
	restTime = time.Second
)

// Pool has the goroutines of all crews. A goroutine that has run one function waits for
// the next one, since a new goroutine would have to grow its stack first. The one that
// has waited least is taken: its stack is in the processor's cache.
//
// The zero Pool is ready for use. Goroutines that rest end when its last crew has ended.
type Pool struct {
	mu      sync.Mutex
	crews   int         // that have not ended
	resting []chan task // one of each goroutine that rests, the latest last
	least   int         // how many have rested all the time since trim ran
	timer   *time.Timer // runs trim; nil unless goroutines rest
}

// task is a function of a crew.
type task struct {
	run  func()
	crew *Crew
}

// Crew runs the functions of one session. One goroutine calls Go and Wait; its functions may
// call Go, too.
type Crew struct {
	pool    *Pool
	running sync.WaitGroup // functions
}

// New returns a crew without functions. The caller must call [Crew.Wait].
func (p *Pool) New() *Crew {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crews++
	return &Crew{pool: p}
}

// Go runs f in a goroutine. It does not block.
func (c *Crew) Go(f func()) {
	c.running.Add(1)
	p, t := c.pool, task{f, c}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.resting) - 1; n >= 0 {
		p.resting[n] <- t // which has room
		p.resting = p.resting[:n]
		p.least = min(p.least, n)
		return
	}
	go p.work(t)
}

// work runs t, and then what Go hands over, until enough goroutines rest, or this one has
// rested for too long.
func (p *Pool) work(t task) {
	next := make(chan task, 1)
	for ok := true; ok; {
		t.run()
		t.crew.running.Done()
		if !p.rest(next) {
			return
		}
		t, ok = <-next
	}
}

// rest adds a goroutine to those that rest, and reports whether it may.
func (p *Pool) rest(next chan task) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.resting) == maxResting || p.crews == 0 {
		return false
	}
	p.resting = append(p.resting, next)
	if p.timer == nil {
		p.least = 0
		p.timer = time.AfterFunc(restTime, p.trim)
	}
	return true
}

// trim ends the goroutines that have rested since it ran last.
func (p *Pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(p.least)
	if p.least = len(p.resting); p.least > 0 && p.timer != nil {
		p.timer.Reset(restTime)
	} else {
		p.timer = nil
	}
}

// endLocked ends the first n goroutines that rest. The caller must hold p.mu.
func (p *Pool) endLocked(n int) {
	for _, next := range p.resting[:n] {
		close(next)
	}
	p.resting = append(p.resting[:0], p.resting[n:]...)
}

// Wait blocks until all that was begun has ended. Go must not be called afterwards.
func (c *Crew) Wait() {
	c.running.Wait()
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crews--
	if p.crews > 0 {
		return
	}
	p.endLocked(len(p.resting))
	p.least = 0
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
