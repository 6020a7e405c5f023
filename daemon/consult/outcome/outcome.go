// Package outcome decides what came of the run of a consult, from what its engine process
// and its worker have left: outcome.json, the result of the call, or the transcript.
package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
	"holdline/daemon/hosted/private"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// A Run is what the daemon knows of a run that has ended, beside what its processes have
// left in Dir.
type Run struct {
	Log       *slog.Logger
	ID        string // of the consult
	Dir       string
	Schema    json.RawMessage // that the answer must fit; nil for none
	Adopted   bool            // an earlier daemon has started it
	Cancelled bool            // this daemon has cancelled it
	Created   time.Time
	Sign      time.Time // of an adopted one with a dead worker: when that last wrote a file
}

// Ended returns when the run ended. An adopted run may have ended long before this
// daemon saw it, so Ended takes the best record of that: the time in the outcome
// (unixMS), that of the exit, or that of the last file. It returns now for a run of this
// daemon, and if the time makes no sense since a clock was set.
func (r *Run) Ended(e *private.End, unixMS int64) time.Time {
	now := time.Now()
	at := r.Sign
	switch {
	case unixMS > 0:
		at = time.UnixMilli(unixMS)
	case e.Exit.UnixMS > 0:
		at = time.UnixMilli(e.Exit.UnixMS)
	}
	if !r.Adopted || at.IsZero() || at.After(now) || at.Before(r.Created) { // clocks are set
		return now
	}
	return at
}

// Read returns what came of the run: the file that the engine process wrote, else its
// result, else what transcript and worker say. The process and its worker must be gone, so
// that none of these can change any more.
func (r *Run) Read(e *private.End) engine.Outcome {
	switch {
	case e.Generation > 0:
	case r.Adopted:
		return engine.Outcome{Fault: fault.New(fault.OutcomeUnknown, fault.Worker, engine.Operation,
			"the consult was begun by an earlier daemon, and what became of it is not known: %v", e.Err)}
	default:
		return engine.Outcome{Fault: fault.From(e.Err, fault.Worker, engine.Operation)}
	}
	var out engine.Outcome
	err := jobdir.Read(r.Dir, engine.FileOutcome, &out, &out.Version, engine.Version)
	var result struct {
		Outcome engine.Outcome `json:"structuredContent"`
	}
	switch {
	case err == nil:
	case json.Unmarshal(e.Result, &result) == nil && result.Outcome.Version == engine.Version:
		out = result.Outcome
	default:
		if !errors.Is(err, fs.ErrNotExist) {
			r.Log.Error("outcome of a consult cannot be read", "consult", r.ID, "err", err)
		}
		out = r.reconstruct(e)
	}
	request.Judge(&out, r.Schema)
	if out.Fault != nil && out.Fault.Fault.Generation == 0 {
		out.Fault.Fault.Generation = e.Generation
	}
	return out
}

// reconstruct returns the outcome of a run whose engine process died without
// one. What the model had said, the session and the cost come from the
// transcript. The call is never made again.
func (r *Run) reconstruct(e *private.End) engine.Outcome {
	said, err := engine.ReadTranscript(r.Dir)
	if err != nil {
		r.Log.Error("transcript of a consult cannot be read", "consult", r.ID, "err", err)
	}
	out := engine.Outcome{
		Answer: said.Text, Partial: said.Text != "", Session: said.Session, CostUSD: said.CostUSD, Turns: said.Turns,
		Level: said.Start.Level, EnforcedBy: said.Start.EnforcedBy, Notes: said.Start.Notes, Argv: said.Start.Argv,
	}
	if said.Model != "" {
		out.Models = []string{said.Model}
	}
	failed := func(code fault.Code, stage fault.Stage, format string, args ...any) *fault.Record {
		return explain(e, fault.New(code, stage, engine.Operation, format, args...))
	}
	switch {
	case r.Cancelled:
		out.Fault = failed(fault.Cancelled, fault.Engine, "the consult was cancelled")
	case e.Exit.SpawnErrno != "":
		out.Fault = failed(fault.SpawnFailure, fault.Worker, "the engine process cannot be started: %s", e.Exit)
	case e.Err != nil && !said.Began:
		out.Fault = fault.From(fmt.Errorf("calling the engine process: %w", e.Err), fault.Worker, engine.Operation)
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
