package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/resolve"
	"holdline/daemon/configfile"
	"holdline/daemon/envfile"
	"holdline/daemon/filewatch"
	"holdline/daemon/userenv"
	"holdline/protocol/fault"
)

// Programs are the consult programs as the configuration and the environment name
// them now. Make it with [NewPrograms]. It is safe for concurrent use.
type Programs struct {
	log  *slog.Logger
	file *configfile.File
	env  *userenv.Environ

	making  sync.Mutex         // held while engines are made; guards the two that follow
	stamps  [2]filewatch.Stamp // states of the files of variables that the engines were made with
	environ []string           // environment that the engines were made with

	mu  sync.Mutex
	all map[string]*program // by name; guarded by mu
}

// program is one consult engine, which is made anew when the configuration or the
// environment changes.
type program struct {
	of  *Programs
	now atomic.Pointer[made]
}

// made is an engine as it was made last.
type made struct {
	engine.Engine

	row *engines.Engine
	err error // why the variables that the configuration gives it cannot be used
}

// NewPrograms returns the programs that cfg names.
func NewPrograms(
	ctx context.Context, log *slog.Logger, file *configfile.File, env *userenv.Environ, cfg *config.Config,
) *Programs {
	p := &Programs{log: log, file: file, env: env, all: map[string]*program{}}
	p.Use(ctx, cfg)
	return p
}

// Find returns the engine with that name, or nil if the configuration has none. The engine
// follows each [Programs.Use].
func (p *Programs) Find(name string) engine.Engine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.all[name]; one != nil {
		return one
	}
	return nil
}

// Use makes the engines anew, by another configuration.
func (p *Programs) Use(ctx context.Context, cfg *config.Config) {
	p.making.Lock()
	defer p.making.Unlock()
	p.makeEngines(ctx, cfg)
}

// makeEngines makes the engines anew, and records by what they were made. If the
// variables that the configuration gives one cannot be used, it lacks them, and its err says
// why. The caller must hold p.making.
func (p *Programs) makeEngines(ctx context.Context, cfg *config.Config) {
	p.stamps = p.stampsOf(cfg)
	p.environ = p.env.List()
	settings := withBins(cfg, p.environ)
	now := map[string]*made{}
	for _, row := range engines.List(settings) {
		extra, err := extraEnviron(cfg, row, p.file.Path(), p.environ)
		if err != nil {
			p.log.ErrorContext(ctx, "no consult can run with an engine", "engine", row.Name, "err", err)
		}
		now[row.Name] = &made{Engine: row.New(settings, p.environ, extra), row: row, err: err}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]*program{}
	for name, m := range now {
		one := p.all[name]
		if one == nil {
			one = &program{of: p}
		}
		one.now.Store(m)
		all[name] = one
	}
	p.all = all
}

// Check waits until it is known where the program is, within bounds, and follows a
// changed environment or file of variables. Then it checks the program.
//
// It returns an error if the variables that the configuration gives it cannot be used:
// without them the consult would not be logged in, or would use another account.
func (p *program) Check(ctx context.Context) (engine.Info, error) {
	named := p.now.Load().row.Program(withBins(p.of.file.Current(), p.of.env.List()))
	if err := p.of.env.Await(ctx, named); err != nil {
		return engine.Info{}, err
	}
	p.of.refresh(ctx)
	now := p.now.Load()
	if now.err != nil {
		return engine.Info{}, unusable(now.err)
	}
	info, err := now.Check(ctx)
	if err == nil {
		err = reachable(ctx, now.Engine, now.row.Title)
	}
	return info, err
}

// unusable returns the fault of an engine whose variables cannot be used.
func unusable(err error) *fault.Record {
	return fault.New(fault.SpawnFailure, fault.Host, engine.Operation, "%v", err)
}

// stampsOf returns the states of the files of variables: that of consults, and the one for all servers.
func (p *Programs) stampsOf(cfg *config.Config) (stamps [2]filewatch.Stamp) {
	stamps[0], _ = filewatch.Stat(cfg.Consult.EnvFile)
	stamps[1], _ = filewatch.Stat(envfile.Path(p.file.Path()))
	return stamps
}

