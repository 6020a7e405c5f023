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

// politeTime bounds the wait for the end of an interrupted consult. It is longer than the
// daemon takes to end one.
const politeTime = 10 * time.Second

// politely returns a context for a consult that survives the first interrupt of the command.
// At that interrupt, the command asks the daemon to cancel the consult. The answer so far then
// arrives as any other answer does.
//
// The context ends at a second interrupt, after [politeTime], or at once if the id of the
// consult is not known yet: then there is nothing to cancel, and the end of the connection
// ends the consult. id returns that id, or ""; another goroutine calls it. The caller must call
// done, which ends the context and waits for the goroutines.
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
		// The first interrupt was taken by the command's own context, which stays done. So
		// a second one needs a channel.
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
		consult := id()
		if consult == "" {
			return
		}
		// The request has a connection of its own: the first one waits for the answer.
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

// cancelConsult asks the daemon to cancel a consult, and blocks until that has ended or ctx
// ends. It ignores errors: when the connection that waits for the answer ends, the daemon ends
// the consult, too.
func cancelConsult(ctx context.Context, cmd *cobra.Command, proc *cmdenv.Process, id string) {
	c, err := attach.Connect(ctx, cmd, proc)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.Call(ctx, control.ConsultCancel, control.ConsultID{ID: id}, nil, nil)
}
