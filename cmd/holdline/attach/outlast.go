package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
	"holdline/proxy"
)

// Times of a command that looks for the next daemon.
const (
	lookFor      = time.Minute // less than a daemon expects it back
	firstLook    = 10 * time.Millisecond
	longestLook  = time.Second
	mostLookings = 3 // daemons that it starts meanwhile
)

// startWait bounds the wait for a daemon that a command has started.
const startWait = 15 * time.Second

// ErrAbsent is the end of a command by its user while it looks for a daemon.
var ErrAbsent = errors.New("no daemon was there")

// errStopped ends the search for a daemon: the user has stopped it.
var errStopped = errors.New("holdline was stopped")

// Outlast runs f with a connection to the daemon, c at first, and again with
// one to the next daemon when the line breaks: what f asks for must be the
// same thing however often it is asked. If no daemon is found in time the
// error is errLost. The connections are closed.
func Outlast(cmd *cobra.Command, proc *cmdenv.Process, c *control.Client, f func(context.Context, *control.Client) error) error {
	for losses := 0; ; losses++ {
		begin := time.Now()
		err := f(cmd.Context(), c)
		c.Close()
		if !LineLost(err) || cmd.Context().Err() != nil {
			return err
		}
		if time.Since(begin) > lossSpan {
			losses = 0
		}
		if losses == maxLosses {
			return fmt.Errorf("%w: %d daemons ended one after the other: %w", cmdenv.ErrLost, losses+1, err)
		}
		if c, err = nextDaemon(cmd, proc); err != nil {
			return err
		}
	}
}

// LineLost tells whether what was asked has no answer because the daemon ended.
func LineLost(err error) bool {
	if remote, answered := errors.AsType[*control.RemoteError](err); answered && remote.Fault != nil {
		return remote.Fault.Stage == fault.Host && remote.Fault.Fault.Code == fault.TransportFailure // it is stopping
	}
	return broke(err)
}

// nextDaemon connects to the daemon that follows one that has ended, and
// starts it if nobody else does.
func nextDaemon(cmd *cobra.Command, proc *cmdenv.Process) (*control.Client, error) {
	limit := time.NewTimer(lookFor)
	defer limit.Stop()
	for starts, wait := 0, firstLook; ; wait = min(2*wait, longestLook) {
		c, err := Connect(cmd, proc)
		if errors.Is(err, cmdenv.ErrNoDaemon) && starts < mostLookings {
			if stoppedByUser(cmd, proc) {
				return nil, fmt.Errorf("%w: %w", cmdenv.ErrLost, errStopped)
			}
			starts++
			c, err = ConnectOrStart(cmd, proc)
		}
		if err == nil {
			return c, nil
		}
		if refusal, ok := errors.AsType[*protocol.Refusal](err); ok && refusal.Code == protocol.RefusedVersion {
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-cmd.Context().Done():
			return nil, fmt.Errorf("%w: %w", ErrAbsent, context.Cause(cmd.Context()))
		case <-limit.C:
			return nil, fmt.Errorf("%w: the daemon ended, and there is no other within %v: %w", cmdenv.ErrLost, lookFor, err)
		}
	}
}

// stoppedByUser tells whether there is no daemon because the user wants none.
func stoppedByUser(cmd *cobra.Command, proc *cmdenv.Process) bool {
	paths, err := PathsOf(cmd, proc)
	if err != nil {
		return false
	}
	_, err = os.Lstat(filepath.Join(filepath.Dir(paths.Start()), socket.StoppedFile))
	return err == nil
}

// ConnectOrStart greets the running daemon, or starts one as a proxy would.
func ConnectOrStart(cmd *cobra.Command, proc *cmdenv.Process) (*control.Client, error) {
	c, err := Connect(cmd, proc)
	if !errors.Is(err, cmdenv.ErrNoDaemon) {
		return c, err
	}
	explicit, err := cmd.Flags().GetString("socket")
	if err != nil {
		return nil, err
	}
	paths, err := socket.Resolve(explicit, proc.Getenv)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), startWait)
	defer cancel()
	auto := NewAutostart(paths, proc.Getenv, proc.Stderr)
	defer auto.Close()
	ended, err := auto.Start(ctx)
	if managed, ok := errors.AsType[*proxy.ManagedError](err); ok {
		return nil, cmdenv.WithHint(fmt.Errorf("starting the daemon: %w", err), managed.Hint)
	}
	if err != nil {
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}
	for {
		c, err := DialPaths(ctx, paths)
		if err == nil {
			return c, nil
		}
		select {
		case err := <-ended:
			if err != nil {
				return nil, fmt.Errorf("starting the daemon: %w", err)
			}
			ended = nil
		case <-ctx.Done():
			return nil, fmt.Errorf("the daemon that was started does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
