// Package launch says how the configured servers and the consult programs are started:
// the program with its arguments, environment and directory, and the limits that hold
// for it.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/remote"
	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/resolve"
	"holdline/daemon/configfile"
	"holdline/daemon/envfile"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/leaf"
	"holdline/daemon/limits"
	"holdline/daemon/policy"
	"holdline/daemon/tool"
	"holdline/daemon/userenv"
	"holdline/protocol/process"
)

// Start is what decides, besides its settings, how a server is started.
type Start struct {
	Config  string   // path of the configuration; the file of variables is beside it
	Home    string   // the user's home directory
	Image   string   // path of this program, which stands for remote servers
	Environ []string // the environment that servers inherit from
	Logins  Logins   // of remote servers; without a directory there are none
	// Commands runs the commands that print secrets. If it is nil they are not run, and their
	// secrets are empty.
	Commands *Commands
	Guarded  []string // Holdline's own directories, besides that of Config
	Grants   *Grants  // what all confined servers may write; nil outside of a daemon
}

// around returns what the variables in a server's settings are expanded by. root is the
// directory of its project, or "". Commands are run until ctx ends.
func (l *Start) around(ctx context.Context, s *config.Settings, root string) (a resolve.Around, err error) {
	a = resolve.Around{Environ: l.Environ, Home: l.Home, Root: root}
	if l.Commands != nil {
		printed := map[string]string{} // a start runs a command once, however many values need it
		a.Run = func(argv []string) (value string, err error) {
			key := strings.Join(argv, "\x00")
			if value = printed[key]; value == "" {
				value, err = l.Commands.share(ctx, key, func() (string, error) {
					return runSecret(ctx, secretTimeout, argv, l.Environ, l.Home)
				})
				printed[key] = value
			}
			return value, err
		}
	}
	a.Variables, err = envfile.Read(envfile.Path(l.Config))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return a, err
	}
	if s.EnvFile != "" && s.Host == "" {
		if a.EnvFile, err = envfile.Read(s.EnvFile); err != nil {
			return a, fmt.Errorf("env_file: %w", err)
		}
	}
	return a, nil
}

// Process resolves what the start of a server needs that runs for owner, of whom the root and the key
// of the project matter. If ctx ends, so do the commands that print its secrets.
func (l *Start) Process(ctx context.Context, s *config.Settings, owner *process.Owner) (resolve.Process, error) {
	a, err := l.around(ctx, s, owner.Root)
	if err != nil {
		return resolve.Process{}, err
	}
	if s.Transport == config.Elsewhere {
		return a.There(*s)
	}
	if s.Transport == config.HTTP {
		return l.remoteProcess(s, a)
	}
	p, err := a.Process(*s)
	if err == nil && s.InheritEnv != config.InheritNone {
		p.Env = withTalkingNpm(p.Env)
	}
	if err == nil {
		err = l.confine(s, owner, &p)
	}
	p.Bounds = bounds(s)
	return p, err
}

// bounds returns the limits of a server; nil if it has none.
func bounds(s *config.Settings) *process.Bounds {
	if s.Bounds == (config.Bounds{}) {
		return nil
	}
	return &process.Bounds{
		Memory: int64(s.Bounds.Memory), Processes: s.Bounds.Processes, CPUWeight: s.Bounds.CPUWeight,
	}
}

// withTalkingNpm returns an environment in which npm, and so npx, writes to stderr what it
// downloads, unless the user wants something else of it. By itself npx is silent for as long as
// that takes, so that people could not see what a first start waits for, and the time limit of
// a start, which begins again with each line, would end a download.
func withTalkingNpm(environ []string) []string {
	const name = "npm_config_loglevel" // npm takes it in any case
	if slices.ContainsFunc(environ, func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		return strings.EqualFold(key, name)
	}) {
		return environ
	}
	return append(slices.Clip(environ), name+"=http")
}

