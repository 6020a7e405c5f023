package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/command"
	"holdline/daemon/commands"
	"holdline/daemon/config"
	"holdline/daemon/consult"
	"holdline/daemon/place"
	"holdline/daemon/telemetry"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
)

// program is a consult program as the configuration names it now.
type program struct {
	engine *engines.Engine
	ready  func(context.Context) error // returns an error if what the configuration gives it is missing
	now    atomic.Pointer[engine.Engine]
}

func (p *program) Check(ctx context.Context) (engine.Info, error) {
	if err := p.ready(ctx); err != nil {
		return engine.Info{}, err
	}
	return (*p.now.Load()).Check(ctx)
}

func (p *program) Fits(req engine.Request) error { return (*p.now.Load()).Fits(req) }

func (p *program) Without(names []string) []string { return (*p.now.Load()).Without(names) }

func (p *program) Command(req engine.Request, info engine.Info) engine.Command {
	return (*p.now.Load()).Command(req, info)
}

func (p *program) Environ() (environ, configured []string) { return (*p.now.Load()).Environ() }

func (p *program) NewRun(req engine.Request, info engine.Info) engine.Run {
	return (*p.now.Load()).NewRun(req, info)
}

// buildConsults makes the consult part.
func (l *life) buildConsults(ctx context.Context, cfg *config.Config) error {
	byName := map[string]engine.Engine{}
	for i := range engines.All {
		e := &engines.All[i]
		p := &program{engine: e, ready: func(ctx context.Context) error { return l.programsReady(ctx, e) }}
		l.programs = append(l.programs, p)
		byName[e.Name] = p
	}
	l.usePrograms(ctx, cfg)
	l.audit = telemetry.NewRecords(telemetry.Options{
		Log:  l.Log.With("component", "audit"),
		Path: filepath.Join(l.dirs.Logs, auditFile), MaxBytes: int64(cfg.Telemetry.MaxBytes), Keep: cfg.Telemetry.Keep,
	})
	var err error
	l.consults, err = consult.New(consult.Options{
		Log: l.Log.With("component", "consult"), Dir: l.dirs.Consults, Ledger: filepath.Join(l.dirs.Root, ledgerFile),
		Exe: l.Image, SocketDir: l.place.File(place.WorkersDir), Home: l.Home,
		Engines: byName,
		Path:    func() string { return command.Variable(l.env.List(), "PATH") }, Audit: func(a consult.Audit) { l.audit.Write(a) },
		Starter: starter{l.workers, l.telemetry}, Settings: settings(cfg),
	})
	return err
}

// auditFile is where consults that have ended are written down, in the
// directory of logs.
const auditFile = "consults.jsonl"

// ledgerFile is what consults have cost whose answers are gone, in the state
// directory.
const ledgerFile = "spent.json"

// configureConsults follows a changed configuration.
func (l *life) configureConsults(ctx context.Context, cfg *config.Config) {
	l.usePrograms(ctx, cfg)
	l.consults.Configure(settings(cfg))
}

// consultEnv is what the programs of consults were made of.
type consultEnv struct {
	mu      sync.Mutex // held while programs are made
	state   string     // of the file of variables, to see a change; guarded by mu
	environ []string   // guarded by mu
	err     error      // the file cannot be used; guarded by mu
}

// envState tells states of a file of variables apart; "" is no file.
func envState(path string) string {
	if path == "" {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return path + ": " + err.Error()
	}
	return fmt.Sprintf("%s: %d bytes, %d, %s", path, info.Size(), info.ModTime().UnixNano(), info.Mode())
}

// programsReady waits until it is known where the program of a consult is, within
// bounds, and follows a changed environment or file of variables. A consult
// without these variables would not be logged in, or by another account: while
// the file cannot be used there is none.
func (l *life) programsReady(ctx context.Context, e *engines.Engine) error {
	if err := l.env.Await(ctx, *e.Bin(withBins(l.file.Current(), l.env.List()))); err != nil {
		return err
	}
	l.consulted.mu.Lock()
	defer l.consulted.mu.Unlock()
	cfg := l.file.Current()
	if envState(cfg.Consult.EnvFile) != l.consulted.state || !slices.Equal(l.env.List(), l.consulted.environ) {
		l.useProgramsLocked(ctx, cfg)
	}
	if err := l.consulted.err; err != nil {
		return fault.New(fault.SpawnFailure, fault.Host, "tools/call:consult", "consult.env_file of the configuration cannot be used: %v", err)
	}
	return nil
}

