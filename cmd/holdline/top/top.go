// Package top is `holdline top`: a view of the running daemon that fills the terminal. It
// shows agents, servers, consults and events, and restarts, stops and explains what the user
// points at.
//
// It is linked into a small program of its own, holdline-top, and not into holdline, which
// also runs as the daemon: what draws on the terminal would cost that memory. `holdline top`
// becomes that program.
//
// A [feed] asks the daemon once a second and follows its events. It sends what it learns as
// messages to the [model], which is the whole state of the screen and knows neither the
// daemon nor the terminal: View draws it, and Update changes it. What the user wants done is
// a command of bubbletea's, which asks the daemon through a [doer].
package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/statedir"
	"holdline/protocol/socket"
)

// Main runs this process as holdline-top, with its own arguments, environment and standard
// streams, and returns the exit code. Its only argument is the path of the daemon's socket, if
// the user has named one.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	proc := cmdenv.Process{
		Args: os.Args[1:], Getenv: os.Getenv, Environ: os.Environ,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	return cmdenv.Report(proc.Stderr, run(ctx, &proc))
}

// run shows the daemon until the user quits, or until ctx ends. It starts no daemon: it shows
// that none runs, and goes on by itself when there is one.
func run(ctx context.Context, proc *cmdenv.Process) error {
	if !console.IsTerminal(proc.Stdin) || !console.IsTerminal(proc.Stdout) || proc.Getenv("TERM") == "dumb" {
		return cmdenv.WithHint(
			fmt.Errorf("%w: holdline top needs a terminal, and its input or output is none", cmdenv.ErrUsage),
			"for scripts: holdline status --json; to watch without keys: holdline status --watch")
	}
	explicit := ""
	switch len(proc.Args) {
	case 0:
	case 1:
		explicit = proc.Args[0]
	default:
		return cmdenv.WithHint(fmt.Errorf("%w: holdline-top is for holdline top", cmdenv.ErrUsage), "holdline top")
	}
	paths, err := socket.Resolve(explicit, proc.Getenv)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cwd, _ := os.Getwd() // one that was removed is no reason to fail
	f := &feed{paths: paths, ctx: ctx, cwd: cwd, project: proc.Getenv("HOLDLINE_PROJECT")}
	m := newModel(f, time.Now)
	m.home = proc.Getenv("HOME")
	if root, err := cmdenv.StateDir(proc.Getenv); err == nil { // without one, nothing can be watched
		m.consultDirs = statedir.In(root).Consults
	}
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(proc.Stdin), tea.WithOutput(proc.Stdout),
		tea.WithEnvironment(proc.Environ()), tea.WithoutSignalHandler())
	var feeds sync.WaitGroup
	feeds.Go(func() { f.watchStatus(p.Send) })
	feeds.Go(func() { f.watchEvents(p.Send) })
	_, err = p.Run()
	cancel()
	feeds.Wait()
	if errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, tea.ErrProgramPanic) { // ctx has ended
		return nil
	}
	return err
}
