package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol/fault"
)

// through sends calls through a gate, one after another in this order, each of which takes
// a second. It returns the order in which they were let in.
func through(t *testing.T, g *Gate, sessions []string) []string {
	t.Helper()
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	for i, s := range sessions {
		all.Go(func() {
			err := g.Enter(t.Context(), s, "t")
			if err != nil {
				t.Errorf("Enter: %v", err)
				return
			}
			mu.Lock()
			order = append(order, fmt.Sprintf("%s%d", s, i))
			mu.Unlock()
			time.Sleep(time.Second)
			g.Leave()
		})
		synctest.Wait()
	}
	all.Wait()
	if inside, waiting := g.Load(); inside != 0 || waiting != 0 {
		t.Errorf("%d inside and %d waiting at the end", inside, waiting)
	}
	return order
}

func TestGateIsFairBetweenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(GateOptions{Server: "s", InFlight: 1, Queue: 100, PerSession: 100})
		got := through(t, g, []string{"a", "a", "a", "a", "b", "c", "b"})
		want := []string{"a0", "a1", "b4", "c5", "a2", "b6", "a3"}
		if !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
}

// TestGateLimits checks the limits of calls in flight, queued, and queued for one session.
func TestGateLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(GateOptions{Server: "s", InFlight: 2, Queue: 3, PerSession: 2})
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		errBoom := errors.New("boom")
		wait := func(session string) {
			all.Go(func() {
				if err := g.Enter(ctx, session, "t"); !errors.Is(err, errBoom) {
					t.Errorf("Enter = %v, want the cause of its context", err)
				}
			})
			synctest.Wait()
		}
		inside := 0
		for range 2 {
			err := g.Enter(ctx, "a", "t")
			if err != nil {
				t.Fatal(err)
			}
			inside++
		}
		wait("a")
		wait("a")
		err := g.Enter(ctx, "a", "t")
		if f := isFault(t, err, fault.ResourceExhausted); !f.IsOwn() ||
			*f.Limit != (fault.Limit{Name: "calls waiting", Value: 2, Spent: 2}) {
			t.Errorf("beyond its own share the limit is %+v", f.Limit)
		}
		wait("b")
		err = g.Enter(ctx, "c", "t")
		if f := isFault(t, err, fault.ResourceExhausted); f.IsOwn() {
			t.Errorf("a queue that is full of others' calls is a limit of its own: %+v", f.Limit)
		}
		if inside, waiting := g.Load(); inside != 2 || waiting != 3 {
			t.Errorf("%d inside and %d waiting", inside, waiting)
		}
		cancel(errBoom)
		all.Wait()
		if inside, waiting := g.Load(); inside != 2 || waiting != 0 {
			t.Errorf("%d inside and %d waiting after the waiting ones left", inside, waiting)
		}
		if err := g.Enter(ctx, "a", "t"); !errors.Is(err, errBoom) {
			t.Errorf("Enter with a context that is done = %v", err)
		}
		for range inside {
			g.Leave()
		}
		if len(g.queues) != 0 || len(g.turns) != 0 {
			t.Errorf("left behind: %v, %v", g.queues, g.turns)
		}
	})
}

// TestGateLosesNoPlace checks that a call that is cancelled at the moment at which it is
// let in does not keep a place.
func TestGateLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(GateOptions{Server: "s", InFlight: 1, Queue: 1, PerSession: 1})
		for range 100 {
			err := g.Enter(t.Context(), "a", "t")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var second sync.WaitGroup
			second.Go(func() {
				if err := g.Enter(ctx, "b", "t"); err == nil {
					g.Leave()
				}
			})
			synctest.Wait()
			cancel() // in most runs it is let in before it sees the cancellation
			g.Leave()
			second.Wait()
			if inside, _ := g.Load(); inside != 0 {
				t.Fatal("a place is lost")
			}
		}
	})
}

// TestGateResize checks that a new limit applies at once to queued calls.
func TestGateResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := GateOptions{Server: "s", InFlight: 1, Queue: 10, PerSession: 10}
		g := NewGate(o)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				err := g.Enter(t.Context(), "a", "t")
				if err != nil {
					t.Errorf("Enter: %v", err)
					return
				}
				time.Sleep(time.Hour)
				g.Leave()
			})
		}
		synctest.Wait()
		o.InFlight = 3
		g.Resize(o)
		if inside, waiting := g.Load(); inside != 3 || waiting != 2 {
			t.Errorf("%d inside and %d waiting after the limit was raised", inside, waiting)
		}
		o.InFlight = 1
		g.Resize(o)
		all.Wait()
	})
}

// TestGateAtOnce checks, with random calls that enter, leave and give up, that the limit is
// never exceeded and that no place is lost.
func TestGateAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		g := NewGate(GateOptions{Server: "s", InFlight: limit, Queue: 1000, PerSession: 1000})
		random := rand.New(rand.NewPCG(seed, 1))
		var all sync.WaitGroup
		for i := range 500 {
			start, give, stay := random.IntN(1000), random.IntN(20), random.IntN(5)
			all.Go(func() {
				time.Sleep(time.Duration(start) * time.Millisecond)
				// The deadlines are meant to fall on the moments at which others leave.
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(give)*time.Millisecond)
				defer cancel()
				err := g.Enter(ctx, fmt.Sprint(i%7), "t")
				if err != nil {
					return
				}
				if inside, _ := g.Load(); inside > limit {
					t.Errorf("%d inside", inside)
				}
				time.Sleep(time.Duration(stay) * time.Millisecond)
				g.Leave()
			})
		}
		all.Wait()
		if inside, waiting := g.Load(); inside != 0 || waiting != 0 || len(g.queues) != 0 || len(g.turns) != 0 {
			t.Errorf("%d inside, %d waiting, queues %v, turns %v", inside, waiting, g.queues, g.turns)
		}
	})
}
