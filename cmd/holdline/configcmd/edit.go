package configcmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/command"
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
named by line and column, and you can go on editing.`,
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
// kept in the copy, and the error says where.
func editFile(cmd *cobra.Command, proc *cmdenv.Process, path string) error {
	before, err := config.Read(path)
	if err != nil {
		return err
	}
	editor := cmp.Or(proc.Getenv("VISUAL"), proc.Getenv("EDITOR"), "vi")
	if err := findEditor(proc, editor); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "holdline-edit-")
	if err != nil {
		return fmt.Errorf("making a copy to edit: %w", err)
	}
	// Editors know by the name that the file is JSON.
	draft := filepath.Join(dir, filepath.Base(path))
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
	if err := os.WriteFile(draft, text, 0o600); err != nil {
		return fmt.Errorf("making a copy to edit: %w", err)
	}
	after, err := editDraft(cmd, proc, editor, path, draft)
	ctx, stop := uninterrupted(cmd)
	defer stop()
	cmd.SetContext(ctx)
	switch {
	case err != nil:
	case bytes.Equal(after, before) || before == nil && bytes.Equal(after, text):
		_ = os.RemoveAll(dir)
		return console.Say(cmd, "%s: no change", path)
	default:
		err = edit.Swap(ctx, path, before, after)
	}
	if err != nil {
		return cmdenv.WithHint(fmt.Errorf("%w\n%s is as it was", err, path), "what you have written is in "+draft)
	}
	_ = os.RemoveAll(dir)
	fmt.Fprintf(cmd.OutOrStdout(), "%s: changed\n", path)
	return attach.ReloadFile(cmd, proc, path)
}

// editDraft runs the editor on a copy of the configuration, and returns what the user has
// made of it. On a terminal it asks after mistakes whether to go on. The error has all
// mistakes of a copy with which the user has given up; path stands for the file in them.
func editDraft(cmd *cobra.Command, proc *cmdenv.Process, editor, path, draft string) ([]byte, error) {
	answers := bufio.NewScanner(cmd.InOrStdin())
	for {
		if err := runEditor(cmd.Context(), proc, editor, draft); err != nil {
			return nil, err
		}
		after, err := os.ReadFile(draft)
		if err != nil {
			return nil, fmt.Errorf("reading what was edited: %w", err)
		}
		_, err = config.Parse(path, after)
		if err == nil && jsonedit.SaysNothing(after) {
			err = errors.New("nothing is left of the text; to mean no servers and all defaults, write {}")
		}
		if err == nil || !console.IsTerminal(cmd.InOrStdin()) {
			return after, err
		}
		if !editAgain(cmd, answers, err) {
			return nil, errors.New("given up, with mistakes in the text")
		}
	}
}

// uninterrupted returns a context that ends with the next interrupt. One that came before was meant
// for the editor, and has ended the context of cmd.
func uninterrupted(cmd *cobra.Command) (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(context.WithoutCancel(cmd.Context()), os.Interrupt, syscall.SIGTERM)
}

// editAgain asks on the terminal whether to go on after mistakes. An interrupt is a no.
func editAgain(cmd *cobra.Command, answers *bufio.Scanner, mistakes error) bool {
	ctx, stop := uninterrupted(cmd)
	defer stop()
	fmt.Fprintf(cmd.ErrOrStderr(), "%v\nEdit again? [Y/n] ", mistakes)
	again, err := console.Await(ctx, func() (bool, error) {
		return answers.Scan() && !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answers.Text())), "n"), nil
	})
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	return again
}

// runEditor runs the user's editor on a file, and blocks until it ends. The variables may
// have arguments, so a shell reads them, as git does.
func runEditor(ctx context.Context, proc *cmdenv.Process, editor, file string) error {
	// The editor handles interrupts itself: they must end neither it nor the shell that waits for it.
	run := exec.CommandContext(context.WithoutCancel(ctx),
		"/bin/sh", "-c", "trap : INT; "+editor+` "$@"`, editor, file)
	run.Stdin, run.Stdout, run.Stderr = proc.Stdin, proc.Stdout, proc.Stderr
	if err := run.Run(); err != nil {
		return cmdenv.WithHint(fmt.Errorf("the editor %s failed: %w", editor, err),
			otherEditor)
	}
	return nil
}

// otherEditor is the hint to a user whose editor does not run.
const otherEditor = "name another one: EDITOR=nano holdline config edit"

// findEditor returns an error if the program of an editor is not there. It says nothing of one
// whose name only a shell can read.
func findEditor(proc *cmdenv.Process, editor string) error {
	words := strings.Fields(editor)
	if len(words) == 0 || strings.ContainsAny(editor, "\"'`\\$~*?&|;<>()=") {
		return nil
	}
	if _, err := command.LookPath(words[0], proc.Getenv("PATH")); err != nil {
		return cmdenv.WithHint(fmt.Errorf("the editor %s was not found", words[0]), otherEditor)
	}
	return nil
}
