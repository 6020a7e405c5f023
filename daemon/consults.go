package daemon

import (
	"context"
	"path/filepath"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/consult"
	"holdline/daemon/hosted"
	"holdline/daemon/launch"
	"holdline/daemon/place"
	"holdline/daemon/telemetry"
	"holdline/protocol/faultpoint"
)

// buildConsults makes the consult part.
func (l *life) buildConsults(ctx context.Context, cfg *config.Config) error {
	l.programs = launch.NewPrograms(ctx, l.Log, l.file, l.env, cfg)
	l.audit = telemetry.NewRecords(telemetry.Options{
		Log:  l.Log.With("component", "audit"),
		Path: filepath.Join(l.dirs.Logs, auditFile), MaxBytes: int64(cfg.Telemetry.MaxBytes), Keep: cfg.Telemetry.Keep,
	})
	privates := hosted.Privates{Log: l.Log.With("component", "hosted"), Workers: l.workers, Watch: l.telemetry}
	var err error
	l.consults, err = consult.New(consult.Options{
		Log: l.Log.With("component", "consult"), Dir: l.dirs.Consults, Ledger: filepath.Join(l.dirs.Root, ledgerFile),
		Exe: l.Image, SocketDir: l.place.File(place.WorkersDir), Home: l.Home,
		Engines: l.programs.Engines(),
		Path:    func() string { return command.Variable(l.env.List(), "PATH") },
		Audit:   func(a consult.Audit) { l.audit.Write(a) },
		Call: func(ctx context.Context, c consult.Call, settle func(consult.End)) {
			privates.Call(ctx, hosted.Private(c), func(e hosted.PrivateEnd) { settle(consult.End(e)) })
		},
		Clear: l.workers.Clear, Settings: settings(cfg),
	})
	return err
}

// auditFile is where consults that have ended are written down, in the
// directory of logs.
const auditFile = "consults.jsonl"

// ledgerFile is what consults have cost whose answers are gone, in the state
// directory.
const ledgerFile = "spent.json"

// settings is what the configuration says of consults.
func settings(cfg *config.Config) consult.Settings {
	c := cfg.Consult
	budgets := map[string]consult.Budget{}
	for name, id := range cfg.Identities {
		b := consult.Budget{
			DayUSD: id.Budget.MaxUSDPerDay, SessionUSD: id.Budget.MaxUSDPerSession, Day: id.Budget.ConsultsPerDay,
		}
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

// stopConsults leaves the consults to their workers and to the next daemon, or ends
// them if the user wants all to end.
func (l *life) stopConsults(ctx context.Context) error {
	if l.endAll.Load() {
		return l.consults.Close(ctx)
	}
	err := l.consults.Detach(ctx)
	faultpoint.At("stop.detached")
	return err
}
