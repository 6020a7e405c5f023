// Package attach finds the daemon for a command, starts it, and finds the next one
// when the daemon is replaced.
package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/doctor"
	"holdline/cmd/holdline/pair"
	"holdline/cmd/holdline/starter"
	"holdline/daemon/service"
	"holdline/daemon/statedir"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/process"
	"holdline/protocol/socket"
	"holdline/proxy"
)

// StartWait bounds the wait for a daemon that a command has started. It is constant but for tests.
var StartWait = 15 * time.Second

// pollInterval is the first wait between two looks for what is about to happen.
const pollInterval = 10 * time.Millisecond

// Poll calls try until it is done or fails, or until ctx ends, which is an error, too.
// The first wait is pollInterval; each is twice the one before, up to longest.
func Poll(ctx context.Context, longest time.Duration, try func() (done bool, err error)) error {
	for wait := pollInterval; ; wait = min(2*wait, longest) {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// PathsOf returns the paths at which a command looks for the daemon.
func PathsOf(cmd *cobra.Command, proc *cmdenv.Process) (socket.Paths, error) {
	explicit, err := cmd.Flags().GetString("socket")
	if err != nil {
		return socket.Paths{}, err
	}
	return socket.Resolve(explicit, proc.Getenv)
}

// Connect connects to the running daemon and exchanges greetings. The error wraps
// [socket.ErrNoDaemon] if none runs, and is a [*HungError] if it does not answer. The
// caller must close the client.
func Connect(ctx context.Context, cmd *cobra.Command, proc *cmdenv.Process) (*control.Client, error) {
	paths, err := PathsOf(cmd, proc)
	if err != nil {
		return nil, err
	}
	return dial(ctx, paths)
}

// dial connects to the daemon that listens at one of paths. If that daemon is replaced
// before it answers, dial connects to the next one: nothing was asked yet, so nothing
// can be done twice.
func dial(ctx context.Context, paths socket.Paths) (*control.Client, error) {
	for losses := 0; ; losses++ {
		conn, path, err := paths.Dial(ctx)
		switch {
		case isStopped(err):
			return nil, err
		case errors.Is(err, socket.ErrNoDaemon):
			return nil, &absentError{paths, err}
		case err != nil:
			return nil, cmdenv.WithHint(fmt.Errorf("the daemon cannot be reached: %w", err),
				"holdline doctor says what is wrong; "+socket.Env+" names another socket")
		}
		c, err := control.NewClientOf(ctx, conn, cmdenv.Version, paths.State())
		refusal, _ := errors.AsType[*protocol.Refusal](err)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, Hung(path, err)
		case refusal != nil && refusal.Code == protocol.RefusedHome:
			return nil, cmdenv.WithHint(err, socket.HomeHint)
		case !IsBroken(err) || losses == maxLosses:
			return c, err
		}
	}
}

// isStopped reports whether err says that the user has stopped the daemon.
func isStopped(err error) bool {
	_, ok := errors.AsType[*socket.StoppedError](err)
	return ok
}

// absentError is about a daemon that does not run. It wraps [socket.ErrNoDaemon].
type absentError struct {
	paths socket.Paths
	err   error
}

// Error says that no daemon runs, and where it was looked for if the user has said where.
func (e *absentError) Error() string {
	if e.paths.Explicit() {
		return "Holdline is not running at " + e.paths.Start()
	}
	return "Holdline is not running"
}

// Unwrap returns the error of the search.
func (e *absentError) Unwrap() error { return e.err }

// ConnectOrStart connects to the running daemon, or starts one as a proxy would. It tells a user at a terminal if
// there was no daemon: other commands say that none runs. If the user has stopped it, ConnectOrStart asks at a
// terminal whether to start it. Elsewhere it fails with a [*socket.StoppedError]. The caller must close the client.
func ConnectOrStart(cmd *cobra.Command, proc *cmdenv.Process) (*control.Client, error) {
	c, err := Connect(cmd.Context(), cmd, proc)
	if !errors.Is(err, socket.ErrNoDaemon) {
		return c, err
	}
	errs := cmd.ErrOrStderr()
	clearLine := func() { console.WriteControl(errs, "\r\x1b[K") } // a line of progress may be there
	if isStopped(err) {
		if !console.IsTerminal(proc.Stdin) || !console.IsTerminal(errs) || console.IsJSON(cmd) {
			return nil, err
		}
		clearLine()
		console.Warn(cmd, "%v", err)
		if !console.Confirm(cmd, proc.Stdin, "Start it? [Y/n] ", true) {
			return nil, cmdenv.ExitWith(cmdenv.ExitNoDaemon)
		}
		return Start(cmd, proc)
	}
	if c, err = startUnlessStopped(cmd, proc); err == nil && console.IsTerminal(errs) {
		clearLine()
		console.Warn(cmd, "Holdline was not running, and is started now")
	}
	return c, err
}

// Start does what the user wants who says that the daemon is to run: it counts no more that it was stopped, and a
// service manager that is to start the daemon listens again. Start connects to the running daemon, or starts one as a
// proxy would and waits for it, for up to StartWait. The caller must close the client.
func Start(cmd *cobra.Command, proc *cmdenv.Process) (*control.Client, error) {
	paths, err := PathsOf(cmd, proc)
	if err != nil {
		return nil, err
	}
	if _, err := LetStart(cmd.Context(), proc, paths); err != nil {
		return nil, err
	}
	c, err := startUnlessStopped(cmd, proc)
	// systemd is to start the daemon and does not listen, for example since the user has
	// stopped its unit. If the unit cannot be started, the first error says why.
	if _, managed := errors.AsType[*proxy.ManagedError](err); managed &&
		service.FindUnits(proc.Getenv).StartSocket(cmd.Context()) == nil {
		return startUnlessStopped(cmd, proc)
	}
	return c, err
}

// LiftStop does the same as [LetStart] for a command that needs Holdline to run, and tells the user.
func LiftStop(cmd *cobra.Command, proc *cmdenv.Process) error {
	paths, err := PathsOf(cmd, proc)
	if err != nil {
		return err
	}
	was, err := LetStart(cmd.Context(), proc, paths)
	if was && err == nil {
		console.Warn(cmd, "%s; from now on agents start it again", socket.StoppedWords)
	}
	return err
}

// LetStart makes agents start the daemon at paths again if the user has stopped it, and reports whether that was so.
// If systemd is to start the daemon, it listens again.
func LetStart(ctx context.Context, proc *cmdenv.Process, paths socket.Paths) (was bool, err error) {
	if paths.Stopped() == nil {
		return false, nil
	}
	if err := socket.LiftStop(filepath.Dir(paths.Start())); err != nil {
		return true, err
	}
	if units := service.FindUnits(proc.Getenv); units.Listens(paths.Start()) && units.Enabled() {
		_ = units.StartSocket(ctx) // if it cannot be started, whoever needs it is told why
	}
	return true, nil
}

// startUnlessStopped connects to the running daemon, or starts one as a proxy would and waits for it, for up to
// StartWait. If the user has stopped the daemon, it starts none, and the error is a [*socket.StoppedError].
func startUnlessStopped(cmd *cobra.Command, proc *cmdenv.Process) (*control.Client, error) {
	paths, err := PathsOf(cmd, proc)
	if err != nil {
		return nil, err
	}
	start := starter.New(paths, proc.Getenv, func() (string, error) { return pair.Program(os.Args[0]) })
	start.Want() // before the look for the mark: a later one counts for what is started here
	c, err := dial(cmd.Context(), paths)
	switch {
	case err != nil && cmd.Context().Err() != nil: // the user has ended the command
		return nil, context.Cause(cmd.Context())
	case isStopped(err) || !errors.Is(err, socket.ErrNoDaemon):
		return c, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), StartWait)
	defer cancel()
	var ended <-chan error
	var absent error
	started := false
	err = Poll(ctx, pollInterval, func() (bool, error) {
		if c, absent = dial(ctx, paths); absent == nil {
			return true, nil
		}
		if isStopped(absent) {
			return false, absent // meanwhile; what was started here finds that, too
		}
		if !started {
			var err error
			if ended, err = start.Start(); errors.Is(err, proxy.ErrStarting) {
				return false, nil
			}
			if started = true; err != nil {
				return false, fmt.Errorf("the daemon did not start: %w", err)
			}
		}
		select {
		case err := <-ended:
			ended = nil // nil: it left the socket to another daemon
			if managed, ok := errors.AsType[*proxy.ManagedError](err); ok {
				return false, cmdenv.WithHint(fmt.Errorf("the daemon did not start: %w", err), managed.Hint)
			}
			if err != nil {
				return false, fmt.Errorf("the daemon did not start: %w", err)
			}
		default:
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil { // else the user has ended the command
		return nil, cmdenv.WithHint(
			fmt.Errorf("the daemon was started and does not answer after %v (%w)", StartWait, absent),
			"holdline logs says what it does")
	}
	return c, err
}

// IsBroken reports whether a connection to the daemon ended before its time.
func IsBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// A HungError is about a daemon that listens and does not answer.
type HungError struct {
	Dir  string // its runtime directory
	name string
	err  error
}

// Error says which daemon does not answer, and where.
func (h *HungError) Error() string {
	return fmt.Sprintf("%s in %s does not answer", h.name, h.Dir)
}

// Unwrap returns why the daemon is taken to hang.
func (h *HungError) Unwrap() error { return h.err }

// Hung returns the error about the daemon at path, which does not answer, with a hint
// at what the user can do.
func Hung(path string, err error) error {
	h := &HungError{Dir: filepath.Dir(path), name: "the daemon", err: err}
	holder, start, err := statedir.Holder(filepath.Join(h.Dir, socket.LockFile))
	if err != nil || !process.IsAlive(holder, start) { // it may be another process's pid by now
		return cmdenv.WithHint(h, "holdline doctor")
	}
	h.name = fmt.Sprintf("daemon %d", holder)
	return cmdenv.WithHint(h, doctor.WayOut(holder))
}
