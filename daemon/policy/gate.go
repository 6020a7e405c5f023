package policy

import (
	"context"
	"slices"
	"sync"

	"holdline/protocol/fault"
)

// GateOptions are the limits of a [Gate], all at least 1.
type GateOptions struct {
	Server     string // for errors
	InFlight   int    // calls at once
	Queue      int    // calls that wait, of all sessions
	PerSession int    // calls that wait, of one session: what keeps one from taking the whole queue
}

// Gate lets a limited number of calls through to a server at a time. The
// others wait, in turn by session and in their order within one, so that a
// session with a hundred calls holds up another's first no longer than one of
// its own takes. It is safe for concurrent use.
//
// A call's deadline begins behind the gate.
type Gate struct {
	mu      sync.Mutex
	o       GateOptions
	inside  int
	waiting int
	queues  map[string][]*waiter // by session, none empty
	turns   []string             // sessions that wait, the next one first
}

// waiter is a call that waits. Its channel is closed, under the gate's lock,
// when it is let in.
type waiter struct {
	in chan struct{}
}

// NewGate is an empty gate.
func NewGate(o GateOptions) *Gate {
	return &Gate{o: o, queues: map[string][]*waiter{}}
}

// Enter waits until a call of the session may be made. Leave must be called
// when it is over; further calls of it do nothing. The error is ctx's cause,
// or a fault of code resource_exhausted at once if too many wait already.
func (g *Gate) Enter(ctx context.Context, session, tool string) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w, err := g.enter(session, tool)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.in:
	case <-ctx.Done():
		if g.withdraw(session, w) {
			return nil, context.Cause(ctx)
		}
		// It was let in at the same moment; whoever waits is next.
		g.leave()
		return nil, context.Cause(ctx)
	}
	return sync.OnceFunc(g.leave), nil
}

func (g *Gate) enter(session, tool string) (*waiter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &waiter{make(chan struct{})}
	if g.inside < g.o.InFlight { // so nobody waits
		g.inside++
		close(w.in)
		return w, nil
	}
	mine := len(g.queues[session])
	switch {
	case mine >= g.o.PerSession:
		return nil, fault.New(fault.ResourceExhausted, fault.Host, operation(tool),
			"%d calls of this session wait for server %s, which takes %d at a time; wait for some of them", mine, g.o.Server, g.o.InFlight).
			WithLimit("calls waiting", g.o.PerSession, mine)
	case g.waiting >= g.o.Queue:
		return nil, fault.New(fault.ResourceExhausted, fault.Host, operation(tool),
			"%d calls wait for server %s, which takes %d at a time; try again later", g.waiting, g.o.Server, g.o.InFlight)
	}
	if mine == 0 {
		g.turns = append(g.turns, session)
	}
	g.queues[session] = append(g.queues[session], w)
	g.waiting++
	return w, nil
}

// withdraw takes a call out of the queue; false if it has been let in.
func (g *Gate) withdraw(session string, w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue := g.queues[session]
	i := slices.Index(queue, w)
	if i < 0 {
		return false
	}
	g.waiting--
	g.keep(session, slices.Delete(queue, i, i+1))
	return true
}

// keep stores what is left of a session's queue.
func (g *Gate) keep(session string, queue []*waiter) {
	if len(queue) > 0 {
		g.queues[session] = queue
		return
	}
	delete(g.queues, session)
	g.turns = slices.DeleteFunc(g.turns, func(s string) bool { return s == session })
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

// admit lets in who may.
func (g *Gate) admit() {
	for g.inside < g.o.InFlight && g.waiting > 0 {
		session := g.turns[0]
		queue := g.queues[session]
		g.inside++
		g.waiting--
		close(queue[0].in)
		queue[0] = nil
		g.turns = append(g.turns[1:], session)
		g.keep(session, queue[1:])
	}
}

// Resize changes the limits; calls inside and in the queue stay there.
func (g *Gate) Resize(o GateOptions) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.o = o
	g.admit()
}

// Load is how many calls are inside and how many wait.
func (g *Gate) Load() (inside, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside, g.waiting
}
