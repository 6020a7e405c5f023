// Package daemoncmd has the command daemon: it makes the options of package daemon from
// flags, variables and descriptors (command.go). A daemon that was started on demand makes
// its log and its environment ready first (ondemand.go), and bounds the log (log.go), or logs
// elsewhere if it cannot open it (straylog.go). The log is written without blocking the daemon
// (asynclog.go). Beside it are start (start.go)
// and stop (stop.go).
package daemoncmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/pair"
	"holdline/cmd/holdline/starter"
	"holdline/daemon"
	"holdline/daemon/config"
	"holdline/daemon/place"
	"holdline/daemon/rollout"
	"holdline/daemon/service"
	"holdline/daemon/userenv"
	"holdline/protocol/bootclock"
	"holdline/protocol/socket"
)

// daemonOptions are the flags of daemon. Three of them are hidden: programs that start a daemon
// use them.
type daemonOptions struct {
	config    string        // path of the configuration file; "" for the default one
	idleExit  time.Duration // 0 is never
	startedBy string        // shell, proxy or launchd; systemd is recognised without the flag
	wanted    time.Duration // reading of the boot clock when the start was asked for; 0 for now
	why       bool          // only say why a service manager does not start the daemon
}

// NewCommand returns the command daemon. Proxies, service managers and users run it.
func NewCommand(proc *cmdenv.Process) *cobra.Command {
	var o daemonOptions
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Run the daemon in the foreground",
		Long: `Run the daemon in the foreground. There is no need to: the first agent that
connects starts it. It ends on SIGTERM or SIGINT and reads its configuration
again on SIGHUP. If a daemon serves the socket already, the command says so and
succeeds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.idleExit < 0 {
				return fmt.Errorf("%w: --idle-exit %v is negative, 0 is never", cmdenv.ErrUsage, o.idleExit)
			}
			return runDaemon(cmd, proc, o)
		},
	}
	f := cmd.Flags()
	console.ConfigFlag(f, &o.config)
	f.DurationVar(&o.idleExit, "idle-exit", 0, "end after so long without an agent or a consult (default never)")
	f.StringVar(&o.startedBy, "started-by", "shell", "who starts it, for status")
	f.DurationVar(&o.wanted, "wanted", 0, "what the boot clock showed when it was to be started")
	f.BoolVar(&o.why, "why", false, "only say why a service manager does not start the daemon")
	for _, hidden := range []string{"started-by", "wanted", "why"} {
		if err := f.MarkHidden(hidden); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

// processors returns how many processors of a machine the daemon uses. Half of them stay free
// for the processes between which it passes lines. Fewer processors also make it faster: a
// goroutine that wakes up on a running processor starts sooner than on a sleeping one.
func processors(of int) int { return max(1, min(4, of/2)) }

// runDaemon runs the daemon until it stops. It turns flags, variables and inherited
// descriptors into the options of package daemon, which sees none of them. It returns nil if
// another daemon serves the socket already.
func runDaemon(cmd *cobra.Command, proc *cmdenv.Process, o daemonOptions) error {
	if proc.Getenv("GOGC") == "" {
		// Little is alive, so that even three and a half times of that is little. An idle daemon gives it back.
		debug.SetGCPercent(250)
	}
	if proc.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processors(runtime.NumCPU()))
	}
	// Signals that arrive during the start are kept for the daemon, which stops or reloads as
	// soon as it serves.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)
	handover, err := rollout.Take(proc.Getenv(rollout.Env), os.Getpid()) // before anything is opened or started
	if err != nil {
		return err
	}
	listening, err := starter.TakeLock(proc.Getenv(starter.LockEnv))
	if err != nil {
		return err
	}
	// Children of the daemon must not take the hand-over or the lock for theirs.
	if err := errors.Join(os.Unsetenv(rollout.Env), os.Unsetenv(starter.LockEnv)); err != nil {
		return err
	}
	explicit, err := cmd.Flags().GetString("socket")
	if err != nil {
		return err
	}
	paths, err := socket.Resolve(explicit, proc.Getenv)
	if err != nil {
		return err
	}
	if (o.startedBy == starter.StartedBy || o.why) && handover == nil {
		if err := prepare(cmd.Context(), proc, paths, o.why); err != nil {
			return err
		}
	}
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return err
	}
	cfg, err := cmdenv.ConfigPath(o.config, proc.Getenv)
	if err != nil {
		return err
	}
	// A daemon that a proxy starts ends if the user has stopped the daemon after this moment.
	if o.wanted == 0 {
		o.wanted = bootclock.Now()
	}
	findConfig := func(env func(string) string) (string, error) { return cmdenv.ConfigPath(o.config, env) }
	image, err := rollout.Image()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	exe, err := watchedPath(os.Args[0], handover)
	if err != nil {
		return err
	}
	// A service manager may have handed over the socket.
	handed, err := service.Handed()
	if err != nil {
		return err
	}
	notifier := service.NewNotifier(proc.Getenv, os.Getppid())
	if notifier.Managed() != service.Nobody {
		o.startedBy = notifier.Managed()
	}
	// Without a shell to ask, the daemon takes its own environment for that of the user.
	var shell *userenv.Shell
	if o.startedBy != "shell" { // a daemon of a shell has the user's environment already
		user := userenv.UserShell(proc.Getenv)
		shell = &user
	}
	level := new(slog.LevelVar)
	to, serveLog, logTrouble := proc.Stderr, func() error { return nil }, func() string { return "" }
	if !inJournal(proc) {
		to, serveLog, logTrouble = prepareLog(proc.Getenv, filepath.Join(state, starter.DaemonLog), o.startedBy,
			proc.Stdout, proc.Stderr)
	}
	handler := func(w io.Writer) slog.Handler { return LogHandler(proc, w, level) }
	queue := newAsyncLog(to, handler)
	defer queue.Close()
	log := slog.New(handler(queue))
	if named := o.config != "" || proc.Getenv("HOLDLINE_CONFIG") != ""; named && config.Absent(cfg) {
		// That is no error: `holdline servers add` may be about to make the file.
		log.WarnContext(cmd.Context(),
			"the configuration that was named is not there, all is as it is by default", "path", cfg)
	}
	ready := func() {
		if err := serveLog(); err != nil {
			log.WarnContext(cmd.Context(), "a crash of the runtime will not be in the log", "err", err)
		}
		if why := logTrouble(); why != "" {
			log.WarnContext(cmd.Context(), "the log goes elsewhere", "why", why)
		}
	}
	// The context of the command ends at a signal, which would stop all parts at once. The
	// daemon gets the signals itself and stops its parts in order.
	err = daemon.Run(context.WithoutCancel(cmd.Context()), daemon.Options{
		Options: place.Options{
			Log: log, Version: cmdenv.Version, PID: os.Getpid(), Handover: handover,
			Paths: paths, Socket: paths.Start(), Handed: handed, Notifier: notifier,
			StartedBy: o.startedBy, Wanted: o.wanted, StateDir: state,
		},
		Level: level, Stderr: proc.Stderr, FlushLog: queue.Flush, Listening: listening, Ready: ready,
		LogTrouble: logTrouble,
		Exe:        exe, Image: image, Argv: os.Args,
		Units: service.FindUnits(proc.Getenv), Config: cfg, FindConfig: findConfig, Home: proc.Getenv("HOME"),
		Environ: proc.Environ(), Shell: shell, IdleExit: o.idleExit, Signals: signals,
	})
	queue.Flush() // before the words of the command
	if errors.Is(err, place.ErrRunning) {
		console.Warn(cmd, "%v", err)
		return nil
	}
	if _, unopened := errors.AsType[*place.LockFileError](err); unopened && o.startedBy == starter.StartedBy {
		_ = cmdenv.Report(proc.Stderr, err)
		return cmdenv.ExitWith(starter.ExitStuck)
	}
	return inUse(err)
}

// inUse adds a hint to the error of a daemon whose socket or state directory is in use.
func inUse(err error) error {
	if errors.Is(err, socket.ErrInUse) {
		return cmdenv.WithHint(err, "most likely a service manager listens there "+
			"(systemctl --user status holdline.socket): it starts the daemon when an agent connects")
	}
	if errors.Is(err, socket.ErrOtherHome) {
		return cmdenv.WithHint(err, socket.HomeHint)
	}
	other, ok := errors.AsType[*place.InUseError](err)
	if !ok {
		return err
	}
	return cmdenv.WithHint(err, fmt.Sprintf("use that one (%s=%s), or set XDG_STATE_HOME "+
		"to give a second one a state directory of its own", socket.Env, other.Socket))
}

// watchedPath returns the path at which a newer version of this program will appear. That is
// the path by which it was called, links kept, if that leads to this file or if this file was
// replaced already. Else the path is that of a script that has started this program, and the
// path of the file itself is watched.
func watchedPath(argv0 string, h *rollout.Handover) (string, error) {
	if h != nil && filepath.IsAbs(h.Path) {
		return h.Path, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	path, ok := pair.CalledAs(argv0, exe)
	if ok && (config.Absent(exe) || cmdenv.SameFile(exe, path)) {
		return path, nil
	}
	return exe, nil
}

// inJournal reports whether stderr is read by a journal.
func inJournal(proc *cmdenv.Process) bool {
	file, ok := proc.Stderr.(*os.File)
	return ok && service.InJournal(proc.Getenv("JOURNAL_STREAM"), file)
}

// LogHandler returns the handler of a log, for the daemon and for children of workers that are
// this program. The lines go to to. If stderr is a journal, which records the time itself, they
// are plain. Else they are in colours if stderr is a terminal.
func LogHandler(proc *cmdenv.Process, to io.Writer, level slog.Leveler) slog.Handler {
	if inJournal(proc) {
		return service.NewJournalHandler(to, level)
	}
	return tint.NewTextHandler(to, &tint.Options{
		Level: level, TimeFormat: "2006-01-02 15:04:05.000",
		NoColor: !console.IsTerminal(proc.Stderr) || proc.Getenv("NO_COLOR") != "",
	})
}
