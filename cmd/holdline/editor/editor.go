// Package editor has the user edit a text with secrets in it: the configuration, or a part of it.
//
// The user edits a copy, the draft. It lies in a directory of its own in the state directory, which
// nobody else may read, and goes when the command ends, however it ends: see [Draft.Close].
package editor

import (
	"bufio"
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

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/command"
	"holdline/daemon/statedir"
)

// errKilled is the error of a command that a signal ends while the user edits.
var errKilled = errors.New("ended by a signal")

// Draft is a text that the user edits.
type Draft struct {
	cmd    *cobra.Command
	proc   *cmdenv.Process
	editor string
	dir    string // has nothing but the file and the lock
	file   string
	lock   *statedir.Lock // held while the draft is in use
	signal chan os.Signal // signals that end this process
}

// Names in the state directory: the beginning of those of directories of drafts, and of those with what a user has
// written that could not be used; and the lock in the first.
const (
	draftPrefix = "draft-"
	keptPrefix  = "edited-"
	lockName    = ".lock"
)

// New returns a draft with that text. name is that of its file, by which editors know its form. hint says what
// can be done without an editor. The caller must close the draft.
//
// The error wraps [cmdenv.ErrUsage] if there is no terminal: most editors would then hang, or write nonsense.
func New(cmd *cobra.Command, proc *cmdenv.Process, name string, text []byte, hint string) (*Draft, error) {
	if !console.IsTerminal(proc.Stdin) || !console.IsTerminal(proc.Stdout) {
		return nil, cmdenv.WithHint(fmt.Errorf("%w: %s opens your editor, and needs a terminal; its input or output is none",
			cmdenv.ErrUsage, cmd.CommandPath()), hint)
	}
	editor := cmp.Or(proc.Getenv("VISUAL"), proc.Getenv("EDITOR"), "vi")
	if err := find(cmd, proc, editor); err != nil {
		return nil, err
	}
	root, err := cmdenv.StateDir(proc.Getenv)
	if err == nil {
		err = statedir.MakeRoot(root)
	}
	if err != nil {
		return nil, err
	}
	sweep(root)
	d := &Draft{cmd: cmd, proc: proc, editor: editor, signal: make(chan os.Signal, 1)}
	signal.Notify(d.signal, syscall.SIGHUP, syscall.SIGTERM)
	if d.dir, err = os.MkdirTemp(root, draftPrefix); err == nil {
		d.lock, err = statedir.TryLock(filepath.Join(d.dir, lockName))
	}
	if err == nil {
		d.file = filepath.Join(d.dir, name)
		err = os.WriteFile(d.file, text, 0o600)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("making a copy to edit: %w", err)
	}
	return d, nil
}

// sweep removes the drafts of commands that were killed together with their editors.
func sweep(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, draftPrefix+"*"))
	for _, dir := range dirs {
		lock, err := statedir.TryLock(filepath.Join(dir, lockName))
		if err != nil {
			continue // somebody edits it
		}
		_ = os.RemoveAll(dir)
		_ = lock.Unlock()
	}
}

// Close removes the draft. If this process is killed, the shell that waits for the editor does so; if that is
// killed, too, the next [New].
func (d *Draft) Close() {
	signal.Stop(d.signal)
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
	if d.lock != nil {
		_ = d.lock.Unlock()
	}
}

// Keep moves what the user has written out of the way of Close, and returns err with a hint where it is. A
// command that a signal has ended keeps nothing.
func (d *Draft) Keep(err error) error {
	if errors.Is(err, errKilled) || d.isKilled() {
		return errKilled
	}
	kept, merr := os.MkdirTemp(filepath.Dir(d.dir), keptPrefix)
	to := filepath.Join(kept, filepath.Base(d.file))
	if merr == nil { // else it would go to the current directory
		merr = os.Rename(d.file, to)
	}
	if merr != nil {
		return fmt.Errorf("%w\nwhat you have written cannot be kept: %w", err, merr)
	}
	return cmdenv.WithHint(err, "what you have written is in "+to+", secrets included: remove it when you are done")
}

