package launch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/configfile"
	"holdline/daemon/envfile"
	"holdline/daemon/filewatch"
	"holdline/daemon/userenv"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Programs are the consult programs as the configuration and the environment name
// them now. Make it with [NewPrograms]. It is safe for concurrent use.
type Programs struct {
	log  *slog.Logger
	file *configfile.File
	env  *userenv.Environ
	all  []*program

	mu      sync.Mutex      // held while engines are made; guards the fields that follow
	stamp   filewatch.Stamp // state of the file of variables that the engines were made with
	environ []string        // environment that the engines were made with
	err     error           // why the file of variables cannot be used
}

// program is one consult engine, which is made anew when the configuration or the
// environment changes.
type program struct {
	*engines.Engine
	of  *Programs
	now atomic.Pointer[engine.Engine]
}

// NewPrograms returns the programs that cfg names.
func NewPrograms(
	ctx context.Context, log *slog.Logger, file *configfile.File, env *userenv.Environ, cfg *config.Config,
) *Programs {
	p := &Programs{log: log, file: file, env: env}
	for i := range engines.All {
		p.all = append(p.all, &program{Engine: &engines.All[i], of: p})
	}
	p.Use(ctx, cfg)
	return p
}

// Engines returns the engines by name. They follow each [Programs.Use].
func (p *Programs) Engines() map[string]engine.Engine {
	byName := map[string]engine.Engine{}
	for _, one := range p.all {
		byName[one.Name] = one
	}
	return byName
}

// Use makes the engines anew, by another configuration.
func (p *Programs) Use(ctx context.Context, cfg *config.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.makeEngines(ctx, cfg)
}

// makeEngines makes the engines anew, and records by what they were made. If the file
// of variables cannot be used, the engines lack its variables, and p.err says why. The
// caller must hold p.mu.
func (p *Programs) makeEngines(ctx context.Context, cfg *config.Config) {
	p.stamp, _ = filewatch.Stat(cfg.Consult.EnvFile)
	p.environ = p.env.List()
	extra, err := extraEnviron(cfg)
	if p.err = err; err != nil {
		p.log.ErrorContext(ctx, "no consult can run: env_file cannot be used", "err", err)
	}
	settings := withBins(cfg, p.environ)
	for _, one := range p.all {
		now := one.New(settings, p.environ, extra)
		one.now.Store(&now)
	}
}

// Check waits until it is known where the program is, within bounds, and follows a
// changed environment or file of variables. Then it checks the program.
//
// It returns an error if the file of variables cannot be used: without its variables
// the consult would not be logged in, or would use another account.
func (p *program) Check(ctx context.Context) (engine.Info, error) {
	if err := p.of.env.Await(ctx, p.Program(withBins(p.of.file.Current(), p.of.env.List()))); err != nil {
		return engine.Info{}, err
	}
	if err := p.of.refresh(ctx); err != nil {
		return engine.Info{}, fault.New(fault.SpawnFailure, fault.Host, engine.Operation,
			"consult.env_file of the configuration cannot be used: %v", err)
	}
	return (*p.now.Load()).Check(ctx)
}

// refresh makes the engines anew if the environment or the file of variables has
// changed. It returns why that file cannot be used, or nil.
func (p *Programs) refresh(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cfg := p.file.Current()
	if stamp, _ := filewatch.Stat(cfg.Consult.EnvFile); stamp != p.stamp || !slices.Equal(p.env.List(), p.environ) {
		p.makeEngines(ctx, cfg)
	}
	return p.err
}

// The other methods of an [engine.Engine] are those of the engine as it is now.

// Fits returns an error if no version of the program can do what is asked.
func (p *program) Fits(req engine.Request) error { return (*p.now.Load()).Fits(req) }

// Without returns those of the names that are login variables which the program lacks.
func (p *program) Without(names []string) []string { return (*p.now.Load()).Without(names) }

// Command returns the command line of a run.
func (p *program) Command(req engine.Request, info engine.Info) engine.Command {
	return (*p.now.Load()).Command(req, info)
}

// Environ returns the environment of every run, and the names that the configuration
// sets.
func (p *program) Environ() (environ, configured []string) { return (*p.now.Load()).Environ() }

// NewRun returns the reader of what a run prints.
func (p *program) NewRun(req engine.Request, info engine.Info) engine.Run {
	return (*p.now.Load()).NewRun(req, info)
}

// extraEnviron returns the variables that the configuration adds to the environment of
// consult programs: those of its env_file, and after them those of env, which count
// more. With an error, those of the env_file are missing.
func extraEnviron(cfg *config.Config) (extra []string, err error) {
	if cfg.Consult.EnvFile != "" {
		extra, err = envfile.Read(cfg.Consult.EnvFile)
	}
	for name, value := range cfg.Consult.Env {
		extra = append(extra, name+"="+value.Reveal())
	}
	return extra, err
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
// configuration would find it in that environment. It waits until that is known, within
// bounds, and asks no daemon. logins are the names of the login variables that this process
// has: the fault of a program that is not logged in names those which the daemon would lack.
func CheckProgram(
	ctx context.Context, cfg *config.Config, env *userenv.Environ, logins []string, name string,
) (engine.Info, error) {
	e := engines.Find(name)
	if e == nil {
		e = &engines.All[0]
	}
	extra, err := extraEnviron(cfg)
	if err != nil {
		return engine.Info{}, fault.New(fault.InvalidInput, fault.Engine, control.ConsultCheck,
			"consult.env_file: %v", err)
	}
	if err := env.Await(ctx, e.Program(withBins(cfg, env.List()))); err != nil {
		return engine.Info{}, err
	}
	environ := env.List()
	eng := e.New(withBins(cfg, environ), environ, extra)
	info, err := eng.Check(ctx)
	return info, engine.NameLacking(err, eng, logins)
}