func (l *life) usePrograms(ctx context.Context, cfg *config.Config) {
	l.consulted.mu.Lock()
	defer l.consulted.mu.Unlock()
	l.useProgramsLocked(ctx, cfg)
}

func (l *life) useProgramsLocked(ctx context.Context, cfg *config.Config) {
	l.consulted.state, l.consulted.environ = envState(cfg.Consult.EnvFile), l.env.List()
	extra, err := extraEnviron(cfg)
	if l.consulted.err = err; err != nil {
		l.Log.ErrorContext(ctx, "no consult can run: env_file cannot be used", "err", err)
	}
	settings := withBins(cfg, l.consulted.environ)
	for _, p := range l.programs {
		now := p.engine.New(settings, l.consulted.environ, extra)
		p.now.Store(&now)
	}
}

// extraEnviron returns the variables that the configuration adds to the environment of
// consult programs. With an error, those of its env_file are missing.
func extraEnviron(cfg *config.Config) (extra []string, err error) {
	if cfg.Consult.EnvFile != "" {
		extra, err = config.ReadEnvFile(cfg.Consult.EnvFile)
	}
	for name, value := range cfg.Consult.Env {
		extra = append(extra, name+"="+value.Reveal())
	}
	return extra, err
}

// withBins returns the settings of consults, with the programs that the environment
// names in place of those of the configuration.
func withBins(cfg *config.Config, environ []string) *config.Consult {
	out, value := cfg.Consult, config.Lookup(environ)
	engines.UseVariables(&out, func(name string) string {
		bin, _ := value(name)
		return bin
	})
	return &out
}

// CheckConsult tells whether the consult program of an engine can be used, as a
// daemon of that configuration would find it in that environment. It asks none.
func CheckConsult(ctx context.Context, cfg *config.Config, environ []string, name string) control.CheckAnswer {
	e := engines.Find(name)
	if e == nil {
		e = &engines.All[0]
	}
	var info engine.Info
	extra, err := extraEnviron(cfg)
	if err != nil {
		err = fault.New(fault.InvalidInput, fault.Engine, control.ConsultCheck, "consult.env_file: %v", err)
	} else {
		info, err = e.New(withBins(cfg, environ), environ, extra).Check(ctx)
	}
	return commands.CheckAnswer(cfg, name, info, err)
}

// settings is what the configuration says of consults.
func settings(cfg *config.Config) consult.Settings {
	c := cfg.Consult
	budgets := map[string]consult.Budget{}
	for name, id := range cfg.Identities {
		b := consult.Budget{DayUSD: id.Budget.MaxUSDPerDay, SessionUSD: id.Budget.MaxUSDPerSession, Day: id.Budget.ConsultsPerDay}
		if b != (consult.Budget{}) {
			budgets[name] = b
		}
	}
	return consult.Settings{
		Engine: c.Engine, MaxUSD: c.MaxUSD, Budgets: budgets,
		Model: c.Model, Effort: c.Effort, MaxTurns: c.MaxTurns, Level: c.Level, Web: c.Web, Roots: c.Roots,
		MaxConcurrent: c.MaxConcurrent, Timeout: c.Timeout, Wait: c.Wait, KeepCount: c.Keep.Count, KeepAge: c.Keep.Age,
	}
}

// runConsults keeps the consults until the daemon stops, and then leaves them
// to their workers and to the next daemon, or ends them if that was asked for.
func (l *life) runConsults(ctx context.Context) error {
	<-ctx.Done()
	why := context.Cause(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if l.endAll.Load() {
		return errors.Join(why, l.consults.Close(ctx))
	}
	err := l.consults.Detach(ctx)
	faultpoint.At("stop.detached")
	return errors.Join(why, err)
}
