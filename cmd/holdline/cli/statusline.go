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
	"holdline/cmd/holdline/glance"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// newStatuslineCommand returns the command statusline. A call without flags does not come here:
// [runProcess] dispatches it before the tree is built.
func newStatuslineCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "statusline",
		Short: "Print the status in a few words, for a prompt or a status line",
		Long: `Print the status in a few words, for a prompt or an agent's status line:

    3 agents · 7/7 ok · 1 consult · $0.42

These are the connected agents, the healthy servers out of all that you have not stopped,
the consults that run or wait, and what consults have cost today. The last two are left
out if there are none. It prints "holdline off" if no daemon runs, and "holdline busy" if
the daemon does not answer within 200 ms. It starts nothing, ignores its standard input,
and always exits with 0.

Claude Code, in ~/.claude/settings.json:

    "statusLine": {"type": "command", "command": "holdline statusline"}

bash, in ~/.bashrc:

    PS1='$(holdline statusline) \w \$ '

starship, in ~/.config/starship.toml:

    [custom.holdline]
    command = "holdline statusline"
    when = true`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := attach.PathsOf(cmd, proc)
			if err != nil {
				paths = socket.Paths{} // where no daemon is
			}
			return printStatusline(cmd.Context(), cmd.OutOrStdout(), paths)
		},
	}
}

// statuslineLimit bounds the time that the command statusline takes.
const statuslineLimit = 200 * time.Millisecond

// runStatusline runs the command statusline without flags.
func runStatusline(ctx context.Context, proc *cmdenv.Process) error {
	paths, err := socket.Resolve("", proc.Getenv)
	if err != nil {
		paths = socket.Paths{} // where no daemon is
	}
	return printStatusline(ctx, proc.Stdout, paths)
}

// printStatusline prints the status of the daemon in a few words. Whatever is wrong, it prints
// something and does not fail: it is part of a prompt.
func printStatusline(ctx context.Context, out io.Writer, paths socket.Paths) error {
	ctx, cancel := context.WithTimeout(ctx, statuslineLimit)
	defer cancel()
	words := make(chan string, 1)
	// A daemon that hangs may hold up a step that does not look at ctx. The goroutine ends
	// with the process.
	go func() { words <- askStatusline(ctx, paths) }()
	text := "holdline busy"
	select {
	case text = <-words:
	case <-ctx.Done():
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// askStatusline asks the daemon for its status, and returns that in a few words.
func askStatusline(ctx context.Context, paths socket.Paths) string {
	conn, _, err := paths.Dial(ctx)
	if errors.Is(err, socket.ErrNoDaemon) {
		return "holdline off"
	} else if err != nil {
		return "holdline busy"
	}
	c, err := control.NewClientOf(ctx, conn, cmdenv.Version, paths.State())
	if err != nil {
		return "holdline busy"
	}
	defer c.Close()
	var s control.StatusAnswer
	if err := c.Call(ctx, control.Status, nil, &s, nil); err != nil {
		return "holdline busy"
	}
	return glance.Statusline(&s)
}
