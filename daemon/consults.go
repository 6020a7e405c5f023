package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/codex"
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
type program[E engine.Engine] struct {
	now   atomic.Pointer[E]
	ready func(context.Context) error // tells whether it has what the configuration gives it
}

func (p *program[E]) Check(ctx context.Context) (engine.Info, error) {
	if err := p.ready(ctx); err != nil {
		return engine.Info{}, err
	}
	return (*p.now.Load()).Check(ctx)
}

func (p *program[E]) Fits(req engine.Request) error { return (*p.now.Load()).Fits(req) }

func (p *program[E]) Without(names []string) []string { return (*p.now.Load()).Without(names) }

func (p *program[E]) Command(req engine.Request, info engine.Info) engine.Command {
	return (*p.now.Load()).Command(req, info)
}

func (p *program[E]) Environ() (environ, configured []string) { return (*p.now.Load()).Environ() }

func (p *program[E]) NewRun(req engine.Request, info engine.Info) engine.Run {
	return (*p.now.Load()).NewRun(req, info)
}

func (p *program[E]) use(e E) { p.now.Store(&e) }

// buildConsults makes the consult part.
func (l *life) buildConsults(ctx context.Context, cfg *config.Config) error {
	l.claude.ready = func(ctx context.Context) error {
		return l.programsReady(ctx, func(cfg *config.Config) string { return cfg.Consult.ClaudeBin })
	}
	l.codex.ready = func(ctx context.Context) error {
		return l.programsReady(ctx, func(cfg *config.Config) string { return cfg.Consult.CodexBin })
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
		Engines: map[string]engine.Engine{consult.Claude: &l.claude, consult.Codex: &l.codex},
		Path:    func() string { return pathOf(l.env.List()) }, Audit: func(a consult.Audit) { l.audit.Write(a) },
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

// pathOf is the PATH of an environment.
func pathOf(environ []string) string {
	for _, kv := range slices.Backward(environ) {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return path
		}
	}
	return ""
}

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
func (l *life) programsReady(ctx context.Context, bin func(*config.Config) string) error {
	if err := l.env.Await(ctx, bin(withBins(l.file.Current(), l.env.List()))); err != nil {
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
	byClaude, byCodex, err := programs(cfg, l.consulted.environ)
	if l.consulted.err = err; err != nil {
		l.Log.ErrorContext(ctx, "no consult can run: env_file cannot be used", "err", err)
	}
	l.claude.use(byClaude)
	l.codex.use(byCodex)
}

// programs are the consult programs as a configuration names them, in an
// environment. The error is that its env_file could not be read, without which
// they are.
func programs(cfg *config.Config, environ []string) (*claude.Claude, *codex.Codex, error) {
	var extra []string
	var err error
	if cfg.Consult.EnvFile != "" {
		extra, err = config.ReadEnvFile(cfg.Consult.EnvFile)
	}
	for name, value := range cfg.Consult.Env {
		extra = append(extra, name+"="+value.Reveal())
	}
	cfg = withBins(cfg, environ)
	return claude.New(claude.Options{Bin: cfg.Consult.ClaudeBin, Env: environ, Extra: extra}),
		codex.New(codex.Options{Bin: cfg.Consult.CodexBin, Env: environ, Extra: extra, Config: cfg.Consult.CodexConfig}), err
}

// withBins returns a configuration that names the programs which the environment
// names instead.
func withBins(cfg *config.Config, environ []string) *config.Config {
	out := *cfg
	value := config.Lookup(environ)
	if bin, _ := value("HOLDLINE_CLAUDE_BIN"); bin != "" {
		out.Consult.ClaudeBin = bin
	}
	if bin, _ := value("HOLDLINE_CODEX_BIN"); bin != "" {
		out.Consult.CodexBin = bin
	}
	return &out
}

// CheckConsult tells whether the consult program of an engine can be used, as a
// daemon of that configuration would find it in that environment. It asks none.
func CheckConsult(ctx context.Context, cfg *config.Config, environ []string, name string) control.CheckAnswer {
	byClaude, byCodex, err := programs(cfg, environ)
	var info engine.Info
	switch {
	case err != nil:
		err = fault.New(fault.InvalidInput, fault.Engine, control.ConsultCheck, "consult.env_file: %v", err)
	case name == consult.Codex:
		info, err = byCodex.Check(ctx)
	default:
		info, err = byClaude.Check(ctx)
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
