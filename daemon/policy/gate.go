package policy

import (
	"context"
	"slices"
	"sync"

	"holdline/protocol/fault"
)

// GateOptions are the limits of a [Gate]. Each must be at least 1.
type GateOptions struct {
	Server     string // for errors
	InFlight   int    // calls at once
	Queue      int    // calls that wait, of all sessions
	PerSession int    // calls that wait, of one session, so that no session fills the whole queue
}

// Gate lets a limited number of calls through to a server at the same time. The other
// calls wait. The waiting sessions take turns, and the calls of one session keep their
// order: a session with a hundred calls delays the first call of another session by one
// call at most. It is safe for concurrent use.
//
// The deadline of a call starts after the gate.
type Gate struct {
	mu      sync.Mutex // guards the fields that follow
	o       GateOptions
	inside  int                  // calls
	waiting int                  // calls
	queues  map[string][]*waiter // by session, none empty
	turns   []string             // sessions that wait, in the order of their turns
}

// waiter is a call that waits. The gate closes its channel, under mu, when it lets the
// call in.
type waiter struct {
	in chan struct{}
}

// NewGate returns an empty gate.
func NewGate(o GateOptions) *Gate {
	return &Gate{o: o, queues: map[string][]*waiter{}}
}

// Enter blocks until a call of the session may be made. The caller must call
// [Gate.Leave], once, when the call is over. The error is the cause of ctx, or a
// resource_exhausted fault, at once, if too many calls wait already.
func (g *Gate) Enter(ctx context.Context, session, tool string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w, in, err := g.enter(session, tool)
	if in || err != nil {
		return err
	}
	select {
	case <-w.in:
		return nil
	case <-ctx.Done():
		if !g.withdraw(session, w) {
			g.Leave() // this call was let in at the same moment
		}
		return context.Cause(ctx)
	}
}

// enter lets a call in, or puts it into the queue.
func (g *Gate) enter(session, tool string) (w *waiter, in bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside < g.o.InFlight { // then no call waits
		g.inside++
		return nil, true, nil
	}
	mine := len(g.queues[session])
	switch {
	case mine >= g.o.PerSession:
		return nil, false, fault.New(fault.ResourceExhausted, fault.Host, operation(tool),
			"%d calls of this session wait for server %s, which takes %d at a time; wait for some of them",
			mine, g.o.Server, g.o.InFlight).
			WithLimit("calls waiting", g.o.PerSession, mine)
	case g.waiting >= g.o.Queue:
		return nil, false, fault.New(fault.ResourceExhausted, fault.Host, operation(tool),
			"%d calls wait for server %s, which takes %d at a time; try again later",
			g.waiting, g.o.Server, g.o.InFlight)
	}
	if mine == 0 {
		g.turns = append(g.turns, session)
	}
	w = &waiter{make(chan struct{})}
	g.queues[session] = append(g.queues[session], w)
	g.waiting++
	return w, false, nil
}

// withdraw removes a call from the queue. It returns false if the gate has let the call
// in already; then the caller must give the place back.
func (g *Gate) withdraw(session string, w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue := g.queues[session]
	i := slices.Index(queue, w)
	if i < 0 {
		return false
	}
	g.waiting--
	g.setQueue(session, slices.Delete(queue, i, i+1))
	return true
}

// setQueue stores the rest of a session's queue. A session whose queue is empty loses
// its turn. The caller must hold mu.
func (g *Gate) setQueue(session string, queue []*waiter) {
	if len(queue) > 0 {
		g.queues[session] = queue
		return
	}
	delete(g.queues, session)
	g.turns = slices.DeleteFunc(g.turns, func(s string) bool { return s == session })
}

// Leave gives back the place of a call that is over, and lets the next one in.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

// admit lets calls in as far as the limit allows, one session after the other. The
// caller must hold mu.
func (g *Gate) admit() {
	for g.inside < g.o.InFlight && g.waiting > 0 {
		session := g.turns[0]
		queue := g.queues[session]
		g.inside++
		g.waiting--
		close(queue[0].in)
		queue[0] = nil
		g.turns = append(g.turns[1:], session)
		g.setQueue(session, queue[1:])
	}
}

// Resize changes the limits. Calls inside and in the queue stay, even if they are now
// too many.
func (g *Gate) Resize(o GateOptions) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.o = o
	g.admit()
}

// Load returns how many calls are inside and how many wait.
func (g *Gate) Load() (inside, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside, g.waiting
}
