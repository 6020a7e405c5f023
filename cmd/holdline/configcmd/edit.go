package configcmd

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/editor"
	"holdline/daemon/config"
	"holdline/daemon/config/edit"
	"holdline/daemon/configfile"
	"holdline/daemon/jsonedit"
)

// emptyFile is what the editor shows if there is no file yet.
const emptyFile = `// The configuration of Holdline. All keys: holdline config get
{
  "mcpServers": {
  }
}
`

// newEdit returns the command edit. file is the flag --config.
func newEdit(proc *cmdenv.Process, file *string) *cobra.Command {
	return &cobra.Command{
		Use: "edit", Short: "Edit the configuration in your editor, check and apply it",
		Long: `Edit the configuration with $VISUAL, $EDITOR, or vi. You edit a copy: the file is
replaced once the copy has no mistakes, and a running daemon then reads it. Mistakes are
named by line and column, and you can go on editing.

Nobody but you can read the copy, and it is removed when the command ends, also if the
command is killed. The command needs a terminal; scripts use "holdline config set".`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := cmdenv.ConfigPath(*file, proc.Getenv)
			if err != nil {
				return err
			}
			return editFile(cmd, proc, path)
		},
	}
}

// editFile has the user edit a copy of the configuration file until it has no mistakes or the
// user gives up, and replaces the file by it. If it does not, what the user has written is
// kept, and the error says where.
func editFile(cmd *cobra.Command, proc *cmdenv.Process, path string) error {
	before, err := config.Read(path)
	if err != nil {
		return err
	}
	text := before
	if text == nil {
		text = []byte(emptyFile)
	}
	// A file that has lost what it said is filled again from the daemon's copy of it.
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return err
	}
	if lost := configfile.CheckNothing(state, path); lost != nil {
		kept, err := configfile.Copy(state, path)
		if err != nil {
			return fmt.Errorf("%w\n%w", lost, err)
		}
		console.Warn(cmd, "%v; you edit the copy of its last good state", lost)
		text = kept
	}
	draft, err := editor.New(cmd, proc, filepath.Base(path), text,
		"for one setting: holdline config set KEY VALUE; or edit "+path+": Holdline reads it by itself")
	if err != nil {
		return err
	}
	defer draft.Close()
	after, err := draft.Edit(func(after []byte) error {
		if _, err := config.Parse(path, after); err != nil {
			return err
		}
		if jsonedit.SaysNothing(after) {
			return errors.New("nothing is left of the text; to mean no servers and all defaults, write {}")
		}
		return nil
	})
	ctx, stop := editor.Uninterrupted(cmd)
	defer stop()
	cmd.SetContext(ctx)
	switch {
	case err != nil:
	case bytes.Equal(after, before) || before == nil && bytes.Equal(after, text):
		return console.Say(cmd, "%s: no change", path)
	default:
		err = edit.Swap(ctx, path, before, after)
	}
	if err != nil {
		return draft.Keep(fmt.Errorf("%w\n%s is as it was", err, path))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: changed\n", path)
	return attach.ReloadFile(cmd, proc, path)
}
