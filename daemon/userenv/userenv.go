package userenv

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/daemon/command"
	"holdline/daemon/envfile"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
)

// Sources of directories, in words for people.
const (
	Captured    = "PATH captured by holdline install"
	Login       = "login shell"
	Kept        = "login shell of the last time"
	Interactive = "interactive login shell"
	Starter     = "what started the daemon"
)

// keptFile holds PATH and locale of the last answer of the login shell, in the
// state directory.
const keptFile = "environ"

// Options are what an [Environ] is made of.
type Options struct {
	Log      *slog.Logger
	StateDir string
	Keep     bool     // write PATH and locale of the shell's answer to StateDir, for the next daemon
	Own      []string // the environment of this process
	// Shell is asked for its environment; nil if this process was started from
	// a shell of the user's and has that environment already.
	Shell *Shell
	// OwnFirst is set if Own was written for this daemon, as the unit of a
	// service manager does. Else it is what any session has, and what the
	// profile says of a variable counts more.
	OwnFirst bool
	// Captured stands for the PATH that install captured, before install has written
	// it; "" is what StateDir has.
	Captured string
	// Changed is called from the goroutine of [Environ.Run] when the
	// environment has become another one; nil if no part wants to know.
	Changed func(context.Context)
}

// Environ is the environment of the user's programs, as far as it is known.
// Make it with [New]. All methods are safe for concurrent use.
type Environ struct {
	o       Options
	again   chan struct{} // holds a token if the shell is to be asked again
	needed  chan struct{} // holds a token once something waits for the shell's first answer
	login   chan struct{} // closed once the login shell has answered, or failed
	settled chan struct{} // closed once the interactive shell has, too
	ended   chan struct{} // closed when Run returns: no shell is asked any more

	mu          sync.Mutex // guards what follows; no I/O under it
	kept        []string   // PATH and locale of the last time
	loginEnv    []string   // of the login shell; nil until it has answered
	interactive []string   // directories of the interactive shell
	starter     []string   // directories of Own's PATH that are safe
	failure     error      // why the login shell did not answer
}

// New returns an environment that knows only what the previous daemon has kept. No
// shell is asked before [Environ.Run].
func New(o Options) *Environ {
	e := &Environ{
		o: o, again: make(chan struct{}, 1), needed: make(chan struct{}, 1),
		login: make(chan struct{}), settled: make(chan struct{}), ended: make(chan struct{}),
	}
	if o.Shell != nil {
		e.kept = readKept(filepath.Join(o.StateDir, keptFile))
	}
	return e
}

// Run asks the user's shells, and asks them again after each [Environ.Refresh], until
// ctx is done. It returns the cause of ctx. It must be called once.
func (e *Environ) Run(ctx context.Context) error {
	defer close(e.ended)
	// Not in New: a directory of a file system that hangs must not keep the
	// daemon from listening.
	starter := safeDirs(splitPath(command.Variable(e.o.Own, "PATH")))
	e.mu.Lock()
	e.starter = starter
	e.mu.Unlock()
	if len(e.kept) > 0 && !e.letSettle(ctx) {
		return context.Cause(ctx)
	}
	for first := true; ; first = false {
		if e.o.Shell != nil {
			e.askShells(ctx, first)
		} else if first {
			close(e.login)
			close(e.settled)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.again:
		}
	}
}

// settleTime is how long a daemon that knows what its predecessor has kept asks no shell, if nothing
// needs the answer: sessions may be waiting for what the processors would be busy with.
const settleTime = 200 * time.Millisecond

// letSettle blocks for settleTime, or until something needs the answer of the shell. It returns
// false if ctx is done.
func (e *Environ) letSettle(ctx context.Context) bool {
	limit := time.NewTimer(settleTime)
	defer limit.Stop()
	select {
	case <-limit.C:
	case <-e.needed:
	case <-e.again:
	case <-ctx.Done():
		return false
	}
	return true
}

// Refresh makes [Environ.Run] ask the shells again, in the background. Their previous
// answers hold until then. It never blocks.
func (e *Environ) Refresh() {
	select {
	case e.again <- struct{}{}:
	default:
	}
}

