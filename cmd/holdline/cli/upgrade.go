package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/glance"
	"holdline/daemon/plural"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// upgradeWait bounds the check of the new program and the wait for the new daemon.
const upgradeWait = 60 * time.Second

// newUpgradeCommand returns the command upgrade. It fails if the daemon rejects the new
// program, or if no successor answers within [upgradeWait].
func newUpgradeCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "upgrade",
		Short: "Let the daemon hand over to the installed binary now",
		Long: `Let the daemon hand over to the binary at the path that it was started by. It
does so by itself a second or two after the file was replaced; this command does
it now, tries a file again that was rejected, and says what happened. The
process stays the same, the socket stays open, and agents go on.

A binary that cannot take over is not used, and the daemon goes on as before.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), upgradeWait)
			defer cancel()
			return attach.WithDaemon(cmd, proc, func(_ context.Context, c *control.Client) error {
				return upgrade(ctx, cmd, proc, c)
			})
		},
	}
}

// upgrade asks the daemon behind c to hand over, and prints the outcome. A daemon that hands
// over gives no answer: its connection ends after it has reported progress. So the answer of a
// daemon means that it goes on, be it that there is nothing new or that it rejects the program.
func upgrade(ctx context.Context, cmd *cobra.Command, proc *cmdenv.Process, c *control.Client) error {
	agents := countAgents(ctx, c)
	var answer control.UpgradeAnswer
	handing := false
	err := c.Call(ctx, control.Upgrade, nil, &answer, func(control.Progress) { handing = true })
	// There are three outcomes: the new program is the running one, the daemon rejects it, or
	// the connection ends because the daemon hands over.
	remote, answered := errors.AsType[*control.RemoteError](err)
	switch {
	case err == nil:
		return console.Say(cmd, "already the running version: %s (%s)", answer.Version, answer.Path)
	case answered && remote.Fault != nil && remote.Fault.Fault.Code == fault.RolloutFailure:
		return cmdenv.WithHint(
			fmt.Errorf("rejected: %s", remote.Message),
			fmt.Sprintf("version %s goes on; install the binary again, then: holdline upgrade", c.Daemon.Version))

	// A lost connection without a hand-over is an error like any other. So is the
	// end of the wait, or an interrupt.
	case answered || !handing || ctx.Err() != nil:
		return err
	}
	return awaitSuccessor(ctx, cmd, proc, c.Daemon, agents)
}

// countAgents returns how many agents the daemon behind c serves; 0 if it does not say.
func countAgents(ctx context.Context, c *control.Client) int {
	var status control.StatusAnswer
	if c.Call(ctx, control.Status, nil, &status, nil) != nil {
		return 0
	}
	connected := 0
	for _, a := range glance.Agents(status.Sessions) {
		if a.Lost < len(a.Sessions) {
			connected++
		}
	}
	return connected
}

// backTime is how long awaitSuccessor waits for the agents: each proxy connects again by itself.
const backTime = 3 * time.Second

// awaitSuccessor waits until a daemon of a later generation than old answers, and until the agents of the old
// one are connected to it. It prints the version, and how many they are. The generation tells the daemons
// apart, since a hand-over keeps the pid.
func awaitSuccessor(
	ctx context.Context, cmd *cobra.Command, proc *cmdenv.Process, old protocol.DaemonInfo, agents int,
) error {
	var now protocol.DaemonInfo
	var last error
	err := attach.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		next, err := attach.Connect(ctx, cmd, proc)
		if err != nil {
			last = err
			return false, nil
		}
		defer next.Close()
		// The old daemon may still answer: the process and the socket stay the same.
		now = next.Daemon
		return now.Epoch > old.Epoch, nil
	})
	if err != nil {
		return cmdenv.WithHint(
			fmt.Errorf("the daemon handed over and its successor does not answer: %w", errors.Join(last, err)),
			"look at holdline logs")
	}
	if agents == 0 {
		return console.Say(cmd, "%s has taken over", now.Version)
	}
	connected := 0
	back, cancel := context.WithTimeout(ctx, backTime)
	defer cancel()
	_ = attach.Poll(back, 10*time.Millisecond, func() (bool, error) { // what is not back by then is told below
		next, err := attach.Connect(back, cmd, proc)
		if err != nil {
			return false, nil
		}
		defer next.Close()
		connected = countAgents(back, next)
		return connected >= agents, nil
	})
	if connected < agents {
		return console.Say(cmd, "%s has taken over; %d of %s are connected again so far",
			now.Version, connected, plural.Count(agents, "agent"))
	}
	return console.Say(cmd, "%s has taken over; %s stayed connected", now.Version, plural.Count(agents, "agent"))
}
