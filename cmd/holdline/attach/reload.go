package attach

import (
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/configfile"
	"holdline/daemon/shellword"
	"holdline/daemon/spelling"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// Unreplaced returns an error that names the servers which run on as before although their
// entries have changed, and why; nil if there are none. They run on because no process of the
// new entry came up.
func Unreplaced(answer *control.ReloadAnswer) error {
	var all []error
	for _, name := range spelling.Sorted(maps.Keys(answer.Kept)) {
		all = append(all, fmt.Errorf("%s: %s", name, answer.Kept[name]))
	}
	return errors.Join(all...)
}

// CheckEdit returns an error if the configuration file at path says nothing although a daemon
// has kept a copy of what it said. An edit would end all servers of the copy. What a command
// writes into a file in any other state is right.
func CheckEdit(proc *cmdenv.Process, path string) error {
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return nil //nolint:nilerr // no daemon has kept a copy then
	}
	if err := configfile.CheckNothing(state, path); err != nil {
		return cmdenv.WithHint(err, "to have the settings back: cp "+
			shellword.Quote(configfile.CopyPath(state, path))+" "+shellword.Quote(path))
	}
	return nil
}

// ReloadFile has a running daemon read its configuration again after this command has edited the
// file at path. A file that says nothing now is meant to: the next daemon takes it, too. ReloadFile
// warns if the daemon reads another file. It returns when the servers whose entries have changed
// are replaced, or the daemon stops waiting for that.
func ReloadFile(cmd *cobra.Command, proc *cmdenv.Process, path string) error {
	if err := DropCopy(proc, path); err != nil {
		return err
	}
	answer, err := Ask[control.ReloadAnswer](cmd, proc, control.Reload, control.ReloadParams{Nothing: true})
	switch {
	case errors.Is(err, socket.ErrNoDaemon):
		return nil
	case errors.Is(err, cmdenv.ErrLost):
		return fmt.Errorf("the file is written, and the next daemon reads it: %w", err)
	case err != nil:
		return fmt.Errorf("the file is written, but the daemon goes on with what it had: %w", err)
	}
	if !cmdenv.SameFile(answer.Path, path) {
		console.Warn(cmd, "the running daemon reads another file: %s", answer.Path)
	}
	return Unreplaced(&answer)
}

// DropCopy removes the daemon's copy of the configuration file at path if this command has left
// nothing in that file, or has removed it.
func DropCopy(proc *cmdenv.Process, path string) error {
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil || configfile.CheckNothing(state, path) == nil {
		return nil //nolint:nilerr // no daemon has kept a copy then
	}
	return configfile.DropCopy(state, path)
}
