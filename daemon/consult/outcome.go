package consult

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
	"holdline/daemon/hosted/private"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// spareTime is added to what a run can take by its own ladder, see [Manager.hardTime].
const spareTime = 30 * time.Second

// drive runs the job from its slot to the end of its process. It keeps the answer
// before it releases the worker, since the worker's output may be the only copy. If the
// next daemon is to go on with the job, drive returns without an answer.
func (m *Manager) drive(j *job) {
	left := false
	m.opt.Host.Call(j.life, &private.Call{
		Dir: j.dir, Argv: []string{m.opt.Exe, "engine", j.rec.Engine}, Name: j.rec.Engine,
		Record: calls.Record{
			N: j.rec.N, Session: j.rec.Session, Name: engine.Tool, Contract: string(tool.NeverReplay),
			Identity:       j.rec.Identity,
			DeadlineBootMS: bootclock.AtMS(j.created.Add(j.timeout)),
		},
		Limit: m.hardTime(j), Grace: m.opt.Ladder.CancelGrace,
		Adopt:    j.adopted,
		Compose:  func(ctx context.Context) (any, []string, error) { return m.compose(ctx, j) },
		Progress: func(params json.RawMessage) { m.heard(j, params) },
		Cancel:   j.stop, Cancelled: func() { m.cancelling(j) },
	}, func(e private.End) {
		if left = e.Left; !left {
			out := m.outcome(j, &e)
			m.finish(j, out, ended(j, &e, out.EndedUnixMS), true)
			faultpoint.At("consult.told")
		}
	})
	if left {
		return
	}
	faultpoint.At("consult.released")
	m.clear(j.dir)
}

// compose returns the arguments of the call as of now, and the environment of the
// engine process. Since the consult was asked for, other consults may have spent the
// budget, and the program may have been updated; so it checks both again. The error is
// a fault.
func (m *Manager) compose(ctx context.Context, j *job) (*engine.Params, []string, error) {
	eng, err := m.engine(j.rec.Engine)
	if err != nil {
		return nil, nil, err
	}
	info, err := eng.Check(ctx)
	if err != nil {
		return nil, nil, err
	}
	req := j.rec.Request
	if err := permit(&req, &info); err != nil { // it was permitted when it was asked for
		return nil, nil, err
	}
	if req.MaxUSD, err = m.affordQueued(m.config.Load(), j, eng, req); err != nil {
		return nil, nil, err
	}
	j.maxUSD = req.MaxUSD
	if err := j.setLevel(eng.Command(req, info), info.Version); err != nil {
		return nil, nil, err
	}
	if req.TempDir, err = jobdir.MakeTemp(j.dir, m.opt.SocketDir, req.Level); err != nil {
		return nil, nil, err
	}
	environ, configured := eng.Environ()
	j.setNote("started")
	return &engine.Params{
		Version: engine.Version, Request: req, TimeoutMS: j.timeout.Milliseconds(), Program: &info, Dir: j.dir,
		Mask: configured, Ladder: &m.opt.Ladder,
	}, environ, nil
}

// heard keeps what a progress notification of the engine process says.
func (m *Manager) heard(j *job, params json.RawMessage) {
	var p struct {
		Message string                     `json:"message"`
		Meta    map[string]engine.Progress `json:"_meta"`
	}
	if json.Unmarshal(params, &p) == nil {
		m.keepWindow(p.Meta[engine.MetaProgress].Window)
		j.progress(p.Message, p.Meta[engine.MetaProgress])
	}
}

// cancelling records that the job is being cancelled.
func (m *Manager) cancelling(j *job) {
	j.end("it was being cancelled when the daemon ended") // unless another reason is known
	if err := j.setEnding(); err != nil {
		m.opt.Log.Error("cancellation of a consult cannot be written", "consult", j.rec.ID, "err", err)
	}
	j.setNote("cancelling")
}

// ended returns when the run ended. An adopted run may have ended long before this
// daemon saw it, so ended takes the best record of that: the time in the outcome
// (unixMS), that of the exit, or that of the last file. It returns now for a run of this
// daemon, and if the time makes no sense since a clock was set.
func ended(j *job, e *private.End, unixMS int64) time.Time {
	now := time.Now()
	at := j.sign
	switch {
	case unixMS > 0:
		at = time.UnixMilli(unixMS)
	case e.Exit.UnixMS > 0:
		at = time.UnixMilli(e.Exit.UnixMS)
	}
	if !j.adopted || at.IsZero() || at.After(now) || at.Before(j.created) { // clocks are set
		return now
	}
	return at
}