// refresh makes the engines anew if the environment or the file of variables has
// changed.
func (p *Programs) refresh(ctx context.Context) {
	p.making.Lock()
	defer p.making.Unlock()
	cfg := p.file.Current()
	if p.stampsOf(cfg) != p.stamps || !slices.Equal(p.env.List(), p.environ) {
		p.makeEngines(ctx, cfg)
	}
}

// The other methods of an [engine.Engine] are those of the engine as it is now.

// Fits returns an error if no version of the program can do what is asked.
func (p *program) Fits(req engine.Request) error { return p.now.Load().Fits(req) }

// Without returns those of the names that are login variables which the program lacks.
func (p *program) Without(names []string) []string { return p.now.Load().Without(names) }

// Command returns the command line of a run.
func (p *program) Command(req engine.Request, info engine.Info) engine.Command {
	return p.now.Load().Command(req, info)
}

// Environ returns the environment of every run, and the names that the configuration
// sets.
func (p *program) Environ() (environ, configured []string) { return p.now.Load().Environ() }

// NewRun returns the reader of what a run prints.
func (p *program) NewRun(req engine.Request, info engine.Info) engine.Run {
	return p.now.Load().NewRun(req, info)
}

// extraEnviron returns the variables that the configuration, whose file is at path, adds to the
// environment of a consult program. First, those of the file of variables for all servers which the program uses:
// see [Uses]. For an agent its own follow. For the others those of consult.env_file follow, and after them those of
// consult.env, which count more. With an error, which names the key, those are missing which cannot be read.
func extraEnviron(cfg *config.Config, row *engines.Engine, path string, environ []string) ([]string, error) {
	shared, err := envfile.Read(envfile.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	used := slices.DeleteFunc(slices.Clone(shared), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !Uses(row, name)
	})
	var file []string
	if cfg.Consult.EnvFile != "" {
		var ferr error
		if file, ferr = envfile.Read(cfg.Consult.EnvFile); ferr != nil {
			err = errors.Join(err, fmt.Errorf("consult.env_file of the configuration cannot be used: %w", ferr))
		}
	}
	a, isAgent := cfg.Consult.Agent(row.Name)
	if !isAgent {
		file = append(used, file...)
		for name, value := range cfg.Consult.Env {
			file = append(file, name+"="+value.Reveal())
		}
		return file, err
	}
	at := resolve.Around{Environ: environ, EnvFile: file, Variables: shared}
	if err != nil || len(a.Env) == 0 {
		return used, err
	}
	extra, err := at.Agent(a)
	if err != nil {
		err = fmt.Errorf("consult.agents.%s.%w", row.Title, err)
	}
	return append(used, extra...), err
}

// Uses reports whether a consult engine uses a variable of the file for all servers: one by which its program logs
// in, or reaches its API or the network. What the servers have there is not for the model.
func Uses(row *engines.Engine, name string) bool {
	if command.Network.Has(name) {
		return true
	}
	return !row.IsAgent && len(row.New(&config.Consult{}, nil, nil).Without([]string{name})) > 0
}

// withBins returns the settings of consults, with the programs that the environment
// names in place of those of the configuration.
func withBins(cfg *config.Config, environ []string) *config.Consult {
	out, value := cfg.Consult, expand.Lookup(environ)
	engines.UseVariables(&out, func(name string) string {
		bin, _ := value(name)
		return bin
	})
	return &out
}

// CheckProgram checks the consult program of an engine as a daemon of that
// configuration, whose file is at path, would find it in that environment. It waits until that is
// known, within bounds, and asks no daemon. logins are the names of the login variables that this
// process has: the fault of a program that is not logged in names those which the daemon would lack.
func CheckProgram(
	ctx context.Context, cfg *config.Config, path string, env *userenv.Environ, logins []string, name string,
) (engine.Info, error) {
	row := engines.Find(&cfg.Consult, name)
	if row == nil {
		row = &engines.BuiltIn[0]
	}
	if err := env.Await(ctx, row.Program(withBins(cfg, env.List()))); err != nil {
		return engine.Info{}, err
	}
	environ := env.List()
	extra, err := extraEnviron(cfg, row, path, environ)
	if err != nil {
		return engine.Info{}, unusable(err)
	}
	eng := row.New(withBins(cfg, environ), environ, extra)
	info, err := eng.Check(ctx)
	if err == nil {
		err = reachable(ctx, eng, row.Title)
	}
	return info, engine.NameLacking(err, eng, logins)
}
