package serverscmd

import (
	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
)

// NewReloadCommand returns the command reload. It fails if the file is refused, or if a server
// could not be replaced. Agents stay connected meanwhile.
func NewReloadCommand(proc *cmdenv.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Read the configuration again",
		Long: `Read the configuration again. A server whose entry has changed is replaced once a
process of the new entry has started and the calls in flight have ended. If the new
entry does not start, the server goes on as before, and the command says why. The
other servers go on. A file with an error is refused with its line and column, and
the configuration in force stays.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return reload(cmd, proc) },
	}
}

// reload has the daemon read its configuration again, and prints whether that changed
// anything. It needs a daemon that runs.
func reload(cmd *cobra.Command, proc *cmdenv.Process) error {
	answer, err := attach.Ask[control.ReloadAnswer](cmd, proc, control.Reload, nil)
	if err != nil {
		return err
	}
	what := "no change"
	if answer.Changed {
		what = "reloaded"
	}
	if answer.Absent {
		what += ": it is not there, all defaults"
	}
	_ = console.Say(cmd, "%s: %s", answer.Path, what)
	return attach.Unreplaced(&answer)
}