// outcome returns what came of the run: the file that the engine process wrote, else
// its result, else what transcript and worker say. The process and its worker are gone
// by now, so none of these can change any more.
func (m *Manager) outcome(j *job, e *private.End) engine.Outcome {
	switch {
	case e.Generation > 0:
	case j.adopted:
		return engine.Outcome{Fault: unknown(e.Err)}
	default:
		return engine.Outcome{Fault: fault.From(e.Err, fault.Worker, operation)}
	}
	out, err := readOutcome(j.dir)
	var result struct {
		Outcome engine.Outcome `json:"structuredContent"`
	}
	switch {
	case err == nil:
	case json.Unmarshal(e.Result, &result) == nil && result.Outcome.Version == engine.Version:
		out = result.Outcome
	default:
		if !errors.Is(err, fs.ErrNotExist) {
			m.opt.Log.Error("outcome of a consult cannot be read", "consult", j.rec.ID, "err", err)
		}
		out = m.reconstruct(j, e)
	}
	for _, name := range out.Unwritten {
		m.failures.Unwritten(j.dir, name)
	}
	request.Judge(&out, j.rec.Request.Schema)
	if out.Fault != nil && out.Fault.Fault.Generation == 0 {
		out.Fault.Fault.Generation = e.Generation
	}
	return out
}

// readOutcome reads outcome.json of a job's directory.
func readOutcome(dir string) (engine.Outcome, error) {
	var out engine.Outcome
	err := jobdir.Read(dir, engine.FileOutcome, &out, &out.Version, engine.Version)
	return out, err
}

// reconstruct returns the outcome of a run whose engine process died without
// one. What the model had said, the session and the cost come from the
// transcript. The call is never made again.
func (m *Manager) reconstruct(j *job, e *private.End) engine.Outcome {
	said, err := engine.ReadTranscript(j.dir)
	if err != nil {
		m.opt.Log.Error("transcript of a consult cannot be read", "consult", j.rec.ID, "err", err)
	}
	out := engine.Outcome{
		Answer: said.Text, Partial: said.Text != "", Session: said.Session, CostUSD: said.CostUSD, Turns: said.Turns,
		Level: said.Start.Level, EnforcedBy: said.Start.EnforcedBy, Notes: said.Start.Notes, Argv: said.Start.Argv,
	}
	if said.Model != "" {
		out.Models = []string{said.Model}
	}
	failed := func(code fault.Code, stage fault.Stage, format string, args ...any) *fault.Record {
		return explain(e, fault.New(code, stage, operation, format, args...))
	}
	switch {
	case j.ending():
		out.Fault = failed(fault.Cancelled, fault.Engine, "the consult was cancelled")
	case e.Exit.SpawnErrno != "":
		out.Fault = failed(fault.SpawnFailure, fault.Worker, "the engine process cannot be started: %s", e.Exit)
	case e.Err != nil && !said.Began:
		out.Fault = fault.From(fmt.Errorf("calling the engine process: %w", e.Err), fault.Worker, operation)
	case !said.Began && err == nil:
		out.Fault = failed(fault.ProcessFailure, fault.Worker,
			"the consult's worker or engine process was lost before its program was told anything")
	case e.Lost != nil || e.Exit == process.Exit{}:
		detail := ""
		if e.Lost != nil {
			detail = ": " + e.Lost.Fault.Detail
		}
		out.Fault = failed(fault.OutcomeUnknown, fault.Worker,
			"the consult's worker was lost, and what it did is unknown; it is not run again by itself%s", detail)
	default:
		out.Fault = failed(fault.ProcessFailure, fault.Engine,
			"the engine process ended (%s) before there was an answer", e.Exit)
	}
	return out
}

// explain adds to a fault what is known of the process or of its lost worker.
func explain(e *private.End, f *fault.Record) *fault.Record {
	if e.Lost != nil {
		f.Fault.Generation, f.Cause = e.Lost.Fault.Generation, e.Lost.Cause
		return f
	}
	exit := engine.Exit{Known: e.Exit != process.Exit{}, Signal: e.Exit.Signal, SpawnErrno: e.Exit.SpawnErrno}
	if e.Exit.Code != nil {
		exit.Code = *e.Exit.Code
	}
	return exit.Explain(fault.Killed, f)
}