// remoteProcess returns the process that stands for a remote server: this
// program, as `holdline remote`. So a remote server has all that processes have,
// and calls to it outlive the daemon.
func (l *Start) remoteProcess(s *config.Settings, a resolve.Around) (resolve.Process, error) {
	address, err := a.Address(*s)
	if err != nil {
		return resolve.Process{}, err
	}
	target := remote.Target{Name: s.Name, URL: address.URL, Headers: address.Headers, Secrets: address.Sent}
	if target.Login, err = l.loginOf(s, a, address.URL); err != nil {
		return resolve.Process{}, err
	}
	p := resolve.Process{
		Command: l.Image, Args: []string{"remote"}, Dir: l.Home, Secrets: address.Secrets,
		Env: resolve.Environment(config.InheritCore, a.Environ, map[string]string{remote.EnvTarget: target.Encode()}),
	}
	if target.Login != nil {
		p.EndGrace = loginGrace
	}
	return p, nil
}

// loginGrace is the time for each of the two steps in which a process with a login ends. It ends
// at once, unless it is renewing the login: that would be lost with the answer, for which it
// waits half a minute at most, and which it then stores.
const loginGrace = 20 * time.Second

// Launcher makes the specs of a daemon's servers.
type Launcher struct {
	Log   *slog.Logger
	File  *configfile.File
	Env   *userenv.Environ
	Home  string // the user's home directory
	Image string // path of this program
	// LoginDir is the directory of logins.
	LoginDir string
	// Guarded are Holdline's own directories, besides that of File.
	Guarded []string
	// Grants are what confined servers may write.
	Grants *Grants
	// Leaves has how servers are started without their launchers.
	Leaves *leaf.Store

	open     openLogins
	commands Commands
}

// Specs returns the servers that cfg names and that can be hosted, sorted by name. It
// leaves out servers that are switched off, and those that cannot be used with a warning.
func (l *Launcher) Specs(ctx context.Context, cfg *config.Config) []entry.Server {
	var specs []entry.Server
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s, _ := cfg.Server(name)
		switch err := s.Unusable(); {
		case err != nil:
			l.Log.WarnContext(ctx, "server left out", "server", name, "err", err)
		case s.Enabled:
			specs = append(specs, l.spec(s, cfg.Logins.KeyCommand))
		}
	}
	return specs
}

// GoneSpec returns the spec of a server that the configuration does not name any
// more: the default limits, and nothing that could be started.
func (l *Launcher) GoneSpec() entry.Server {
	s, _ := config.Config{}.Server("")
	spec := l.spec(s, nil)
	spec.Process, spec.Ready, spec.Visible, spec.Contract, spec.Offers = nil, nil, nil, nil, nil
	return spec
}

// spec returns the spec of a server. Its functions resolve the settings at each start,
// by the environment and the configuration of that moment. keyCommand is that of logins: a
// process has the one with which it was started.
func (l *Launcher) spec(s config.Settings, keyCommand []string) entry.Server {
	spec := entry.Server{
		Name: s.Name, Scope: entry.Scope(s.Scope), Key: serverKey(&s, keyCommand), Remote: s.Transport == config.HTTP,
		Timeout: s.Timeout, MaxTimeout: s.MaxTimeout, StartTimeout: s.StartTimeout,
		TaskAfter:    s.TaskAfter,
		BlockChanged: s.Pin == config.PinBlock,
		Lazy:         s.Lazy, KeepAlive: s.KeepAlive, MaxConcurrent: s.MaxConcurrent,
		MaxRestarts: s.MaxRestarts, RestartWindow: s.RestartWindow,
		CircuitThreshold: s.CircuitThreshold, CircuitReset: s.CircuitReset,
		RunsCommands: len(s.EnvCommands)+len(s.Commands) > 0,
		Process: func(ctx context.Context, owner *process.Owner) (resolve.Process, error) {
			p, err := l.process(ctx, &s, owner, &l.commands)
			if err == nil {
				p.Launch = Leaf(l.Leaves, &s, &p)
			}
			return p, err
		},
		Ready: func(ctx context.Context, owner *process.Owner) error { return l.awaitProgram(ctx, &s, owner) },
		Contract: func(own string) tool.Contract {
			c, _ := s.Contract(own)
			return tool.Contract(c)
		},
		Offers: func(names ...string) bool {
			ok, _ := policy.NewRules(l.File.Current()).Offers(s.Name, names...)
			return ok
		},
	}
	if spec.HeldBy = HeldBy(&s); spec.HeldBy != "" {
		spec.Confine = s.Confine
	}
	if b := bounds(&s); b != nil {
		spec.Limits = limits.Words(b)
	}
	spec.Login = l.loginOfSpec(&s)
	if s.Projects != nil {
		spec.Visible = s.VisibleIn
	}
	return spec
}

