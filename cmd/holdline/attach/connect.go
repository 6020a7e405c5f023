// Package attach finds the daemon for a command, starts it, and finds the next one
// when the daemon is replaced.
package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/doctor"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// Limits of how often a command connects again because its daemon was
// replaced: a daemon that this very command kills must not be asked for ever.
const (
	maxLosses = 5
	lossSpan  = 10 * time.Second // a connection that held for longer begins the count anew
)

// WithDaemon runs f with a connection to the running daemon. If that breaks,
// because the daemon was replaced, f is run again with the next one: it must
// ask for nothing that may not be asked twice.
func WithDaemon(cmd *cobra.Command, proc *cmdenv.Process, f func(context.Context, *control.Client) error) error {
	var lost error
	for losses := 0; ; losses++ {
		begin := time.Now()
		c, err := Connect(cmd, proc)
		if err == nil {
			err = f(cmd.Context(), c)
			c.Close()
		} else if lost != nil && !broke(err) { // stopped, not replaced
			return lost
		}
		if time.Since(begin) > lossSpan {
			losses = 0
		}
		if !broke(err) || losses == maxLosses || cmd.Context().Err() != nil {
			return err
		}
		lost = err
	}
}

// broke tells whether a connection to the daemon ended before its time.
func broke(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Connect greets the running daemon.
func Connect(cmd *cobra.Command, proc *cmdenv.Process) (*control.Client, error) {
	explicit, err := cmd.Flags().GetString("socket")
	if err != nil {
		return nil, err
	}
	paths, err := socket.Resolve(explicit, proc.Getenv)
	if err != nil {
		return nil, err
	}
	return DialPaths(cmd.Context(), paths)
}

// DialPaths greets the daemon that listens at one of paths, and the next one if
// it is replaced before it answers: nothing was asked yet.
func DialPaths(ctx context.Context, paths socket.Paths) (*control.Client, error) {
	for losses := 0; ; losses++ {
		conn, path, err := paths.Dial(ctx)
		switch {
		case errors.Is(err, socket.ErrNoDaemon):
			return nil, fmt.Errorf("%w: %w", cmdenv.ErrNoDaemon, err)
		case err != nil:
			return nil, fmt.Errorf("connecting to the daemon: %w", err)
		}
		c, err := control.NewClient(ctx, conn, cmdenv.Version, os.Getpid())
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, hung(path, err)
		case !broke(err) || losses == maxLosses:
			return c, err
		}
	}
}

// HungError is the error about a daemon that listens and does not answer.
type HungError struct {
	Dir string // its runtime directory
	who string
	err error
}

func (h *HungError) Error() string {
	return fmt.Sprintf("%s in %s does not answer: %v", h.who, h.Dir, h.err)
}

func (h *HungError) Unwrap() error { return h.err }

// hung makes the error about the daemon at path.
func hung(path string, err error) error {
	h := &HungError{Dir: filepath.Dir(path), who: "the daemon", err: err}
	holder, _, err := statedir.Holder(filepath.Join(h.Dir, socket.LockFile))
	if err != nil {
		return cmdenv.WithHint(h, "holdline doctor")
	}
	h.who = fmt.Sprintf("daemon %d", holder)
	return cmdenv.WithHint(h, doctor.WayOut(holder))
}

// PathsOf is where a command looks for the daemon.
func PathsOf(cmd *cobra.Command, proc *cmdenv.Process) (socket.Paths, error) {
	explicit, err := cmd.Flags().GetString("socket")
	if err != nil {
		return socket.Paths{}, err
	}
	return socket.Resolve(explicit, proc.Getenv)
}