// askShells asks the login shell and then the interactive one, stores what they answer,
// and reports a change after each. With first set it also closes the channels that
// [Environ.Await] waits for.
func (e *Environ) askShells(ctx context.Context, first bool) {
	err := e.askShell(ctx, e.o.Shell.Login, e.login, first, func(env []string, err error) bool {
		e.failure = err
		if err != nil || slices.Equal(e.loginEnv, env) {
			return false
		}
		e.loginEnv = env
		return true
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.o.Log.WarnContext(ctx,
			"the login shell does not say its environment, programs get what is known without it", "err", e.Failure())
	}
	// Its PATH alone is of interest. A shell that fails when it is interactive
	// has said what it could as a login shell.
	err = e.askShell(ctx, e.o.Shell.Interactive, e.settled, first, func(env []string, err error) bool {
		dirs := splitPath(command.Variable(env, "PATH"))
		if err != nil || slices.Equal(e.interactive, dirs) {
			return false
		}
		e.interactive = dirs
		return true
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.o.Log.InfoContext(ctx, "the interactive login shell does not say its PATH", "err", err)
	}
	if e.o.Keep {
		e.keepAnswer(ctx)
	}
}

// askShell asks a shell. store stores the answer, with e.mu held, and reports whether the
// environment has changed by it. Then, with first set, known is closed, and a change is
// reported. The error is the shell's. An answer that comes when ctx is done is dropped.
func (e *Environ) askShell(
	ctx context.Context, shell func(context.Context) ([]string, error), known chan struct{}, first bool,
	store func(env []string, err error) (changed bool),
) error {
	env, err := shell(ctx)
	if ctx.Err() != nil {
		return err
	}
	e.mu.Lock()
	changed := store(env, err)
	e.mu.Unlock()
	if first {
		close(known)
	}
	if changed && e.o.Changed != nil {
		e.o.Changed(ctx)
	}
	return err
}

// keepAnswer writes PATH and locale of the shells' answers to the state directory, for
// the next daemon. It writes nothing if the login shell has not answered.
func (e *Environ) keepAnswer(ctx context.Context) {
	e.mu.Lock()
	var text strings.Builder
	known := e.loginEnv != nil
	dirs := splitPath(command.Variable(e.loginEnv, "PATH"))
	dirs = append(dirs, beyond(e.interactive, dirs)...)
	for _, kv := range e.loginEnv {
		if name, _, _ := strings.Cut(kv, "="); isLocale(name) && !strings.Contains(kv, "\n") {
			text.WriteString(kv + "\n")
		}
	}
	e.mu.Unlock()
	if !known {
		return
	}
	text.WriteString("PATH=" + strings.Join(dirs, string(filepath.ListSeparator)) + "\n")
	if err := statedir.WriteFile(filepath.Join(e.o.StateDir, keptFile), []byte(text.String())); err != nil {
		e.o.Log.WarnContext(ctx, "the next daemon begins without the PATH of the login shell", "err", err)
	}
}

// readKept reads what keepAnswer has written, and nothing else of the file. It returns
// nil for a file that cannot be read: the kept values only stand in for an answer that
// is about to come.
func readKept(path string) []string {
	lines, err := envfile.Read(path)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(lines, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name != "PATH" && !isLocale(name)
	})
}

// isLocale reports whether a variable says which language programs speak.
func isLocale(name string) bool { return name == "LANG" || strings.HasPrefix(name, "LC_") }

// Await waits until what can be known of the environment of a program is known: the
// answer of the login shell, and if command is a name that is not found by then, the
// answer of the interactive shell. It waits no longer than the shells have time. It
// returns an error only if ctx is done before: the cause of ctx.
func (e *Environ) Await(ctx context.Context, command string) error {
	limit := time.NewTimer(LoginTimeout + interactiveTimeout)
	defer limit.Stop()
	select {
	case e.needed <- struct{}{}:
	default:
	}
	for _, known := range []chan struct{}{e.login, e.settled} {
		select {
		case <-known:
		case <-e.ended:
			return nil
		case <-limit.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if command == "" || strings.Contains(command, "/") || e.found(command) {
			return nil
		}
	}
	return nil
}

// Known reports whether the login shell has answered, or failed.
func (e *Environ) Known() bool {
	select {
	case <-e.login:
		return true
	default:
		return false
	}
}

// found reports whether a directory that comes before the interactive shell's
// has the program.
func (e *Environ) found(name string) bool {
	for _, p := range e.Paths() {
		if p.Source != Interactive && p.Source != Starter && inDirs(name, p.Dirs) != "" {
			return true
		}
	}
	return false
}

// Find returns where the program name is, and the source of the directory that
// has it; empty strings if none has.
func (e *Environ) Find(name string) (path, source string) {
	for _, p := range e.Paths() {
		if path := inDirs(name, p.Dirs); path != "" {
			return path, p.Source
		}
	}
	return "", ""
}

// Failure returns why the login shell did not report its environment, and what is used
// instead. It returns nil if the shell did, or was not asked yet.
func (e *Environ) Failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.failure == nil:
		return nil
	case e.loginEnv != nil || len(e.kept) > 0:
		return fmt.Errorf("%w; using the PATH from last time", e.failure)
	}
	return fmt.Errorf("%w; using the PATH that the daemon was started with", e.failure)
}

