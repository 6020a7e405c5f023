package daemon

import (
	"context"
	"path/filepath"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/consult"
	"holdline/daemon/consult/answer"
	"holdline/daemon/hosted/private"
	"holdline/daemon/launch"
	"holdline/daemon/place"
	"holdline/daemon/supervisor"
	"holdline/daemon/telemetry"
	"holdline/protocol/faultpoint"
)

// buildConsults makes the consult part.
func (d *daemon) buildConsults(ctx context.Context, cfg *config.Config) error {
	d.programs = launch.NewPrograms(ctx, d.Log, d.file, d.env, cfg)
	d.audit = telemetry.NewRecords(telemetry.Options{
		Log:  d.Log.With("component", "audit"),
		Path: filepath.Join(d.dirs.Logs, auditFile), MaxBytes: int64(cfg.Telemetry.MaxBytes), Keep: cfg.Telemetry.Keep,
	})
	var err error
	d.consults, err = consult.New(consult.Options{
		Log: d.Log.With("component", "consult"), Dir: d.dirs.Consults, Ledger: filepath.Join(d.dirs.Root, ledgerFile),
		Exe: d.Image, SocketDir: d.place.File(place.WorkersDir), Home: d.Home,
		Engines:  d.programs,
		Variable: func(name string) string { return command.Variable(d.env.List(), name) },
		Audit:    func(a answer.Audit) { d.audit.Write(a) },
		Host:     private.Processes{Log: d.Log.With("component", "private"), Workers: d.workers, Watch: d.telemetry},
		Config:   cfg,
	})
	return err
}

// auditFile is the log of the consults that have ended, in the directory of logs.
const auditFile = "consults.jsonl"

// ledgerFile has the cost of those consults whose answers are removed, in the state
// directory.
const ledgerFile = "spent.json"

// stopConsults leaves the consults to their workers and to the next daemon, or ends
// them if the user wants all to end.
func (d *daemon) stopConsults(ctx context.Context) error {
	if d.endAll.Load() {
		return d.consults.Close(ctx)
	}
	err := d.consults.Detach(ctx)
	faultpoint.At("stop.detached")
	return err
}

// reclaim removes what dead workers left in a runtime directory that is full.
func (d *daemon) reclaim(dir string) int {
	return supervisor.New(supervisor.Options{RuntimeDir: dir, StateDir: d.StateDir, Log: d.Log}).ReapSettled()
}