// Leaf returns the start of a server's process that may be one without a launcher, or nil if it may not, as without
// leaves. It reads files.
func Leaf(leaves *leaf.Store, s *config.Settings, p *resolve.Process) *leaf.Launch {
	if leaves == nil || s.Launcher != config.LauncherDirect || s.Transport != config.Stdio {
		return nil
	}
	return leaves.Launch(leaf.Program{Command: p.Command, Args: p.Args, Dir: p.Dir, Env: p.Env}, leaf.Options{
		Server: s.Name, Wall: p.Confine, Secrets: p.Secrets, Refresh: s.LauncherRefresh,
	})
}

// process resolves what the start of a server needs, as the environment is now. With commands nil
// it runs none.
func (l *Launcher) process(
	ctx context.Context, s *config.Settings, owner *process.Owner, commands *Commands,
) (resolve.Process, error) {
	from := Start{
		Config: l.File.Path(), Home: l.Home, Image: l.Image, Environ: l.Env.List(),
		Logins:   Logins{Dir: l.LoginDir, KeyCommand: l.File.Current().Logins.KeyCommand},
		Commands: commands,
		Guarded:  l.Guarded,
		Grants:   l.Grants,
	}
	return from.Process(ctx, s, owner)
}

// awaitProgram waits until the environment of a server is known, within bounds, and
// then looks for its program. It returns an error that says where the program was
// looked for if no directory has it. Other problems are left to the start, which says
// what is wrong.
func (l *Launcher) awaitProgram(ctx context.Context, s *config.Settings, owner *process.Owner) error {
	program := s.Command
	if s.Transport == config.Elsewhere {
		program = "ssh" // or the like: it needs the user's environment, too
	}
	if err := l.Env.Await(ctx, program); err != nil {
		return err
	}
	if s.Transport != config.Stdio {
		return nil
	}
	p, err := l.process(ctx, s, owner, nil)
	if err != nil || strings.Contains(p.Command, "/") {
		return nil //nolint:nilerr // the start says what is wrong
	}
	path, _ := expand.Lookup(p.Env)("PATH")
	if _, err := command.LookPath(p.Command, path); err != nil {
		return fmt.Errorf("`%s` was not found. Looked in: %s", p.Command, l.describePath(path))
	}
	return nil
}

// describePath returns, for people, which directories of path were searched, and from
// which source each of them comes.
func (l *Launcher) describePath(path string) string {
	var parts []string
	left := command.SearchDirs(path)
	for _, p := range l.Env.Paths() {
		here := slices.DeleteFunc(slices.Clone(left), func(dir string) bool { return !slices.Contains(p.Dirs, dir) })
		left = slices.DeleteFunc(left, func(dir string) bool { return slices.Contains(p.Dirs, dir) })
		if len(here) > 0 {
			parts = append(parts, strings.Join(here, ", ")+" ("+p.Source+")")
		}
	}
	if len(left) > 0 {
		parts = append(parts, strings.Join(left, ", ")+" (configuration)")
	}
	if len(parts) == 0 {
		return "no directory: its PATH is empty"
	}
	return strings.Join(parts, "; ")
}
