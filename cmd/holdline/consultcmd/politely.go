package consultcmd

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/control"
)

// politeTime is how long an interrupted consult may take to end: longer than
// the daemon takes to end any.
const politeTime = 10 * time.Second

// politely is a context for a consult that goes on when the command is
// interrupted: the daemon is told to cancel the consult, whose answer so far
// then comes as any other does. It ends at a second interrupt, or if that takes
// too long, or if there is no consult to cancel yet. done must be called, and
// waits for all that was begun.
func politely(cmd *cobra.Command, proc *cmdenv.Process, id func() string) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context()))
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-cmd.Context().Done():
		}
		defer cancel()
		// The first interrupt was taken by the command's own context.
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
		consult := id()
		if consult == "" {
			return
		}
		wait.Go(func() { cancelConsult(ctx, cmd, proc, consult) })
		limit := time.NewTimer(politeTime)
		defer limit.Stop()
		select {
		case <-ctx.Done():
		case <-again:
		case <-limit.C:
		}
	})
	return ctx, func() {
		cancel()
		wait.Wait()
	}
}

// cancelConsult ends a consult. If that cannot be said, the end of the
// connection that waits for its answer will end it.
func cancelConsult(ctx context.Context, cmd *cobra.Command, proc *cmdenv.Process, id string) {
	c, err := attach.Connect(ctx, cmd, proc)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.Call(ctx, control.ConsultCancel, control.ConsultID{ID: id}, nil, nil)
}
