package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync/atomic"

	"holdline/daemon/claude"
	"holdline/daemon/config"
	"holdline/daemon/consult"
	dcontrol "holdline/daemon/control"
	"holdline/daemon/engine"
	"holdline/daemon/session"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
)

// program is the consult program that the configuration names now.
type program struct {
	now atomic.Pointer[claude.Claude]
}

func (p *program) Check(ctx context.Context) (engine.Info, error) { return p.now.Load().Check(ctx) }

func (p *program) Command(req engine.Request, info engine.Info) engine.Command {
	return p.now.Load().Command(req, info)
}

func (p *program) NewRun(req engine.Request) engine.Run { return p.now.Load().NewRun(req) }

// buildConsults makes the consult part.
func (l *life) buildConsults(ctx context.Context, cfg *config.Config) error {
	l.useProgram(ctx, cfg)
	var err error
	l.consults, err = consult.New(consult.Options{
		Log: l.Log.With("component", "consult"), Dir: l.dirs.Consults,
		SocketDir: filepath.Join(l.place.dir.Path(), workersDir), Home: l.Home,
		Engine: &l.program, Starter: starter{l.workers, l.telemetry}, Settings: settings(cfg),
	})
	return err
}

// configureConsults follows a changed configuration.
func (l *life) configureConsults(ctx context.Context, cfg *config.Config) {
	l.useProgram(ctx, cfg)
	l.consults.Configure(settings(cfg))
}

func (l *life) useProgram(ctx context.Context, cfg *config.Config) {
	var extra []string
	if cfg.Consult.EnvFile != "" {
		var err error
		if extra, err = config.ReadEnvFile(cfg.Consult.EnvFile); err != nil {
			l.Log.ErrorContext(ctx, "consults run without the variables of env_file", "err", err)
		}
	}
	for name, value := range cfg.Consult.Env {
		extra = append(extra, name+"="+value.Reveal())
	}
	l.program.now.Store(claude.New(claude.Options{Bin: cfg.Consult.ClaudeBin, Env: l.environ(), Extra: extra}))
}

// settings is what the configuration says of consults.
func settings(cfg *config.Config) consult.Settings {
	c := cfg.Consult
	return consult.Settings{
		Model: c.Model, Effort: c.Effort, MaxTurns: c.MaxTurns, Web: c.Web, Roots: c.Roots,
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

// checkConsult tells whether a consult can run.
func (l *life) checkConsult(ctx context.Context) control.CheckAnswer {
	return CheckAnswer(l.consults.Check(ctx))
}

// CheckAnswer is a check of the consult program as the command line gets it.
func CheckAnswer(info engine.Info, err error) control.CheckAnswer {
	a := control.CheckAnswer{Path: info.Path, Version: info.Version, Account: info.Account}
	if err != nil {
		a.Fault = fault.From(err, fault.Engine, control.ConsultCheck)
	}
	return a
}

// runConsult is a consult asked for on the command line. It is attended for as
// long as the command runs; a command that comes back finds it by its key.
func (l *life) runConsult(ctx context.Context, params json.RawMessage, progress func(control.Progress)) (any, error) {
	var p control.ConsultParams
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	caller := tool.Caller{Identity: p.Identity, Project: p.Project, Cwd: p.Cwd, Root: session.ProjectRoot(p.Cwd), Client: "holdline consult"}
	if p.Key != "" {
		caller.Session = session.Hash("command " + p.Key)
	}
	answer, err := l.consults.Run(ctx, caller, p.Arguments,
		func(id string) { progress(control.Progress{ConsultID: id}) },
		func(message string) { progress(control.Progress{Message: message}) })
	if err != nil {
		return nil, err
	}
	return answerOf(answer)
}

// oneConsult handles a command about one consult.
func (l *life) oneConsult(do func(ctx context.Context, id string, progress func(note string)) (*consult.Answer, error)) dcontrol.Handler {
	return func(ctx context.Context, params json.RawMessage, progress func(control.Progress)) (any, error) {
		var p control.ConsultID
		if err := decode(params, &p); err != nil {
			return nil, err
		}
		answer, err := do(ctx, p.ID, func(note string) { progress(control.Progress{Message: note}) })
		if err != nil {
			return nil, err
		}
		return answerOf(answer)
	}
}

func answerOf(a *consult.Answer) (control.ConsultAnswer, error) {
	raw, err := json.Marshal(a.Value(tool.Full))
	return control.ConsultAnswer{Text: a.Text, Value: raw, Fault: a.Failure()}, err
}

func (l *life) listConsults() []control.Consult {
	list := []control.Consult{}
	for _, i := range l.consults.List("") {
		list = append(list, control.Consult{
			ID: i.ID, State: string(i.State), Identity: i.Identity, Cwd: i.Cwd, Model: i.Model,
			CreatedMS: i.CreatedUnixMS, TookMS: i.TookMS, CostUSD: i.CostUSD, Code: i.Code,
		})
	}
	return list
}
