package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// Limits of how often a command connects again because its daemon was
// replaced: a daemon that this very command kills must not be asked for ever.
const (
	maxLosses = 5
	lossSpan  = 10 * time.Second // after a connection that held for longer the count begins again
)

// Limits of the search for the next daemon.
const (
	searchTime       = time.Minute // less than a daemon expects the command back
	longestSearchGap = time.Second
	maxStarts        = 3 // daemons that it starts meanwhile
)

// ErrAbsent is the error of a command that its user ends while it looks for a
// daemon.
var ErrAbsent = errors.New("no daemon was there")

// WithDaemon calls f with a connection to the running daemon. If that daemon ends
// before f has its answer, and another has taken its place, WithDaemon calls f again.
// So f must ask only for what may be asked twice. If there is no other, the error
// wraps [cmdenv.ErrLost].
func WithDaemon(cmd *cobra.Command, proc *cmdenv.Process, f func(context.Context, *control.Client) error) error {
	c, err := Connect(cmd.Context(), cmd, proc)
	if err != nil {
		return err
	}
	return reconnect(cmd, c, f, func(lost error) (*control.Client, error) {
		c, err := Connect(cmd.Context(), cmd, proc)
		if err != nil && !IsBroken(err) { // it was stopped, not replaced
			return nil, unanswered(lost)
		}
		return c, err
	})
}

// Outlast calls f with a connection to the daemon, c at first, and again with the next
// daemon whenever one ends before f has its answer. So f must ask for the same thing
// each time, such as a kept answer.
//
// Outlast looks for the next daemon for searchTime, and starts one if none comes up.
// The error wraps [cmdenv.ErrLost] if there is none. Outlast closes all connections, c
// included.
func Outlast(
	cmd *cobra.Command, proc *cmdenv.Process, c *control.Client, f func(context.Context, *control.Client) error,
) error {
	return reconnect(cmd, c, f, func(error) (*control.Client, error) { return nextDaemon(cmd, proc) })
}

// Ask asks the running daemon for something that may be asked twice, and returns the
// answer.
func Ask[A any](cmd *cobra.Command, proc *cmdenv.Process, method string, params any) (answer A, err error) {
	err = WithDaemon(cmd, proc, func(ctx context.Context, c *control.Client) error {
		return c.Call(ctx, method, params, &answer, nil)
	})
	return answer, err
}

// AskOrStart makes one request, once, and returns the answer. It starts a daemon if
// none runs. progress may be nil. The error wraps [cmdenv.ErrLost] if the daemon ends
// before it has answered.
func AskOrStart[A any](cmd *cobra.Command, proc *cmdenv.Process, method string, params any,
	progress func(control.Progress),
) (answer A, err error) {
	c, err := ConnectOrStart(cmd, proc)
	if err != nil {
		return answer, err
	}
	defer c.Close()
	err = c.Call(cmd.Context(), method, params, &answer, progress)
	if IsLost(err) {
		err = unanswered(err)
	}
	return answer, err
}

// unanswered returns the error of a command whose daemon has ended before it had answered. lost is
// the error of the request.
func unanswered(lost error) error {
	return cmdenv.WithHint(fmt.Errorf("%w before it had answered (%w)", cmdenv.ErrLost, lost),
		"holdline logs says why it ended")
}

// reconnect calls f with c, and again with the connection that next returns, as long
// as the connection is lost before f has its answer. next gets the error of f.
// reconnect gives up after maxLosses daemons in quick succession. It closes every
// connection. All commands use this loop.
func reconnect(cmd *cobra.Command, c *control.Client, f func(context.Context, *control.Client) error,
	next func(lost error) (*control.Client, error),
) error {
	for losses := 0; ; losses++ {
		begin := time.Now()
		err := f(cmd.Context(), c)
		c.Close()
		if !IsLost(err) || cmd.Context().Err() != nil {
			return err
		}
		if time.Since(begin) > lossSpan {
			losses = 0
		}
		if losses == maxLosses {
			return fmt.Errorf("%w: %d daemons ended one after the other (%w)", cmdenv.ErrLost, losses+1, err)
		}
		if c, err = next(err); err != nil {
			return err
		}
	}
}

// IsLost reports whether a request has no answer because the daemon ended.
func IsLost(err error) bool {
	if remote, answered := errors.AsType[*control.RemoteError](err); answered && remote.Fault != nil {
		f := remote.Fault // it is stopping, unless it says that the host of a server cannot be reached
		return f.Stage == fault.Host && f.Fault.Code == fault.TransportFailure && f.Reason() != fault.Unreachable
	}
	return IsBroken(err)
}

// nextDaemon connects to the daemon that follows one that has ended. It starts one
// unless the user has stopped the daemon.
func nextDaemon(cmd *cobra.Command, proc *cmdenv.Process) (c *control.Client, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), searchTime)
	defer cancel()
	starts := 0
	ended := Poll(ctx, longestSearchGap, func() (bool, error) {
		c, err = Connect(cmd.Context(), cmd, proc)
		if errors.Is(err, socket.ErrNoDaemon) && starts < maxStarts {
			starts++
			c, err = startUnlessStopped(cmd, proc)
			if mark, stopped := errors.AsType[*socket.StoppedError](err); stopped {
				return false, cmdenv.WithHint(fmt.Errorf("%w: %s", cmdenv.ErrLost, mark.Words()), cmdenv.StartHint)
			}
		}
		if refusal, ok := errors.AsType[*protocol.Refusal](err); ok && refusal.Code == protocol.RefusedVersion {
			return false, err
		}
		return err == nil, nil
	})
	switch {
	case ended == nil || ctx.Err() == nil:
		return c, ended
	case cmd.Context().Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrAbsent, context.Cause(cmd.Context()))
	}
	return nil, fmt.Errorf("%w: the daemon ended, and there was no other within %v (%w)",
		cmdenv.ErrLost, searchTime, err)
}
