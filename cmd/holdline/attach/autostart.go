package attach

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"holdline/cmd/holdline/cmdenv"
	"holdline/contrib"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/command"
	"holdline/daemon/service"
	"holdline/daemon/statedir"
	"holdline/daemon/userenv"
	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
	"holdline/protocol/socket"
	"holdline/proxy"
)

// DaemonLog is the log of daemons that are started on demand, in the state
// directory.
const DaemonLog = "logs/daemon.log"

// Limits of that file as a proxy keeps it, in bytes.
const (
	MaxDaemonLog = 8 << 20  // from here on the daemon rotates it, and a start empties it
	logTail      = 2 << 10  // shown of a daemon's words when it does not start
	maxWords     = 64 << 10 // of a daemon's words, copied into the log
)

// Autostart starts the daemon for a proxy. Make it with [NewAutostart].
type Autostart struct {
	paths socket.Paths
	env   func(string) string // the proxy's
	exe   func() (string, error)
	args  []string // of the program

	units service.Units       // of systemd, which may be the one to start the daemon
	agent service.LaunchAgent // of launchd, likewise
}

// NewAutostart returns a starter of the daemon whose socket is at paths. It starts
// nothing before [Autostart.Start] is called.
func NewAutostart(paths socket.Paths, env func(string) string) *Autostart {
	args := []string{"daemon", "--started-by", "proxy", "--idle-exit", "30m"}
	if paths.Explicit() {
		args = append(args, "--socket", paths.Start())
	}
	return &Autostart{
		paths: paths, env: env, args: args,
		units: service.FindUnits(env), agent: service.FindLaunchAgent(env),
		exe: func() (string, error) { return Program(os.Args[0]) },
	}
}

// Start starts the daemon in a session of its own, so that nothing that happens to the
// agent's terminal or process group reaches it. Its stdout is the log file, to which
// other daemons write, too. Its stderr is a file of its own until it serves. Its
// environment is that of [DaemonEnv]: the agent's would be that of whichever agent
// came first, and the daemon itself asks the user's login shell.
//
// The channel has how the process ended, if it ends before this one: nil if it left
// the socket to another daemon. If systemd's units are enabled, or if launchd starts
// the daemon, Start starts no process. Then the channel has nil at once; if systemd
// does not listen, Start returns an error that says why.
func (a *Autostart) Start(ctx context.Context) (<-chan error, error) {
	exited := make(chan error, 1)
	if a.managed() {
		if err := a.Absent(ctx); err != nil {
			return nil, err
		}
		exited <- nil // it listens at any moment
		return exited, nil
	}
	if !a.paths.Explicit() && a.agent.Start(ctx) {
		exited <- nil // launchd's listens at any moment
		return exited, nil
	}
	// If the user stops holdline from now on, that counts for this start, too: a login
	// shell may take its time.
	wanted := "--wanted=" + bootclock.Now().String()
	exe, err := a.exe()
	if err != nil {
		return nil, err
	}
	log, err := a.openLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	words, stderr := newWords(filepath.Dir(log.Name())), log
	if words != nil {
		stderr = words
	}
	closeOnExec()
	cmd := exec.Cmd{ // no context ends it: it outlives this process
		Path: exe, Args: slices.Concat([]string{exe}, a.args, []string{wanted}), Dir: "/", Env: DaemonEnv(a.env),
		Stdout: log, Stderr: stderr, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		words.Close()
		return nil, err
	}
	go func() { // it ends with the daemon, which is reaped, or with this process
		defer words.Close()
		_ = cmd.Wait()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		exited <- a.verdict(status, log.Name(), words)
	}()
	return exited, nil
}

// Manageable reports whether a systemd that runs has units for this daemon.
func (a *Autostart) Manageable() bool {
	return (!a.paths.Explicit() || a.paths.Start() == a.units.Socket()) &&
		a.units.Running() && a.units.File(contrib.SystemdSocket) != ""
}

// managed reports whether the user has enabled systemd's units for the daemon. Then
// only systemd starts it.
func (a *Autostart) managed() bool { return a.Manageable() && a.units.Enabled() }

// Absent returns why systemd, which is to start the daemon, does not listen, or nil if
// it is about to.
func (a *Autostart) Absent(ctx context.Context) *proxy.ManagedError {
	if absence := a.units.Absent(ctx); absence != nil {
		return &proxy.ManagedError{Why: absence.Why, Hint: absence.Hint}
	}
	return nil
}

