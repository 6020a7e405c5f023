// Package starter starts the daemon for a proxy or a command: it runs `holdline daemon`
// with arguments that say so. The daemon itself then makes its log, its environment and
// everything else ready, and finds out whether a service manager has to start it instead:
// see package daemoncmd. So the daemon is a child of the process that wants it.
//
// The proxy links this package, so it imports little. A proxy may start the daemon of
// another version: what both agree on here may only be added to.
package starter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/statedir"
	"holdline/protocol/bootclock"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/socket"
	"holdline/proxy"
)

// StartedBy tells a daemon what started it. Then it does what this package
// expects of it.
const StartedBy = "proxy"

// ExitManaged is the exit code of a daemon that a service manager has to start, and does
// not. It has then written two lines to stderr: why, and what the user can do about it.
// It is no exit code of a command.
const ExitManaged = 5

// ExitStuck is the exit code of a daemon that cannot start before a person has done what it has
// written to stderr. It is no exit code of a command.
const ExitStuck = 6

// Variables are the variables that a daemon is started with, if they are set. It makes its
// environment from them. They are the user's and not those of the agent that happens to
// come first, and they stay in what the system shows of the daemon. So this is a list of
// names and never a pattern: HOLDLINE_WORKER would make the daemon look like a child of a
// worker, and HOLDLINE_TOKEN is a secret of one agent.
var Variables = []string{
	"HOME", "USER", "SHELL", "PATH", "TMPDIR",
	"LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
	"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
	"XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", // the last one has units of systemd
	socket.Env, "HOLDLINE_CONFIG", "HOLDLINE_CLAUDE_BIN", "HOLDLINE_CODEX_BIN",
	"CODEX_HOME", // it shows which directories of the PATH are of one conversation; servers do not get it
}

// DaemonLog is the log of daemons that are started on demand, in the state directory.
const DaemonLog = statedir.DaemonLog

// Limits of what a daemon says when it does not start, in bytes.
const (
	logTail  = 2 << 10  // shown
	maxWords = 64 << 10 // copied into the log
)

// whyTimeout bounds the question why a service manager does not start the daemon. It is longer than the
// question to the manager itself.
const whyTimeout = 15 * time.Second

// hungAfter is how long a daemon that was started may take until it has the daemon's lock or
// listens. After that it is taken for one that hangs, and ended.
const hungAfter = 10 * time.Second

// ManagerTimeout bounds how long a daemon that was started may ask its service manager, so that it says
// what is wrong with the manager before it is taken for one that hangs.
const ManagerTimeout = hungAfter - 3*time.Second

// Starter starts the daemon whose socket is at given paths. Make it with [New]. One goroutine
// may use it at a time.
type Starter struct {
	program func() (string, error) // returns the path of holdline
	environ []string
	getenv  func(string) string
	args    []string // that say where the socket is
	paths   socket.Paths
	socket  string        // its path, as of the latest look
	log     string        // path of the daemon's log
	err     error         // why there is none
	hung    time.Duration // hungAfter; tests replace it
	wanted  time.Duration // reading of the boot clock at the last [Starter.Want]; 0 after a start

	refusedBy os.FileInfo   // the lock's file that another process has locked; nil if none has
	refused   time.Time     // since when it has
	settled   chan struct{} // of the latest [Starter.Settled]
}

// New returns a starter of the daemon whose socket is at paths, for a process with the
// environment getenv. It starts nothing before [Starter.Start] is called. program returns
// the path of holdline.
func New(paths socket.Paths, getenv func(string) string, program func() (string, error)) *Starter {
	s := &Starter{program: program, paths: paths, hung: hungAfter, getenv: getenv}
	for _, name := range Variables {
		value := getenv(name)
		if name == "HOLDLINE_CONFIG" || strings.HasSuffix(name, "_BIN") && strings.Contains(value, "/") {
			value = absolute(value, getenv)
		}
		if value != "" {
			s.environ = append(s.environ, name+"="+value)
		}
	}
	if paths.Explicit() {
		s.args = []string{"--socket", paths.Start()}
	}
	state, err := cmdenv.StateDir(getenv)
	s.log, s.err = filepath.Join(state, DaemonLog), err
	return s
}

// absolute returns the absolute path of one that a variable has, since the daemon runs in another
// directory. It returns path if that is empty, or if the current directory is not known.
func absolute(path string, getenv func(string) string) string {
	if abs, err := socket.Absolute(path, getenv); path != "" && err == nil {
		return abs
	}
	return path
}

// Want notes that the next start is wanted as of now. Call it before a check whether the user has
// stopped the daemon: one who does so after the check counts for that start. Without a call
// the moment of the start counts.
func (s *Starter) Want() { s.wanted = bootclock.Now() }

