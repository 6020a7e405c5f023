package consult

import (
	"context"
	"encoding/json"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/outcome"
	"holdline/daemon/consult/request"
	"holdline/daemon/hosted/private"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/faultpoint"
)

// spareTime is added to what a run can take by its own ladder, see [Manager.hardTime].
const spareTime = 30 * time.Second

// drive runs the job from its slot to the end of its process. It keeps the answer
// before it releases the worker, since the worker's output may be the only copy. If the
// next daemon is to go on with the job, drive returns without an answer.
func (m *Manager) drive(j *job.Job) {
	left := false
	m.opt.Host.Call(j.Life, &private.Call{
		Dir: j.Dir, Argv: []string{m.opt.Exe, "engine", j.Rec.Engine}, Name: j.Rec.Engine,
		Record: calls.Record{
			N: j.Rec.N, Session: j.Rec.Session, Name: engine.Tool, Contract: string(tool.NeverReplay),
			Identity:       j.Rec.Identity,
			DeadlineBootMS: bootclock.AtMS(j.Created.Add(j.Timeout)),
		},
		Limit: m.hardTime(j), Grace: m.opt.Ladder.CancelGrace,
		Adopt:    j.Adopted,
		Compose:  func(ctx context.Context) (any, []string, error) { return m.compose(ctx, j) },
		Progress: func(params json.RawMessage) { m.heard(j, params) },
		Cancel:   j.Stop, Cancelled: func() { m.cancelling(j) },
	}, func(e private.End) {
		if left = e.Left; !left {
			run := outcome.Run{
				Log: m.opt.Log, ID: j.Rec.ID, Dir: j.Dir, Schema: j.Rec.Request.Schema, Adopted: j.Adopted,
				Cancelled: j.Ending(), Created: j.Created, Sign: j.Sign,
			}
			out := run.Read(&e)
			for _, name := range out.Unwritten {
				m.failures.Unwritten(j.Dir, name)
			}
			m.finish(j, out, run.Ended(&e, out.EndedUnixMS), true)
			faultpoint.At("consult.told")
		}
	})
	if left {
		return
	}
	faultpoint.At("consult.released")
	m.clear(j.Dir)
}

// compose returns the arguments of the call as of now, and the environment of the
// engine process. Since the consult was asked for, other consults may have spent the
// budget, and the program may have been updated; so it checks both again. The error is
// a fault.
func (m *Manager) compose(ctx context.Context, j *job.Job) (*engine.Params, []string, error) {
	eng, err := m.engine(j.Rec.Engine)
	if err != nil {
		return nil, nil, err
	}
	info, err := eng.Check(ctx)
	if err != nil {
		return nil, nil, err
	}
	req := j.Rec.Request
	if err := request.Enforceable(&req, &info); err != nil { // it was permitted when it was asked for
		return nil, nil, err
	}
	if req.MaxUSD, err = m.affordQueued(m.config.Load(), j, eng, req); err != nil {
		return nil, nil, err
	}
	j.MaxUSD = req.MaxUSD
	if err := j.SetLevel(eng.Command(req, info), info.Version); err != nil {
		return nil, nil, err
	}
	if req.TempDir, err = jobdir.MakeTemp(j.Dir, m.opt.SocketDir, req.Level); err != nil {
		return nil, nil, err
	}
	environ, configured := eng.Environ()
	j.SetNote("started")
	return &engine.Params{
		Version: engine.Version, Request: req, TimeoutMS: j.Timeout.Milliseconds(), Program: &info, Dir: j.Dir,
		Mask: configured, Ladder: &m.opt.Ladder,
	}, environ, nil
}

// heard keeps what a progress notification of the engine process says.
func (m *Manager) heard(j *job.Job, params json.RawMessage) {
	var p struct {
		Message string                     `json:"message"`
		Meta    map[string]engine.Progress `json:"_meta"`
	}
	if json.Unmarshal(params, &p) == nil {
		m.window.Keep(p.Meta[engine.MetaProgress].Window)
		j.Progress(p.Message, p.Meta[engine.MetaProgress])
	}
}

// cancelling records that the job is being cancelled.
func (m *Manager) cancelling(j *job.Job) {
	j.End("it was being cancelled when the daemon ended") // unless another reason is known
	if err := j.SetEnding(); err != nil {
		m.opt.Log.Error("cancellation of a consult cannot be written", "consult", j.Rec.ID, "err", err)
	}
	j.SetNote("cancelling")
}

// hardTime is how long the process of a job may take: a process that takes longer than
// its own ladder is stuck, and its worker ends it.
func (m *Manager) hardTime(j *job.Job) time.Duration {
	return j.Timeout + m.opt.Ladder.Whole() + spareTime
}
