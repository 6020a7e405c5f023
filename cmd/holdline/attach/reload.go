package attach

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// Unreplaced returns an error that names the servers which run on as before although their
// entries have changed, and why; nil if there are none. They run on because no process of the
// new entry came up.
func Unreplaced(answer *control.ReloadAnswer) error {
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
	answer, err := Ask[control.ReloadAnswer](cmd, proc, control.Reload, nil)
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
