package consult

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// spareTime is how much longer than its ladder the process of a run may take.
const spareTime = 30 * time.Second

// hardTime returns how long the process of a run may live.
func (m *Manager) hardTime(j *Job) time.Duration { return j.timeout + m.opt.Ladder.Whole() + spareTime }

// maxBegins is how often a daemon begins a consult whose workers are lost before their processes are told
// anything.
const maxBegins = 5

// drive makes the call of the engine process, or goes on with that of an earlier daemon, and ends the
// job with what came of it, unless the job is left to the next daemon. If the worker is lost before its process
// was told anything, drive begins again.
func (m *Manager) drive(j *Job) {
	left, again := false, true
	for begins := 1; again; begins++ {
		again = false
		m.opt.Host.Call(j.life, m.callOf(j), func(e private.End) {
			if left = e.Left; left {
				return
			}
			action := m.decide(j, &e, begins < maxBegins)
			if again = action == calls.Dispatch; again {
				m.opt.Log.Warn("worker of a consult lost before it was told anything: the consult begins again",
					"consult", j.Rec.ID, "err", e.Lost)
				j.adopted = false
				return
			}
			out := m.outcome(j, &e, action)
			for _, name := range out.Unwritten {
				m.noteUnwritten(j.Dir, name)
			}
			m.end(j, out, j.endedAt(&e, out.EndedUnixMS), true)
			faultpoint.At("consult.told")
		})
	}
	if !left {
		faultpoint.At("consult.released")
		m.clear(j.Dir)
	}
}

// callOf returns the call of a job's engine process.
func (m *Manager) callOf(j *Job) *private.Call {
	return &private.Call{
		Dir: j.Dir, Argv: []string{m.opt.Exe, "engine", j.Rec.Engine}, Name: j.Rec.Engine,
		Record: calls.Record{
			N: j.Rec.N, Session: j.Rec.Session, Name: engine.Tool, Contract: string(tool.NeverReplay),
			Identity: j.Rec.Identity, DeadlineBootMS: bootclock.AtMS(j.created.Add(j.timeout)),
		},
		Limit: m.hardTime(j), Grace: m.opt.Ladder.CancelGrace,
		Adopt:    j.adopted,
		Compose:  func(ctx context.Context) (any, []string, error) { return m.compose(ctx, j) },
		Progress: func(params json.RawMessage) { m.heard(j, params) },
		Cancel:   j.stop, Cancelled: func() { m.cancelling(j) },
	}
}

