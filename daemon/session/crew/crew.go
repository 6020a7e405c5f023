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

// New returns a crew without functions, which keeps the goroutines of p alive. The caller must
// call [Crew.Wait] once. It takes p.mu.
func (p *Pool) New() *Crew {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crews++
	return &Crew{pool: p}
}

// Go runs f in a goroutine: one of the pool that rests, or a new one. It does not block, and sets
// no limit. It must not be called after [Crew.Wait] has returned. It takes the mutex of the pool.
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

// work runs t, and then the tasks that Go hands over to this goroutine. It returns when enough
// goroutines rest, when no crew is left, or when trim ends the goroutine after its rest. It must
// not be called with p.mu held.
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

// rest adds next, the channel of the calling goroutine, to those that rest, and returns true; it
// starts the timer for trim if none runs. It returns false, and the goroutine must end, if enough
// goroutines rest or no crew is left. It takes p.mu.
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

// trim ends the goroutines that have rested all the time since it ran last, and starts the timer
// again if others still rest. The timer calls it, every restTime. It takes p.mu.
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

// endLocked ends the first n goroutines that rest, those that have rested longest. It does not
// wait for their end. The caller must hold p.mu.
func (p *Pool) endLocked(n int) {
	for _, next := range p.resting[:n] {
		close(next)
	}
	p.resting = append(p.resting[:0], p.resting[n:]...)
}

// Wait blocks until all functions of the crew have returned. If no other crew is left, it then
// ends the goroutines of the pool that rest. Go must not be called afterwards. It takes the mutex
// of the pool.
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