// List returns the environment as it is known now, with the PATH of
// [Environ.Paths].
func (e *Environ) List() []string {
	e.mu.Lock()
	login := e.loginEnv
	if login == nil {
		login = e.kept
	}
	e.mu.Unlock()
	out := map[string]string{}
	put := func(list []string, wins bool) {
		for _, kv := range list {
			name, value, _ := strings.Cut(kv, "=")
			if _, there := out[name]; !there || wins {
				out[name] = value
			}
		}
	}
	put(e.o.Own, true)
	for _, kv := range login {
		name, _, _ := strings.Cut(kv, "=")
		put([]string{kv}, !e.o.OwnFirst && !decidesPlace(name))
	}
	var dirs []string
	for _, p := range e.Paths() {
		dirs = append(dirs, p.Dirs...)
	}
	out["PATH"] = strings.Join(dirs, string(filepath.ListSeparator))
	return command.List(out)
}

// decidesPlace reports whether a variable decides where daemon and proxies meet, or
// which programs they use. If so, the value in the process that started the daemon
// counts more than the profile's.
func decidesPlace(name string) bool {
	switch name {
	case "HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME":
		return true
	case "TMPDIR":
		return runtime.GOOS == "darwin"
	}
	return strings.HasPrefix(name, "HOLDLINE_")
}

// Paths returns the directories in which programs are looked for, by source, in the
// order of the search, without those that other users can write. It reads the captured PATH each
// time, so that a refreshed one holds for the next start of a server.
func (e *Environ) Paths() []control.SearchPath {
	captured := e.o.Captured
	if captured == "" {
		var err error
		if captured, err = ReadPath(PathFile(e.o.StateDir)); err != nil && !os.IsNotExist(err) {
			e.o.Log.Warn("the captured PATH is not used", "err", err)
		}
	}
	e.mu.Lock()
	login := control.SearchPath{Source: Login, Dirs: splitPath(command.Variable(e.loginEnv, "PATH"))}
	if e.loginEnv == nil {
		login = control.SearchPath{Source: Kept, Dirs: splitPath(command.Variable(e.kept, "PATH"))}
	}
	all := []control.SearchPath{
		{Source: Captured, Dirs: splitPath(captured)},
		login,
		{Source: Interactive, Dirs: e.interactive},
		{Source: Starter, Dirs: e.starter},
	}
	e.mu.Unlock()
	var seen []string
	out := []control.SearchPath{}
	for _, p := range all {
		if p.Dirs = withoutOthers(beyond(p.Dirs, seen)); len(p.Dirs) > 0 {
			seen = append(seen, p.Dirs...)
			out = append(out, p)
		}
	}
	return out
}
