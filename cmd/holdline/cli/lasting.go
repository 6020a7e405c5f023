package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// Times of a command that looks for the next daemon.
const (
	lookFor      = time.Minute // less than a daemon expects it back
	firstLook    = 10 * time.Millisecond
	longestLook  = time.Second
	mostLookings = 3 // daemons that it starts meanwhile
)

// errAbsent is the end of a command by its user while it looks for a daemon.
var errAbsent = errors.New("no daemon was there")

// errStopped ends the search for a daemon: the user has stopped it.
var errStopped = errors.New("holdline was stopped")

// lasting runs f with a connection to the daemon, c at first, and again with
// one to the next daemon when the line breaks: what f asks for must be the
// same thing however often it is asked. If no daemon is found in time the
// error is errLost. The connections are closed.
func lasting(cmd *cobra.Command, w *world, c *control.Client, f func(context.Context, *control.Client) error) error {
	for losses := 0; ; losses++ {
		begin := time.Now()
		err := f(cmd.Context(), c)
		c.Close()
		if !lineLost(err) || cmd.Context().Err() != nil {
			return err
		}
		if time.Since(begin) > lossSpan {
			losses = 0
		}
		if losses == maxLosses {
			return fmt.Errorf("%w: %d daemons ended one after the other: %w", errLost, losses+1, err)
		}
		if c, err = nextDaemon(cmd, w); err != nil {
			return err
		}
	}
}

// lineLost tells whether what was asked has no answer because the daemon ended.
func lineLost(err error) bool {
	if remote, answered := errors.AsType[*control.RemoteError](err); answered && remote.Fault != nil {
		return remote.Fault.Stage == fault.Host && remote.Fault.Fault.Code == fault.TransportFailure // it is stopping
	}
	return broke(err)
}

// nextDaemon connects to the daemon that follows one that has ended, and
// starts it if nobody else does.
func nextDaemon(cmd *cobra.Command, w *world) (*control.Client, error) {
	limit := time.NewTimer(lookFor)
	defer limit.Stop()
	for starts, wait := 0, firstLook; ; wait = min(2*wait, longestLook) {
		c, err := connect(cmd, w)
		if errors.Is(err, errNoDaemon) && starts < mostLookings {
			if stoppedByUser(cmd, w) {
				return nil, fmt.Errorf("%w: %w", errLost, errStopped)
			}
			starts++
			c, err = connectOrStart(cmd, w)
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
			return nil, fmt.Errorf("%w: %w", errAbsent, context.Cause(cmd.Context()))
		case <-limit.C:
			return nil, fmt.Errorf("%w: the daemon ended, and there is no other within %v: %w", errLost, lookFor, err)
		}
	}
}

// stoppedByUser tells whether there is no daemon because the user wants none.
func stoppedByUser(cmd *cobra.Command, w *world) bool {
	paths, err := pathsOf(cmd, w)
	if err != nil {
		return false
	}
	_, err = os.Lstat(filepath.Join(filepath.Dir(paths.Start()), socket.StoppedFile))
	return err == nil
}

// pathsOf is where a command looks for the daemon.
func pathsOf(cmd *cobra.Command, w *world) (socket.Paths, error) {
	explicit, err := cmd.Flags().GetString("socket")
	if err != nil {
		return socket.Paths{}, err
	}
	return socket.Resolve(explicit, w.getenv)
}