// Edit runs the editor until check accepts the text, and returns that. After mistakes it asks whether to go on;
// the error then says that the user has given up.
func (d *Draft) Edit(check func(text []byte) error) ([]byte, error) {
	answers := bufio.NewScanner(d.cmd.InOrStdin())
	for {
		if err := d.run(); err != nil {
			return nil, err
		}
		after, err := os.ReadFile(d.file)
		if err != nil {
			return nil, fmt.Errorf("reading what was edited: %w", err)
		}
		if err = check(after); err == nil {
			return after, nil
		}
		again := d.again(answers, err)
		switch {
		case d.isKilled(): // the terminal has gone
			return nil, errKilled
		case !again:
			return nil, errors.New("given up, with mistakes in the text")
		}
	}
}

// isKilled reports whether a signal has come that ends this process. It says so once.
func (d *Draft) isKilled() bool {
	select {
	case <-d.signal:
		return true
	default:
		return false
	}
}

// Uninterrupted returns a context that ends with the next interrupt. One that came before was meant
// for the editor, and has ended the context of cmd.
func Uninterrupted(cmd *cobra.Command) (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(context.WithoutCancel(cmd.Context()), os.Interrupt, syscall.SIGTERM)
}

// again asks on the terminal whether to go on after mistakes. An interrupt is a no.
func (d *Draft) again(answers *bufio.Scanner, mistakes error) bool {
	ctx, stop := Uninterrupted(d.cmd)
	defer stop()
	fmt.Fprintf(d.cmd.ErrOrStderr(), "%v\nEdit again? [Y/n] ", mistakes)
	again, err := console.Await(ctx, func() (bool, error) {
		return answers.Scan() && !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answers.Text())), "n"), nil
	})
	if err != nil {
		fmt.Fprintln(d.cmd.ErrOrStderr())
	}
	return again
}

// script runs the editor $0 with the file $2, as git does: the variables may have arguments, so a shell reads
// them. The shell outlives an interrupt, which is for the editor, and removes the directory $1 of the
// draft if holdline, its parent, was killed meanwhile.
const script = `trap : INT HUP; dir=$1; shift; %s "$@"; code=$?; kill -0 $PPID 2>/dev/null || rm -rf "$dir"; exit $code`

// run runs the user's editor, and blocks until it ends or a signal ends this process.
func (d *Draft) run() error {
	// The editor handles interrupts itself: they must end neither it nor the shell that waits for it.
	run := exec.CommandContext(context.WithoutCancel(d.cmd.Context()),
		"/bin/sh", "-c", fmt.Sprintf(script, d.editor), d.editor, d.dir, d.file)
	run.Stdin, run.Stdout, run.Stderr = d.proc.Stdin, d.proc.Stdout, d.proc.Stderr
	ended := make(chan error, 1)
	err := run.Start()
	if err == nil {
		go func() { ended <- run.Wait() }() // ends with the editor, or with this process
	} else {
		ended <- err
	}
	select {
	case <-d.signal:
		return errKilled
	case err := <-ended:
		switch {
		case d.isKilled(): // the terminal has gone, and the editor with it
			return errKilled
		case err != nil:
			return cmdenv.WithHint(fmt.Errorf("the editor %s failed: %w", d.editor, err), otherEditor(d.cmd))
		}
		return nil
	}
}

// otherEditor is the hint to a user whose editor does not run.
func otherEditor(cmd *cobra.Command) string {
	return "name another one: EDITOR=nano " + cmd.CommandPath()
}

// find returns an error if the program of an editor is not there. It says nothing of one
// whose name only a shell can read.
func find(cmd *cobra.Command, proc *cmdenv.Process, editor string) error {
	words := strings.Fields(editor)
	if len(words) == 0 || strings.ContainsAny(editor, "\"'`\\$~*?&|;<>()=") {
		return nil
	}
	if _, err := command.LookPath(words[0], proc.Getenv("PATH")); err != nil {
		return cmdenv.WithHint(fmt.Errorf("the editor %s was not found", words[0]), otherEditor(cmd))
	}
	return nil
}
