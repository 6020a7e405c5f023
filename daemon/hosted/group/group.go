// Package group has the goroutines of hosted servers. They end with the daemon, and a panic
// in one of them ends the process that it serves and nothing else.
package group

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// A Group is goroutines that end with the daemon's life.
type Group struct {
	Log *slog.Logger
	// Life bounds everything that outlives a call.
	Life context.Context    //nolint:containedctx // the daemon's own, for what outlives a call
	End  context.CancelFunc // ends Life
	WG   sync.WaitGroup     // counts the goroutines
}

// New returns a group without goroutines. The caller must call End.
func New(log *slog.Logger) *Group {
	g := &Group{Log: log}
	g.Life, g.End = context.WithCancel(context.Background()) //nolint:gosec // the owner of the group calls End
	return g
}

// Panicked logs a panic with its stack, and returns the fault that stands for it.
// Call it in the deferred function that recovered: the stack is the panic's.
func (g *Group) Panicked(server, doing string, reason any) *fault.Record {
	stack := string(debug.Stack())
	g.background(func() { // the caller may hold a mutex
		g.Log.Error("internal failure, contained to one process of a server", "server", server, "while_it", doing,
			"panic", fmt.Sprint(reason), "stack", stack)
	})
	return fault.New(fault.InternalFailure, fault.Host, "run:"+server,
		"holdline itself failed when it %s of server %s: %v. It ends that process of the server; "+
			"everything else goes on. The stack is in the log: holdline logs",
		doing, server, reason)
}

// background runs f in a goroutine that WG counts. After the end of Life it runs f at once,
// in the caller's goroutine.
func (g *Group) background(f func()) {
	if g.Life.Err() != nil {
		f()
		return
	}
	g.WG.Go(f)
}

// Pause waits for d, or until skip is closed, which may be nil. It returns
// [tool.ErrStopping] if Life has ended.
func (g *Group) Pause(d time.Duration, skip <-chan struct{}) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-skip:
		case <-g.Life.Done():
		}
	}
	if g.Life.Err() != nil {
		return tool.ErrStopping
	}
	return nil
}
