package serverscmd

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
	"holdline/protocol/socket"
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
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", answer.Path, what)
	return unreplaced(&answer)
}

// unreplaced returns an error that names the servers which run on as before although their
// entries have changed, and why; nil if there are none. They run on because no process of the
// new entry came up.
func unreplaced(answer *control.ReloadAnswer) error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(answer.Kept)) {
		all = append(all, fmt.Errorf("%s: %s", name, answer.Kept[name]))
	}
	return errors.Join(all...)
}

// ReloadFile has a running daemon read its configuration again after the file at path was
// edited. It does nothing if no daemon runs, and warns if the daemon reads another file. It
// returns when the servers whose entries have changed are replaced, or the daemon stops waiting
// for that.
func ReloadFile(cmd *cobra.Command, proc *cmdenv.Process, path string) error {
	answer, err := attach.Ask[control.ReloadAnswer](cmd, proc, control.Reload, nil)
	switch {
	case errors.Is(err, socket.ErrNoDaemon):
		return nil
	case err != nil:
		return fmt.Errorf("the file is written, but the daemon goes on with what it had: %w", err)
	}
	if !cmdenv.SameFile(answer.Path, path) {
		console.Warn(cmd, "the running daemon reads another file: %s", answer.Path)
	}
	return unreplaced(&answer)
}
