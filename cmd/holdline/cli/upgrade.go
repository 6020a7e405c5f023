package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// upgradeWait bounds the trying of the new program and the wait for it to
// serve.
const upgradeWait = 60 * time.Second

func newUpgradeCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "upgrade",
		Short: "Let the daemon hand over to the installed binary now",
		Long: `Let the daemon hand over to the binary at the path that it was started by. It
does so by itself a second or two after the file was replaced; this command does
it now, tries a file again that was rejected, and says what happened. The
process stays the same, the socket stays open, and agents go on.

A binary that cannot take over is not used, and the daemon goes on as before.`,
		Args: cmdenv.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), upgradeWait)
			defer cancel()
			return attach.WithDaemon(cmd, proc, func(_ context.Context, c *control.Client) error {
				return upgrade(ctx, cmd, proc, c)
			})
		},
	}
}

// upgrade asks the daemon behind c to hand over, and tells what came of it.
func upgrade(ctx context.Context, cmd *cobra.Command, proc *cmdenv.Process, c *control.Client) error {
	out := cmd.OutOrStdout()
	var answer control.UpgradeAnswer
	handing := false
	err := c.Call(ctx, control.Upgrade, nil, &answer, func(control.Progress) { handing = true })
	remote, answered := errors.AsType[*control.RemoteError](err)
	switch {
	case err == nil:
		_, err = fmt.Fprintf(out, "already the running version: %s (%s)\n", answer.Version, answer.Path)
		return err
	case answered && remote.Fault != nil && remote.Fault.Fault.Code == fault.RolloutFailure:
		return cmdenv.WithHint(
			fmt.Errorf("rejected: %s", remote.Message),
			fmt.Sprintf("version %s goes on; install the binary again, then: holdline upgrade", c.Daemon.Version))

	case answered || !handing || ctx.Err() != nil:
		return err
	}
	return welcomed(ctx, cmd, proc, c, out)
}

// welcomed waits for the daemon that took over from the one behind c.
func welcomed(ctx context.Context, cmd *cobra.Command, proc *cmdenv.Process, c *control.Client, out io.Writer) error {
	explicit, err := cmd.Flags().GetString("socket")
	if err != nil {
		return err
	}
	paths, err := socket.Resolve(explicit, proc.Getenv)
	if err != nil {
		return err
	}
	old := c.Daemon
	for {
		next, err := attach.DialPaths(ctx, paths)
		if err == nil {
			now := next.Daemon
			next.Close()
			if now.Epoch > old.Epoch {
				pids := "pid unchanged"
				if now.PID != old.PID {
					pids = fmt.Sprintf("pid %d → %d", old.PID, now.PID)
				}
				_, err := fmt.Fprintf(out, "handed over: %s → %s, %s\n", old.Version, now.Version, pids)
				return err
			}
		}
		select {
		case <-ctx.Done():
			return cmdenv.WithHint(
				fmt.Errorf("the daemon handed over and its successor does not answer: %w", errors.Join(err, ctx.Err())),
				"look at holdline logs")

		case <-time.After(10 * time.Millisecond):
		}
	}
}
