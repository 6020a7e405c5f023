// Package direct starts MCP servers as the daemon would, without the daemon. mcp-stdio
// --direct replaces itself with a server; import and setup start servers to see whether they
// work, and setup starts the entries of clients, too.
package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/resolve"
	"holdline/daemon/envfile"
	"holdline/daemon/launch"
	"holdline/daemon/leaf"
	"holdline/daemon/place"
	"holdline/daemon/sandbox"
	"holdline/daemon/statedir"
	"holdline/daemon/userenv"
	"holdline/protocol/process"
	"holdline/protocol/project"
	"holdline/protocol/socket"
)

// Launcher starts servers as the daemon would, with the same configuration, environment and
// directory, but without the daemon. Several goroutines may try servers at the same time.
type Launcher struct {
	from  launch.Start     // configuration, home and program; its environment is set for each server
	env   *userenv.Environ // of the user's login shell
	asked chan struct{}    // closed when the goroutine that asks the shell has ended
	root  string           // of the project of the current directory

	launches string      // the directory of leaves
	leaves   *leaf.Store // how servers are started without their launchers; nil if that is not tried
}

// New returns a launcher for the configuration at path. It starts to ask the user's login
// shell in the background, until ctx is done. captured stands for the PATH that install has
// captured; "" is that PATH.
func New(ctx context.Context, proc *cmdenv.Process, path, captured string) (*Launcher, error) {
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return nil, err
	}
	paths, err := socket.Resolve("", proc.Getenv)
	if err != nil {
		return nil, err
	}
	image, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the current directory: %w", err)
	}
	named := cwd // it may have links
	if cwd, err = filepath.EvalSymlinks(cwd); err != nil {
		return nil, fmt.Errorf("finding the current directory: %w", err)
	}
	grants := launch.NewGrants(filepath.Join(filepath.Dir(paths.Start()), place.WorkersDir))
	grants.Came(cwd, named)
	// A file that cannot be read is the caller's to report; it starts nothing then.
	c, _ := config.Load(path)
	shell := userenv.UserShell(proc.Getenv)
	l := &Launcher{
		from: launch.Start{
			Config: path, Home: proc.Getenv("HOME"), Image: image,
			Logins:   launch.Logins{Dir: statedir.In(state).Logins, KeyCommand: c.Logins.KeyCommand},
			Commands: &launch.Commands{},
			Guarded:  []string{state, filepath.Dir(paths.Start()), image},
			Grants:   grants,
		},
		env: userenv.New(userenv.Options{
			Log: slog.New(slog.DiscardHandler), StateDir: state, Own: attach.DaemonEnv(proc.Getenv), Shell: &shell,
			Captured: captured,
		}),
		root: project.RootOf(cwd), asked: make(chan struct{}), launches: statedir.In(state).Launches,
	}
	l.leaves = leaf.Open(l.launches)
	go func() {
		defer close(l.asked)
		_ = l.env.Run(ctx) // ends with ctx
	}()
	return l, nil
}

// TryAsWritten keeps [Launcher.Try] from trying servers without their launchers: the state directory stays as it is.
func (l *Launcher) TryAsWritten() { l.leaves = nil }

// HoldRecords keeps what is found out about launchers in memory until keep is called, which puts it into the state
// directory.
func (l *Launcher) HoldRecords() (keep func() error) {
	l.leaves = leaf.Hold(l.launches)
	return l.leaves.Keep
}

// Environ returns the environment that servers inherit from, with the variables that the user has kept for them. It
// waits until the login shell has answered, within bounds.
func (l *Launcher) Environ(ctx context.Context) ([]string, error) {
	if err := l.env.Await(ctx, ""); err != nil {
		return nil, err
	}
	kept, err := envfile.Read(envfile.Path(l.from.Config))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return append(l.env.List(), kept...), err
}

// Process returns how a server is started, with its command as an absolute path. It waits
// until the environment is known, within bounds. at is the root of its project; "" is
// that of the current directory.
func (l *Launcher) Process(ctx context.Context, s *config.Settings, at string) (resolve.Process, error) {
	// The environment is known once the login shell has answered; a program that is not on its
	// PATH may be on that of an interactive shell.
	if s.Host != "" {
		err := fmt.Errorf("it runs on %s, and only the daemon can start it there", s.Host)
		return resolve.Process{}, cmdenv.WithHint(err, "holdline hosts doctor "+s.Host)
	}
	if err := l.env.Await(ctx, s.Command); err != nil {
		return resolve.Process{}, err
	}
	// A server of scope shared has no project.
	from, root := l.from, l.root
	from.Environ = l.env.List()
	switch {
	case s.Scope == config.ScopeShared:
		root = ""
	case at != "":
		root = at
	}
	owner := process.Owner{Root: root}
	if root != "" {
		owner.Project = project.Key(root)
	}
	p, err := from.Process(ctx, s, &owner)
	if unset, ok := errors.AsType[*expand.UnsetError](err); ok {
		return p, fmt.Errorf("variable %s is not set; to keep it: holdline env set %[1]s", unset.Name)
	} else if err != nil {
		return p, err
	}
	// Find the program as the daemon does, on the PATH of the server, not of this process.
	path, _ := expand.Lookup(p.Env)("PATH")
	found, err := command.LookPath(p.Command, path)
	if err != nil {
		return p, err
	}
	p.Command = found
	return p, nil
}

// Run replaces this process with a configured server. It returns only if that fails. The server
// gets the streams of this process, its environment as the daemon would make it, and keeps the
// pid.
func Run(proc *cmdenv.Process, server string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	path, err := cmdenv.ConfigPath("", proc.Getenv)
	if err != nil {
		return err
	}
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	// The user has most likely misspelt the name: list those that exist.
	s, ok := c.WithHome(proc.Getenv("HOME")).Server(server)
	if !ok {
		names := cmp.Or(strings.Join(slices.Sorted(maps.Keys(c.Servers)), ", "), "none")
		return fmt.Errorf("%w: no server %q is configured; there is %s", cmdenv.ErrUsage, server, names)
	}
	if err := s.Unusable(); err != nil {
		return fmt.Errorf("server %s: %w", server, err)
	}
	l, err := New(ctx, proc, path, "")
	if err != nil {
		return err
	}
	p, err := l.Process(ctx, &s, "")
	if err != nil {
		return fmt.Errorf("server %s: %w", server, err)
	}
	cancel() // the server must not inherit a shell as its child
	<-l.asked
	// Exec keeps the current directory, which must be that of the server.
	if err := os.Chdir(p.Dir); err != nil {
		return fmt.Errorf("server %s: %w", server, err)
	}
	if p.Confine != nil {
		runtime.LockOSThread() // it is confined, and executes the server
		if err := sandbox.Confine(p.Confine); err != nil {
			return fmt.Errorf("server %s cannot be confined here, so it was not started: %w", server, err)
		}
	}
	err = syscall.Exec(p.Command, append([]string{p.Command}, p.Args...), p.Env)
	return fmt.Errorf("server %s: %s: %w", server, p.Command, err)
}