// Start starts the daemon in a session of its own, so that nothing that happens to the
// agent's terminal or process group reaches it. Until it serves, its stderr is a file of
// its own. No context ends that process: the daemon outlives this one.
//
// The channel has how the process ended, if it ends before this one: nil if it left the
// socket to another daemon or the start to a service manager, and a [*proxy.ManagedError]
// if a service manager has to start the daemon and does not. A process that hangs is ended
// after hungAfter, with an error that wraps [proxy.ErrKilled].
//
// The error is [proxy.ErrStarting] if another process is starting a daemon. Then this one starts
// none: see [Starter.Settled].
func (s *Starter) Start() (<-chan error, error) {
	// If the user stops holdline from now on, that counts for this start, too: asking
	// systemd may take its time.
	if s.wanted == 0 {
		s.Want()
	}
	wanted := "--wanted=" + s.wanted.String()
	s.wanted = 0
	if s.err != nil {
		return nil, s.err
	}
	exe, err := s.program()
	if err != nil {
		return nil, err
	}
	lock, err := s.takeTurn()
	if err != nil {
		return nil, err
	}
	if lock != nil {
		defer lock.Close() // the daemon has it
		if s.listens() {
			exited := make(chan error, 1)
			exited <- nil
			return exited, nil
		}
	}
	words := newWords(filepath.Dir(s.log))
	closeOnExec()
	args := append([]string{exe, "daemon", "--started-by", StartedBy, "--idle-exit", "30m", wanted}, s.args...)
	cmd := exec.Cmd{
		Path: exe, Args: args, Dir: "/", Env: s.environment(), SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock} // the first is lockFD
		cmd.Env = append(cmd.Env, LockEnv+"="+strconv.Itoa(lockFD))
	}
	if words != nil {
		cmd.Stderr = words
	}
	if err := cmd.Start(); err != nil {
		words.Close()
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { // it ends with the daemon, which is reaped, or with this process
		defer words.Close()
		hung := make(chan bool, 1)
		killer := time.AfterFunc(s.hung, func() { hung <- s.endHung(cmd.Process) })
		_ = cmd.Wait()
		if !killer.Stop() && <-hung {
			exited <- fmt.Errorf("%w, since it hung: %s did nothing for %v\n%s(log: %s)",
				proxy.ErrKilled, exe, s.hung, lastLines(words), s.log)
			return
		}
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		exited <- s.verdict(status, words)
	}()
	return exited, nil
}

// environment returns the environment of the daemon. If a daemon was killed, the next one finds its
// files by the same variables, although this process may lack them: some clients clear the environment.
func (s *Starter) environment() []string {
	environ := slices.Clone(s.environ)
	for _, kv := range s.paths.Lost() {
		if name, _, _ := strings.Cut(kv, "="); s.getenv(name) == "" {
			environ = append(environ, kv)
		}
	}
	return environ
}

// endHung ends a process that was started and is not at work as a daemon, and reports whether it
// did. It ends the whole process group, since the program may be a script.
func (s *Starter) endHung(p *os.Process) bool {
	holder, start, err := statedir.Holder(filepath.Join(filepath.Dir(s.paths.Start()), socket.LockFile))
	if err == nil && process.IsAlive(holder, start) {
		// A daemon of this start is in its session.
		if session, err := unix.Getsid(holder); err != nil || session == p.Pid {
			return false
		}
	} else if s.listens() {
		return false // a daemon without a lock, which this program does not know
	}
	if p.Signal(syscall.Signal(0)) != nil { // it has ended, and another may have its number
		return false
	}
	return syscall.Kill(-p.Pid, syscall.SIGKILL) == nil
}

// listens reports whether a daemon listens. It may have come up after the caller's last dial and
// before the lock of a start was taken.
func (s *Starter) listens() bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := s.paths.Dial(ctx)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// Absent returns why a service manager, which has to start the daemon, does not do so. It
// returns nil if no service manager has to, if it is about to, or if that is not known.
func (s *Starter) Absent(ctx context.Context) *proxy.ManagedError {
	exe, err := s.program()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, append([]string{"daemon", "--started-by", StartedBy, "--why"}, s.args...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "/", s.environ, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it has started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	_, err = cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == ExitManaged {
		return managed(string(exit.Stderr))
	}
	return nil
}

// managed returns the error that a daemon has written to stderr before [ExitManaged].
func managed(words string) *proxy.ManagedError {
	why, hint, _ := strings.Cut(strings.TrimSuffix(words, "\n"), "\n")
	if why == "" {
		return &proxy.ManagedError{
			Why: "a service manager is to start the daemon, and does not", Hint: "holdline doctor says what is wrong",
		}
	}
	return &proxy.ManagedError{Why: why, Hint: hint}
}

// newWords creates a file for what a daemon writes to stderr before it serves, in dir or,
// if that is not there yet, in the directory of temporary files. Its name is removed at
// once, so that nothing is left of it. It returns nil if the file cannot be created; then
// the log alone has these words.
func newWords(dir string) *os.File {
	for _, dir := range []string{dir, ""} {
		if f, err := os.CreateTemp(dir, "start-*"); err == nil {
			_ = os.Remove(f.Name())
			return f
		}
	}
	return nil
}

// verdict returns nil for a process that ended with exit code 0, else an error that has
// the last lines of words, which may be nil, as its reason. It also appends these words to the log: the
// process wrote them to a file of its own.
func (s *Starter) verdict(status syscall.WaitStatus, words *os.File) error {
	switch {
	case status.Exited() && status.ExitStatus() == 0:
		return nil
	case status.Exited() && status.ExitStatus() == ExitManaged:
		return managed(lastLines(words))
	}
	if words != nil {
		if log, err := ownfile.OpenFile(s.log, os.O_WRONLY|os.O_APPEND); err == nil {
			_, _ = io.Copy(log, io.NewSectionReader(words, 0, maxWords))
			log.Close()
		}
	}
	if status.Signaled() { // its own words do not say why
		return fmt.Errorf("%w by signal %d (%v)\n%s(log: %s)",
			proxy.ErrKilled, int(status.Signal()), status.Signal(), lastLines(words), s.log)
	}
	said := strings.TrimPrefix(lastLines(words), "holdline: ") // as the process reports its error
	if said == "" {
		said = fmt.Sprintf("exit status %d\n", status.ExitStatus())
	}
	if status.Exited() && status.ExitStatus() == ExitStuck {
		return &proxy.StuckError{Why: strings.TrimSpace(said)}
	}
	return fmt.Errorf("%s(log: %s)", said, s.log)
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