// newWords creates a file for what a daemon writes to stderr before it serves. Its
// name is removed at once, so that nothing is left of it. If the file cannot be
// created, newWords returns nil and stderr is the log.
func newWords(dir string) *os.File {
	f, err := os.CreateTemp(dir, "start-*")
	if err != nil {
		return nil
	}
	_ = os.Remove(f.Name())
	return f
}

// verdict returns nil for a process that ended with exit code 0, else an error with
// the last lines of words, which may be nil. It also appends these words to the log at
// path: the process wrote them to a file of its own.
func (a *Autostart) verdict(status syscall.WaitStatus, path string, words *os.File) error {
	if status.Exited() && status.ExitStatus() == 0 {
		return nil
	}
	if words != nil {
		if log, err := a.openLog(); err == nil {
			_, _ = io.Copy(log, io.NewSectionReader(words, 0, maxWords))
			log.Close()
		}
	}
	if status.Signaled() { // its own words do not say why
		return fmt.Errorf("%w by signal %d (%v)\n%s(log: %s)",
			proxy.ErrKilled, int(status.Signal()), status.Signal(), lastLines(words), path)
	}
	return fmt.Errorf("exit status %d\n%s(log: %s)", status.ExitStatus(), lastLines(words), path)
}

// lastLines returns the end of a file, at most logTail bytes, as whole lines. It
// returns "" if f is nil or cannot be read.
func lastLines(f *os.File) string {
	info, err := f.Stat()
	if err != nil { // there is no file
		return ""
	}
	from := max(0, info.Size()-logTail)
	b, err := io.ReadAll(io.NewSectionReader(f, from, logTail))
	if err != nil {
		return ""
	}
	text := string(b)
	if from > 0 {
		_, text, _ = strings.Cut(text, "\n")
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// openLog opens the log file of daemons for appending, and creates the state directory
// if need be. It empties a file that is longer than MaxDaemonLog. The caller must
// close the file.
func (a *Autostart) openLog() (*os.File, error) {
	dir, err := cmdenv.StateDir(a.env)
	if err != nil {
		return nil, err
	}
	dirs, err := statedir.Open(dir)
	if err != nil {
		return nil, err
	}
	f, err := ownfile.OpenFile(filepath.Join(dirs.Logs, "daemon.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() > MaxDaemonLog {
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open the daemon's log: %w", err)
	}
	return f, nil
}

// Program returns the path of this program as it was called, links kept: package
// managers put a new version behind the same link. If argv0 leads to some other
// program, it returns the path of the running file.
func Program(argv0 string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	if path, ok := CalledAs(argv0, exe); ok {
		return path, nil
	}
	return exe, nil
}

// CalledAs returns the path that argv0 names, and whether it leads to the program exe
// or to a newer version of it.
func CalledAs(argv0, exe string) (string, bool) {
	path, err := exec.LookPath(argv0)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", false
	}
	there, err := os.Stat(path)
	if err != nil {
		return "", false
	}
	// After an upgrade the link leads to another file of the same name.
	here, err := os.Stat(exe)
	return path, err != nil || os.SameFile(here, there) || filepath.Base(path) == filepath.Base(exe)
}

// closeOnExec marks all descriptors beyond the standard ones as not inherited. An
// agent may have leaked some to this process; the daemon would hold the agent's pipes
// open for ever.
func closeOnExec() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// inherited are the variables that a daemon gets from the proxy that starts it,
// besides those of the user's session: those that decide where both meet. Those that
// name the programs of consults follow. It is a list of names and never a pattern:
// HOLDLINE_WORKER would make the daemon look like a child of a worker, and
// HOLDLINE_TOKEN is a secret of one agent.
var inherited = []string{"XDG_STATE_HOME", socket.Env, "HOLDLINE_CONFIG"}

// DaemonEnv returns the environment of a daemon that a process with environment
// env starts: that of the user's session, what is inherited, and this process's
// PATH. The daemon searches that PATH last, and only its directories that other
// users cannot write.
func DaemonEnv(env func(string) string) []string {
	list := userenv.UserShell(env).Env
	names := slices.Clone(inherited)
	for _, e := range engines.All {
		names = append(names, e.Variable)
	}
	if runtime.GOOS == "darwin" {
		names = append(names, "TMPDIR") // where the socket lies there
	}
	for _, name := range names {
		if value := env(name); value != "" {
			list = append(list, name+"="+value)
		}
	}
	return userenv.WithPath(list, command.SafePath(env("PATH")))
}
