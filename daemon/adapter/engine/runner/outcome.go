package runner

import (
	"cmp"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/form"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// outcome returns what came of the run. err is why no program was started, or nil.
// Secrets are removed from the fault's text.
func (r *run) outcome(err error) engine.Outcome {
	var out engine.Outcome
	switch {
	case err != nil && r.why == engine.Cancelled:
		out.Fault = fault.New(fault.Cancelled, fault.Engine, engine.Operation,
			"the consult was cancelled before its program was started")
	case err != nil:
		f := fault.Exhausted(engine.Operation, err)
		if f == nil {
			f = fault.From(err, fault.Engine, engine.Operation)
		}
		out.Fault = f
	default:
		last := r.said()
		out = *added(r.ear.past, &last)
	}
	now := time.Now()
	out.Version, out.Why = engine.Version, r.why
	out.Level, out.EnforcedBy, out.Notes, out.Argv = r.cmd.Level, r.cmd.EnforcedBy, r.cmd.Notes, r.cmd.Argv
	out.EngineVersion = cmp.Or(out.EngineVersion, r.info.Version)
	out.BeganUnixMS, out.EndedUnixMS, out.DurationMS = r.began.UnixMilli(), now.UnixMilli(),
		now.Sub(r.began).Milliseconds()
	if r.exit != (process.Exit{}) {
		out.Exit = r.exit.String()
	}
	form.Judge(&out, r.params.Schema)
	r.maskOutcome(&out)
	switch {
	case out.Fault == nil:
		out.State = engine.Done
	case out.Fault.Fault.Code == fault.Cancelled:
		out.State = engine.Aborted
	default:
		out.State = engine.Failed
	}
	return out
}

// maskOutcome replaces secrets in the texts of an outcome: a model can print what it finds in the
// environment of its program, or in a file.
func (r *run) maskOutcome(out *engine.Outcome) {
	out.Answer = r.hide.Replace(out.Answer)
	out.Structured = r.hide.inJSON(out.Structured, true)
	// Numbers in these count and say when: they are no secrets.
	out.ModelUsage, out.RateLimit = r.hide.inJSON(out.ModelUsage, false), r.hide.inJSON(out.RateLimit, false)
	if out.Fault != nil {
		out.Fault.Fault.Detail = r.hide.Replace(out.Fault.Fault.Detail)
	}
}

// said returns what the program has said of the run. A cancelled run counts as
// cancelled whatever its program said last; an answer is kept as a partial one. Faults
// of the start get a text that names the argument or the level.
func (r *run) said() engine.Outcome {
	engine.EndOutput(r.talk, r.rest)
	r.rest = nil
	exit := engine.Exit{
		Known: r.exit != process.Exit{}, Signal: r.exit.Signal, SpawnErrno: r.exit.SpawnErrno,
		Stderr: r.errLines,
	}
	if r.exit.Code != nil {
		exit.Code = *r.exit.Code
	}
	out := r.talk.Outcome(exit, r.why)
	switch {
	case r.why == engine.Cancelled:
		f := fault.New(fault.Cancelled, fault.Engine, engine.Operation, "the consult was cancelled")
		out.Fault = exit.Explain("", f)
		out.Partial = out.Answer != ""
	case out.Fault == nil:
	case r.exit.SpawnErrno != "" && r.exit.SpawnOp == "chdir":
		out.Fault = invalid("cwd: %s is not there any more (%s)", r.params.Cwd, r.exit.SpawnErrno)
	case r.exit.SpawnErrno != "" && r.exit.SpawnOp == process.OpConfine:
		out.Fault = fault.New(fault.Denied, fault.Engine, engine.Operation,
			"level %s cannot be enforced on this machine: Landlock refused to confine the program (%s)",
			r.cmd.Level, r.exit.SpawnErrno)
	case r.stop != nil && exit.Signal != "": // the run was ended since the program did not read its prompt
		out.Fault = r.stop
	}
	return out
}
