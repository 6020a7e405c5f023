package commands

import (
	"cmp"
	"context"
	"encoding/json"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/session"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/project"
)

// checkConsult answers whether a consult can run with a program, which is the configured
// one if the command names none. That a program cannot run is an answer, not an error.
func (d *Daemon) checkConsult(ctx context.Context, p control.CheckParams, _ Progress) (any, error) {
	cfg := d.File.Current()
	name := cmp.Or(p.Engine, cfg.Consult.Engine)
	info, err := d.Consults.Check(ctx, name, p.Logins)
	return CheckAnswer(cfg, name, info, err), nil
}

// CheckAnswer returns the check of a consult program as the command line gets it. err says
// why the program cannot run, or is nil. The command line uses it without a daemon, too.
func CheckAnswer(cfg *config.Config, name string, info engine.Info, err error) control.CheckAnswer {
	a := control.CheckAnswer{
		Engine: name, Default: name == cfg.Consult.Engine,
		Path: info.Path, Version: info.Version, Account: info.Account,
	}
	for _, l := range info.Levels {
		a.Levels = append(a.Levels, control.Level(l))
	}
	if err != nil {
		a.Fault = fault.From(err, fault.Engine, control.ConsultCheck)
	}
	return a
}

// runConsult runs a consult for the command line. The consult is attended while the command
// runs. A command that lost its connection asks again with the same key, and gets the same
// consult: the key makes its session.
func (d *Daemon) runConsult(ctx context.Context, p control.ConsultParams, progress Progress) (any, error) {
	if err := d.Rules.Check(tool.Who{Identity: p.Identity}, "", "consult"); err != nil {
		return nil, err
	}
	caller := tool.Caller{
		Identity: p.Identity, Project: p.Project, Cwd: p.Cwd, Root: project.RootOf(p.Cwd),
		Client: "holdline consult", Logins: p.Logins,
	}
	if p.Key != "" {
		caller.Session = sessionOf(p.Key)
	}
	answer, err := d.Consults.Run(ctx, caller, p.Arguments,
		func(id string) { progress(control.Progress{ConsultID: id}) },
		func(message string) { progress(control.Progress{Message: message}) })
	if err != nil {
		return nil, err
	}
	return EncodeAnswer(answer)
}

// sessionOf returns the session of a command with that key.
func sessionOf(key string) string { return session.Hash("command " + key) }

// closeConsult ends the claim of a command that has its answer and does not come back for it. Until then
// the answer cannot be removed.
func (d *Daemon) closeConsult(_ context.Context, p control.ConsultKey, _ Progress) (any, error) {
	if p.Key != "" {
		d.Consults.Closed(sessionOf(p.Key), "")
	}
	return struct{}{}, nil
}

// handleConsult returns the handler of a command about one consult, which do answers. The
// notes that do reports go to the command line as progress.
func (d *Daemon) handleConsult(
	do func(ctx context.Context, id string, progress func(note string)) (*answer.Answer, error),
) Handler {
	return handle(func(ctx context.Context, p control.ConsultID, progress Progress) (any, error) {
		answer, err := do(ctx, p.ID, func(note string) { progress(control.Progress{Message: note}) })
		if err != nil {
			return nil, err
		}
		return EncodeAnswer(answer)
	})
}

// EncodeAnswer returns the answer of a consult as the command line gets it: the text alone,
// and the value that the tool has with render=json and detail=full. The command line uses it
// without a daemon, too.
func EncodeAnswer(a *answer.Answer) (control.ConsultAnswer, error) {
	raw, err := json.Marshal(a.View(tool.Full))
	return control.ConsultAnswer{Text: a.Text, Value: raw, Fault: a.Fault}, err
}

// removeConsult removes a kept answer. It returns a fault if there is none with that id, if
// the consult has not ended, or if a client may still come back for the answer.
func (d *Daemon) removeConsult(_ context.Context, p control.ConsultID, _ Progress) (any, error) {
	return struct{}{}, d.Consults.Remove(p.ID)
}

// consultCounts returns what status shows of consults: how many there are, what they cost
// today, how much of the subscription is used, and which have lately failed.
func (d *Daemon) consultCounts() control.Consults {
	c := control.Consults{Today: d.Consults.Spendings()}
	c.Running, c.Queued, c.Kept = d.Consults.Counts()
	c.RecentFailures, c.LastFailure = d.Consults.Failures(control.Recent)
	c.Unwritten, c.Unread = d.Consults.BadFiles(control.Recent)
	c.CostsLost = d.Consults.CostsLost()
	if w := d.Consults.Window(); w != nil {
		c.Window = &control.Window{
			Kind: w.Kind, Status: w.Status, Used: w.Used, ResetMS: w.ResetUnixMS, Text: w.String(),
		}
	}
	return c
}

// listConsults returns the consults of all identities: those that wait or run, and those
// whose answers are kept.
func (d *Daemon) listConsults() []control.Consult {
	list := []control.Consult{}
	for _, i := range d.Consults.List(nil) {
		list = append(list, ConsultRow(i))
	}
	return list
}

// ConsultRow returns the row of a consult as the command line gets it. The command line uses
// it without a daemon, too.
func ConsultRow(i answer.Info) control.Consult {
	return control.Consult{
		ID: i.ID, State: string(i.State), Identity: i.Identity, Cwd: i.Cwd, Model: i.Model,
		CreatedMS: i.CreatedUnixMS, TookMS: i.TookMS, CostUSD: i.CostUSD, Code: i.Code, Engine: i.Engine,
		Level: i.Level, EnforcedBy: i.EnforcedBy, Question: i.Question, Panel: i.Panel, Label: i.Label, Note: i.Note,
	}
}
