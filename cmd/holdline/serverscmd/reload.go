package serverscmd

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/spelling"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// NewReloadCommand returns the command reload. It fails if the file is refused, or if a server
// could not be replaced or is left out. Agents stay connected meanwhile.
func NewReloadCommand(proc *cmdenv.Process) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Read the configuration again",
		Long: `Read the configuration again. A server whose entry has changed is replaced once a
process of the new entry has started and the calls in flight have ended. If the new
entry does not start, the server goes on as before, and the command says why. The
other servers go on. A server whose entry has a mistake is left out and named, with exit
code 1. A file with another error is refused with its line and column, and the
configuration in force stays.

A file that is empty, has nothing but comments or is gone is refused, too, if it had
settings: that would end all servers. If you mean it, answer yes, add --yes, or write {}
into the file. Then the copy of its last good state is removed.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return reload(cmd, proc, yes) },
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "also if the file is empty or gone; do not ask")
	return cmd
}

// reload has the daemon read its configuration again, and prints whether that changed
// anything. It needs a daemon that runs. Without yes it asks on a terminal before the daemon
// takes a file that says nothing although it had settings.
func reload(cmd *cobra.Command, proc *cmdenv.Process, yes bool) error {
	ask := func(yes bool) (control.ReloadAnswer, error) {
		return attach.Ask[control.ReloadAnswer](cmd, proc, control.Reload, control.ReloadParams{Nothing: yes})
	}
	answer, err := ask(yes)
	if f := faultOf(err); f != nil && f.Reason() == fault.SaysNothing {
		if !console.IsTerminal(proc.Stdin) {
			return cmdenv.WithHint(err, "if you mean it: holdline reload --yes")
		}
		if err := confirmNothing(cmd, proc, f); err != nil {
			return err
		}
		answer, err = ask(true)
	}
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
	all := []error{attach.Unreplaced(&answer)}
	for _, name := range spelling.Sorted(maps.Keys(answer.LeftOut)) {
		all = append(all, fmt.Errorf("%s: %s", name, answer.LeftOut[name]))
	}
	return errors.Join(all...)
}

// faultOf returns the fault that the daemon has answered with, or nil if err is another error.
func faultOf(err error) *fault.Record {
	if remote, answered := errors.AsType[*control.RemoteError](err); answered {
		return remote.Fault
	}
	return nil
}

// confirmNothing asks on the terminal whether all servers are to end, as f says. It returns an error
// unless the user answers yes.
func confirmNothing(cmd *cobra.Command, proc *cmdenv.Process, f *fault.Record) error {
	console.Line(cmd.ErrOrStderr(), 2, "%s", f.Fault.Detail)
	fmt.Fprint(cmd.ErrOrStderr(), "End all servers? [y/N] ")
	line, err := console.Await(cmd.Context(), func() (string, error) {
		line, err := bufio.NewReader(proc.Stdin).ReadString('\n')
		return strings.ToLower(strings.TrimSpace(line)), err
	})
	if err != nil || !slices.Contains([]string{"y", "yes"}, line) {
		return cmdenv.WithHint(errors.New("nothing was changed"), "holdline status says what is in force")
	}
	return nil
}