// decide returns what the law says about a run that is over: see [calls.Decide]. again says that it may begin
// once more, if its process was told nothing.
func (m *Manager) decide(j *Job, e *private.End, again bool) calls.Action {
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(j.Dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	return calls.Decide(calls.Facts{
		Pending: m.whyOf(j) == "", Private: true, Started: true, Call: true,
		Answered: e.Result != nil || there(engine.FileOutcome),
		Taken:    e.Lost == nil || m.wasTold(j),
		Begun:    there(engine.FileTranscript),
		Killed:   e.Lost != nil || e.Exit == process.Exit{},
		Again:    again && j.Rec.IsOfThisBoot(),
	})
}

// wasTold reports whether the process of a job's dead worker may have been told of the job. It waits while that
// cannot be read for an error that passes.
func (m *Manager) wasTold(j *Job) bool {
	told := true
	err := ownfile.Patiently(j.life, time.Now(), func() (err error) {
		told, err = jobdir.Told(j.Dir)
		return err
	})
	return told || err != nil
}

// compose returns the arguments of the call and the environment of the process, as the configuration
// is when the job leaves the queue.
func (m *Manager) compose(ctx context.Context, j *Job) (*engine.Params, []string, error) {
	eng, err := m.engine(j.Rec.Engine)
	if err != nil {
		return nil, nil, err
	}
	info, err := look(ctx, eng)
	req := j.Rec.Request
	if err == nil {
		err = request.Enforceable(&req, &info) // it was permitted when it was asked for
	}
	if err == nil {
		req.MaxUSD, err = m.affordQueued(m.config.Load(), j, eng, req)
	}
	if err == nil {
		m.mu.Lock()
		j.maxUSD = req.MaxUSD
		m.mu.Unlock()
		err = j.setLevel(eng.Command(req, info), info.Version)
	}
	if err == nil {
		req.TempDir, err = jobdir.MakeTemp(j.Dir, m.opt.SocketDir, req.Level)
	}
	if err != nil {
		return nil, nil, err
	}
	environ, configured := eng.Environ()
	j.setNote("started")
	return &engine.Params{
		Version: engine.Version, Request: req, TimeoutMS: j.timeout.Milliseconds(), Program: &info, Dir: j.Dir,
		Mask: configured, Ladder: &m.opt.Ladder,
	}, environ, nil
}

// heard records the progress of a run.
func (m *Manager) heard(j *Job, params json.RawMessage) {
	var said struct {
		Message string                     `json:"message"`
		Meta    map[string]engine.Progress `json:"_meta"`
	}
	if json.Unmarshal(params, &said) != nil {
		return
	}
	p := said.Meta[engine.MetaProgress]
	m.window.Keep(p.Window)
	m.mu.Lock()
	defer m.mu.Unlock()
	j.note, j.session, j.turn = said.Message, p.Session, max(j.turn, p.Turn)
	if p.Model != "" {
		j.model = p.Model
	}
	if p.CostUSD != nil {
		j.cost = p.CostUSD
	}
}

// cancelling writes to disk that a job is being cancelled, before its process is told.
func (m *Manager) cancelling(j *Job) {
	m.mu.Lock()
	j.endLocked("it was being cancelled when the daemon ended") // unless another reason is known
	j.Rec.Ending, j.note = j.why, "cancelling"
	m.mu.Unlock()
	if err := j.write(); err != nil {
		m.opt.Log.Error("cancellation of a consult cannot be written", "consult", j.Rec.ID, "err", err)
	}
}

// endedAt returns when a run has ended: now, or what its files say of one of an earlier daemon.
func (j *Job) endedAt(e *private.End, unixMS int64) time.Time {
	now, at := time.Now(), j.sign
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

// outcome returns what came of a run: what its process has written, else its result, else what its
// transcript and its end say, about which the law says action.
func (m *Manager) outcome(j *Job, e *private.End, action calls.Action) engine.Outcome {
	switch {
	case e.Generation > 0:
	case j.adopted:
		out, err := jobdir.ReadOutcome(j.Dir)
		if err != nil { // else it counts, whatever became of the worker
			out = engine.Outcome{Fault: fault.New(fault.OutcomeUnknown, fault.Worker, operation,
				"the consult was begun by an earlier daemon, and what became of it is not known: %v", e.Err)}
			m.nameOutcome(out.Fault, err)
		}
		return out
	default:
		return engine.Outcome{Fault: fault.From(e.Err, fault.Worker, operation)}
	}
	out, err := jobdir.ReadOutcome(j.Dir)
	if err != nil {
		var result struct {
			Outcome engine.Outcome `json:"structuredContent"`
		}
		if json.Unmarshal(e.Result, &result) == nil && result.Outcome.Version == engine.Version {
			out = result.Outcome
		} else {
			out = m.reconstruct(j, e, action)
			m.nameOutcome(out.Fault, err)
		}
	}
	if out.Fault != nil && out.Fault.Fault.Generation == 0 {
		out.Fault.Fault.Generation = e.Generation
	}
	return out
}

// reconstruct returns the outcome of a run that has left neither a whole outcome.json nor a result.
func (m *Manager) reconstruct(j *Job, e *private.End, action calls.Action) engine.Outcome {
	said, err := engine.ReadTranscript(j.Dir)
	if err != nil {
		m.opt.Log.Error("transcript of a consult cannot be read", "consult", j.Rec.ID, "err", err)
	}
	out := engine.Outcome{
		Answer: said.Text, Partial: said.Text != "", Session: said.Session, CostUSD: said.CostUSD, Turns: said.Turns,
		Level: said.Start.Level, EnforcedBy: said.Start.EnforcedBy, Notes: said.Start.Notes, Argv: said.Start.Argv,
	}
	if said.Model != "" {
		out.Models = []string{said.Model}
	}
	failed := func(code fault.Code, stage fault.Stage, format string, args ...any) *fault.Record {
		f := fault.New(code, stage, operation, format, args...)
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
	switch {
	case m.whyOf(j) != "":
		out.Fault = failed(fault.Cancelled, fault.Engine, "the consult was cancelled")
	case e.Exit.SpawnErrno != "":
		out.Fault = failed(fault.SpawnFailure, fault.Worker, "the engine process cannot be started: %s", e.Exit)
	case !said.Began && err == nil && e.Err != nil:
		out.Fault = fault.From(fmt.Errorf("calling the engine process: %w", e.Err), fault.Worker, operation)
	case !said.Began && err == nil:
		out.Fault = failed(fault.ProcessFailure, fault.Worker,
			"the consult's worker or engine process was lost before its program was told anything")
	case action != calls.Fail:
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
