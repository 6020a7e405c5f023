package daemoncmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/doctor"
	"holdline/daemon/place"
	"holdline/daemon/plural"
	"holdline/daemon/service"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// stopWait bounds the request to stop, together with the wait for the daemon's end. Workers
// that end with it may need more.
const stopWait = 20 * time.Second

// NewStopCommand returns the command stop. It succeeds if no daemon runs, so that scripts can
// call it at any time.
func NewStopCommand(proc *cmdenv.Process) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon, and keep it stopped until holdline start",
		Long: `Stop the daemon, and keep it stopped: agents that connect later do not start it
again, and are told so. "holdline start" starts it; so does the next boot, when an agent
connects. Commands that need it, such as consult, ask on a terminal, and fail elsewhere.
systemd stops listening for it, too, until "holdline start".

The proxy of each connected agent answers pending calls with a fault and exits.
Background consults continue in their workers; the next daemon has their answers. --all
also ends workers and consults at once, and kills a daemon that does not answer.

If no daemon runs, the command succeeds, and none starts later.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Stop(cmd, proc, control.StopParams{All: all})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end workers and consults, too")
	return cmd
}

// Stop ends the daemon, and keeps it stopped. With want.All it also ends the daemon's workers, and kills a daemon
// that does not answer. It returns when the daemon has ended.
func Stop(cmd *cobra.Command, proc *cmdenv.Process, want control.StopParams) error {
	paths, err := attach.PathsOf(cmd, proc)
	if err != nil {
		return err
	}
	if err := paths.CheckHome(); err != nil { // also if that daemon hangs, or has left workers
		return cmdenv.WithHint(err, socket.HomeHint)
	}
	absent := onCall(proc, paths)
	before := paths.Stopped()
	// The mark comes before the question whether a daemon runs: a proxy may have started one that
	// has no lock yet. That one finds the mark, and ends.
	fix, why := keepStopped(cmd, proc, paths)
	lives := func() { // the daemon lives on, so proxies may look for it again
		if before == nil {
			letStart(cmd, proc, paths)
		}
	}
	if absent {
		err = stopAbsent(cmd, proc, want.All, filepath.Dir(paths.Start()), "Holdline is not running")
	} else {
		err = stopAny(cmd, proc, want, filepath.Dir(paths.Start()), lives)
	}
	_, inUse := errors.AsType[*place.InUseError](err)
	_, unread := errors.AsType[*place.LockFileError](err)
	if inUse || unread || errors.Is(err, statedir.ErrLocked) { // a daemon may live on
		lives()
	}
	if err != nil {
		return err
	}
	switch {
	case want.Uninstall: // what is left cannot start it, and who installs it again wants it
	case why != nil:
		console.Line(cmd.ErrOrStderr(), 2, "an agent may start it again: %v; to prevent that: %s", why, fix)
	default:
		console.Line(cmd.ErrOrStderr(), 2, "it stays stopped until: holdline start")
	}
	return nil
}

// stopAny ends the daemon that holds the runtime directory dir, if there is one.
//
// There are three cases: a daemon that answers is asked to stop ([requestStop]), one that
// hangs is killed, if all is to end ([stopHung]), and without a daemon only workers are left to
// end ([stopAbsent]). It calls lives if the daemon goes on.
func stopAny(cmd *cobra.Command, proc *cmdenv.Process, want control.StopParams, dir string, lives func()) error {
	all := want.All
	c, err := connectSoon(cmd, proc, dir)
	// A daemon that hangs is killed with --all only.
	h, hangs := errors.AsType[*attach.HungError](err)
	switch {
	case errors.Is(err, socket.ErrNoDaemon):
		return stopAbsent(cmd, proc, all, dir, "Holdline is not running")
	case hangs && all:
		return stopHung(cmd, proc, h.Dir, lives)
	case err != nil:
		lives()
		return err
	}
	limit := stopWait
	if all {
		if workers, err := workersOf(proc, dir); err == nil {
			limit += workers.EndTime()
		}
	}
	for range maxRequests {
		pid := c.Daemon.PID
		err = requestStop(cmd, proc, c, want, limit)
		_ = c.Close()
		if !isEnding(err) {
			break
		}
		// Another command has told the daemon to stop, or it hands over to another program: that one is asked.
		if c, err = connectSoon(cmd, proc, dir); errors.Is(err, socket.ErrNoDaemon) {
			return stopAbsent(cmd, proc, all, dir, fmt.Sprintf("daemon %d stopped", pid))
		} else if err != nil {
			return err
		}
	}
	// A daemon may answer the greeting and hang after that.
	if all && errors.Is(err, context.DeadlineExceeded) {
		return stopHung(cmd, proc, dir, lives)
	}
	return err
}

// StopForNow does what [Stop] does with all, for a command that has started the daemon itself: afterwards agents may
// start it again, unless the user had stopped it before. It prints nothing to stderr.
func StopForNow(cmd *cobra.Command, proc *cmdenv.Process) error {
	paths, err := attach.PathsOf(cmd, proc)
	if err != nil {
		return err
	}
	before, errs := paths.Stopped(), cmd.ErrOrStderr()
	cmd.SetErr(io.Discard)
	err = Stop(cmd, proc, control.StopParams{All: true})
	cmd.SetErr(errs)
	if before == nil {
		letStart(cmd, proc, paths)
	}
	return err
}

// keepStopped writes the mark that the user has stopped the daemon, and has systemd listen no more. why is not nil if
// an agent may start the daemon all the same, which fix prevents. The daemon that answers writes the mark, too, and
// says why it cannot.
func keepStopped(cmd *cobra.Command, proc *cmdenv.Process, paths socket.Paths) (fix string, why error) {
	fix, why = "holdline stop", mark(paths)
	if units := service.FindUnits(proc.Getenv); units.Listens(paths.Start()) {
		if err := units.StopSocket(cmd.Context()); err != nil {
			return "systemctl --user stop holdline.socket", err
		}
	}
	return fix, why
}

// letStart is [attach.LetStart] with a warning in place of an error.
func letStart(cmd *cobra.Command, proc *cmdenv.Process, paths socket.Paths) {
	if _, err := attach.LetStart(cmd.Context(), proc, paths); err != nil {
		console.Warn(cmd, "%v", err)
	}
}

// mark writes the mark that the user has stopped the daemon. Where no daemon could start it writes none.
func mark(paths socket.Paths) error {
	dir, err := socket.OpenDir(paths.Start())
	if err != nil {
		return nil // no daemon starts there, either
	}
	defer dir.Close()
	return place.MarkStopped(dir.Path())
}

// maxRequests bounds how many connections a stop makes to daemons that hand over to another program.
const maxRequests = 5

// connectSoon connects to the daemon as [attach.Connect] does. A daemon that holds the lock of
// its runtime directory dir and does not listen is starting or ending: connectSoon waits until
// it listens or has ended, for [stopWait] at most. After that the error is an [*attach.HungError].
func connectSoon(cmd *cobra.Command, proc *cmdenv.Process, dir string) (c *control.Client, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), stopWait)
	defer cancel()
	late := attach.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		// In this order: a daemon that has begun to listen meanwhile is connected to.
		held, _ := statedir.Held(filepath.Join(dir, socket.LockFile)) // without that file there is none
		c, err = attach.Connect(cmd.Context(), cmd, proc)
		return !held || !errors.Is(err, socket.ErrNoDaemon) && !isEnding(err), nil
	})
	switch {
	case late == nil && isEnding(err): // it has ended meanwhile
		return nil, fmt.Errorf("%w: %w", socket.ErrNoDaemon, err)
	case late == nil:
		return c, err
	case cmd.Context().Err() != nil:
		return nil, context.Cause(cmd.Context())
	}
	return nil, attach.Hung(filepath.Join(dir, socket.LockFile), late)
}

// isEnding reports whether err is that of a connection to a daemon which ends, as after another stop.
func isEnding(err error) bool {
	refusal, refused := errors.AsType[*protocol.Refusal](err)
	return attach.IsBroken(err) || refused && refusal.Code == protocol.RefusedStopping
}

// onCall reports whether systemd listens for the daemon and no daemon runs. Then a connection
// would make systemd start a daemon, only to be stopped. In doubt it returns false, and the
// connection decides.
func onCall(proc *cmdenv.Process, paths socket.Paths) bool {
	units := service.FindUnits(proc.Getenv)
	if !units.Listens(paths.Start()) {
		return false
	}
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return false
	}
	// There may be one at another default path.
	for _, lock := range []string{filepath.Join(filepath.Dir(paths.Start()), socket.LockFile), place.StateLock(state)} {
		pid, start, err := statedir.Holder(lock)
		if err != nil {
			continue // there is no such file, or it names no process
		}
		if process.IsAlive(pid, start) {
			return false
		}
	}
	return true
}

// stopAbsent prints what, which says that no daemon runs. That is no error. With all it ends the workers that
// an earlier daemon has left. dir is the runtime directory.
func stopAbsent(cmd *cobra.Command, proc *cmdenv.Process, all bool, dir, what string) error {
	// Workers outlive their daemon, so some may run.
	if all {
		n, err := endAll(cmd, proc, dir)
		if err != nil {
			return err
		}
		what += workersEnded(n)
	}
	return console.Say(cmd, "%s", what)
}

// workersEnded returns the end of a sentence that says how many workers have ended; "" for
// none.
func workersEnded(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of its workers ended", n)
}

// requestStop asks the daemon to stop, waits until it has ended, and prints what that did. The
// error wraps [context.DeadlineExceeded] if the daemon does not stop within limit, and is one of
// [isEnding] if the daemon went away before it answered.
func requestStop(
	cmd *cobra.Command, proc *cmdenv.Process, c *control.Client, want control.StopParams, limit time.Duration,
) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	var answer control.StopAnswer
	err := c.Call(ctx, control.Stop, want, &answer, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return cmdenv.WithHint(&slowError{fmt.Sprintf("daemon %d does not answer", c.Daemon.PID), err},
			doctor.WayOut(c.Daemon.PID))
	case err != nil:
		return err
	}
	if err := waitGone(ctx, c.Daemon.PID, answer.Lock); err != nil {
		return cmdenv.WithHint(
			&slowError{fmt.Sprintf("daemon %d was told to stop and still runs after %v", answer.PID, limit), err},
			doctor.WayOut(answer.PID))
	}
	if want.All { // only the daemon's log says what it could not end
		_, err = endAll(cmd, proc, filepath.Dir(answer.Lock))
	}
	console.Lines(cmd.OutOrStdout(), stopWords(&answer))
	if _, inUse := errors.AsType[*place.InUseError](err); err != nil && !inUse && !errors.Is(err, statedir.ErrLocked) {
		return err // else another daemon was started meanwhile, which has what is left
	}
	return nil
}

// slowError is about a daemon that did not do in time what it was asked for.
type slowError struct {
	text string
	err  error
}

// Error returns what the daemon did not do.
func (e *slowError) Error() string { return e.text }

// Unwrap returns the error of the wait.
func (e *slowError) Unwrap() error { return e.err }

// AgentNames names the agents of these sessions for people; "" if none is connected. Most agents have a session
// for each of their entries.
func AgentNames(sessions []control.Session) string {
	var agents []string
	of := map[string]int{} // sessions of each agent
	for _, s := range sessions {
		if s.State != "attached" {
			continue // it has no agent
		}
		agent := fmt.Sprintf("%s (pid %d)", cmp.Or(s.Identity, s.Client, "a client"), cmp.Or(s.ClientPID, s.PID))
		if of[agent]++; of[agent] == 1 {
			agents = append(agents, agent)
		}
	}
	for i, agent := range agents {
		if n := of[agent]; n > 1 {
			agents[i] = fmt.Sprintf("%s with %d sessions", agent, n)
		}
	}
	return console.JoinSome(agents, maxNamed)
}

// maxNamed bounds how many agents, and how many workers, [stopWords] names.
const maxNamed = 20

// stopWords returns what a stop has done: which agents it has disconnected, and which workers
// run on without a daemon. Workers that have ended since the daemon has answered are left out.
func stopWords(a *control.StopAnswer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "daemon %d stopped\n", a.PID)
	var workers, away []string // for people
	kinds := map[string]int{}  // of the workers that go on
	for _, w := range a.Workers {
		if w.Host != "" {
			away = append(away, fmt.Sprintf("server %s on %s", w.Name, w.Host))
			continue
		}
		// The worker may have ended by now, because its last session has left.
		if _, err := process.Lookup(cmp.Or(w.ChildPID, w.PID)); err != nil {
			continue
		}
		kinds[w.Kind]++
		workers = append(workers, fmt.Sprintf("%s %s (pid %d)", w.Kind, w.Name, cmp.Or(w.ChildPID, w.PID)))
	}
	if agents := AgentNames(a.Sessions); agents != "" {
		fmt.Fprintf(&b, "disconnected: %s\n", agents)
	}
	if len(workers) > 0 {
		fmt.Fprintf(&b, "go on without it: %s\n", console.JoinSome(workers, maxNamed))
		if n := kinds[process.KindConsult]; n > 0 {
			fmt.Fprintf(&b, "%s: until answered; the next daemon has the answer\n", plural.Count(n, "consult"))
		}
		if n := kinds[process.KindServer]; n > 0 {
			fmt.Fprintf(&b, "%s: for two minutes, or until the next daemon takes over\n", plural.Count(n, "server"))
		}
	}
	if len(away) > 0 {
		fmt.Fprintf(&b, "go on elsewhere, until the next daemon takes over: %s\n", console.JoinSome(away, maxNamed))
	}
	if len(workers)+len(away) > 0 {
		b.WriteString("to end them, too: holdline stop --all\n")
	}
	return b.String()
}

// stopHung kills a daemon that does not answer, and ends its workers. dir is its runtime
// directory. Its lock there names the process to kill, by its pid and its start time: so the
// signal cannot reach another process that has got the same pid. If the daemon cannot be killed, it calls lives.
func stopHung(cmd *cobra.Command, proc *cmdenv.Process, dir string, lives func()) error {
	path := filepath.Join(dir, socket.LockFile)
	pid, start, err := statedir.Holder(path)
	if err != nil {
		return fmt.Errorf("the daemon does not answer, and its process is not known: %w", err)
	}
	// Proxies notice the end of the daemon at once. The mark, which must be there before,
	// keeps them from starting another one.
	if err := place.MarkStopped(dir); err != nil {
		return fmt.Errorf("proxies would start a daemon again: %w", err)
	}
	if units := service.FindUnits(proc.Getenv); units.Listens(filepath.Join(dir, filepath.Base(units.Socket()))) {
		_ = units.GiveUp(cmd.Context()) // it fails for a daemon that is not the unit's
	}
	// Only a process that still holds the lock is the daemon.
	lock, err := statedir.TryLock(path)
	switch {
	case err == nil: // it has ended meanwhile
		_ = lock.Unlock()
	case errors.Is(err, statedir.ErrLocked):
		err = process.Signal(process.Proc{PID: pid, Start: start}, syscall.SIGKILL)
	}
	if err != nil {
		lives()
		return fmt.Errorf("the daemon does not answer, and process %d, which its lock names, cannot be killed: %w",
			pid, err)
	}
	n, err := endAll(cmd, proc, dir)
	if err != nil {
		return fmt.Errorf("daemon %d did not answer and was killed, but: %w", pid, err)
	}
	return console.Say(cmd, "daemon %d did not answer and was killed%s", pid, workersEnded(n))
}

// endAll ends the workers of a daemon that does not run, and returns how many there were. run
// is the daemon's runtime directory. It holds the locks of both directories meanwhile, so that
// no daemon starts and adopts the workers.
func endAll(cmd *cobra.Command, proc *cmdenv.Process, run string) (int, error) {
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return 0, err
	}
	// Without a state directory there are no workers, and none must be made for this.
	if _, err := os.Stat(state); err != nil {
		return 0, nil // no daemon has run yet
	}
	lock, err := soonLocked(cmd.Context(), filepath.Join(run, socket.LockFile))
	switch {
	case err == nil:
		defer func() { _ = lock.Unlock() }()
		// The mark also ends proxies that look for a daemon, and daemons that wait for
		// this lock.
		if err := place.MarkStopped(run); err != nil {
			return 0, fmt.Errorf("proxies may start a daemon again: %w", err)
		}
	case errors.Is(err, statedir.ErrLocked):
		return 0, fmt.Errorf("a daemon is starting or stopping: %w", err)
	case !errors.Is(err, os.ErrNotExist):
		return 0, err
	}
	alone, err := aloneIn(cmd.Context(), state)
	if err != nil {
		return 0, err
	}
	defer func() { _ = alone.Unlock() }()
	workers, err := workersOf(proc, run)
	if err != nil {
		return 0, err
	}
	return workers.EndAll(cmd.Context())
}

// workersOf returns a supervisor that finds the workers by their directories, and attaches to
// none. run is the daemon's runtime directory.
func workersOf(proc *cmdenv.Process, run string) (*supervisor.Supervisor, error) {
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return nil, err
	}
	return supervisor.New(supervisor.Options{
		RuntimeDir: run, StateDir: state, Program: cmdenv.Version, Log: slog.New(slog.DiscardHandler),
		Environ: func(context.Context) []string { return proc.Environ() }, // of ssh
	}), nil
}

// dying is how long a killed daemon may still hold its locks: the kernel ends its threads one
// by one, and closes its files with the last.
const dying = 2 * time.Second

// soonLocked takes the lock at path. If another process holds it, it tries again for [dying]. After
// that it takes the lock from a process that has not written its name into the file: it is no daemon.
func soonLocked(ctx context.Context, path string) (*statedir.Lock, error) {
	lock, err := soon(ctx, func() (*statedir.Lock, error) { return statedir.Seize(path) })
	if errors.Is(err, statedir.ErrLocked) && ctx.Err() == nil {
		lock, err = statedir.SeizeUnnamed(path)
	}
	return lock, place.LockFile(path, err)
}

// aloneIn takes the lock of the state directory. The workers in it may be those of another
// daemon, which then holds this lock; the error names that daemon.
func aloneIn(ctx context.Context, state string) (*statedir.Lock, error) {
	lock, err := soon(ctx, func() (*statedir.Lock, error) { return place.TryState(state, os.Getpid()) })
	if !errors.Is(err, statedir.ErrLocked) {
		return lock, err
	}
	holder, _, at, unknown := statedir.HolderOf(place.StateLock(state))
	// A daemon takes the lock before it writes into the file who it is.
	if unknown != nil {
		return nil, fmt.Errorf("a daemon is starting or stopping: %w", err)
	}
	return nil, cmdenv.WithHint(
		&place.InUseError{Dir: state, PID: holder, Socket: at},
		fmt.Sprintf("its workers end with it: holdline stop --all --socket %s", at))
}

// soon calls try until its error is no [statedir.ErrLocked], for [dying] at most, and returns
// what try returned last. After the end of ctx that is the last error, not that of ctx.
func soon(ctx context.Context, try func() (*statedir.Lock, error)) (lock *statedir.Lock, err error) {
	ctx, cancel := context.WithTimeout(ctx, dying)
	defer cancel()
	_ = attach.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		lock, err = try()
		return !errors.Is(err, statedir.ErrLocked), nil
	})
	return lock, err
}

// waitGone waits until daemon pid has ended. If its process cannot be seen from here, it waits
// until the daemon has released its lock, which is the last thing that a daemon does. lock is
// the path of the lock file.
func waitGone(ctx context.Context, pid int, lock string) error {
	self, unseen := process.Lookup(pid)
	return attach.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		if unseen == nil {
			return !process.IsAlive(pid, self.Start), nil
		}
		l, err := statedir.TryLock(lock)
		switch {
		case err == nil:
			return true, l.Unlock()
		case errors.Is(err, os.ErrNotExist):
			return true, nil // its directory is gone, too
		case !errors.Is(err, statedir.ErrLocked):
			return false, err
		}
		holder, _, err := statedir.Holder(lock)
		return err == nil && holder != pid, nil // another daemon has it already
	})
}
