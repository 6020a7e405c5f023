package consult

import (
	"cmp"
	"context"
	"crypto/rand"
	"path/filepath"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/material"
	"holdline/daemon/consult/request"
	"holdline/daemon/events"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/control"
)

// asking says how a caller asks for a consult.
type asking struct {
	n        int64 // number of the client's line
	attended bool
	confirms bool   // the caller's session will confirm the answer, or report its end
	follows  string // id of the consult that it continues, or ""
	shell    bool   // the user asks on the command line, who sees all consults
	task     *tasks.Asked
}

// begin returns the job or the kept answer of a call that was made before, or else
// makes and queues a job. One of the two results is set. With how.attended the job
// counts the caller as attending.
//
// It checks everything that can be refused before it makes the job: arguments, budget,
// program, level and context. An error is a fault, and then nothing is left behind. The
// check of the budget here only refuses early; [Manager.admit] reserves what the run may
// cost, and [Manager.compose] looks again when the job has its slot.
func (m *Manager) begin(
	ctx context.Context, c tool.Caller, how asking, a *request.Arguments,
) (*job.Job, *answer.Answer, error) {
	session, n := c.Session, how.n
	if session == "" || n == 0 {
		session, n = rand.Text(), 1 // a caller that does not number its calls: none of them can repeat another
	}
	id := jobdir.ID(session, n)
	if j, a, err := m.known(id, how.attended); j != nil || a != nil || err != nil {
		return j, a, err
	}
	cfg := m.config.Load()
	rec := jobdir.Record{ID: id, Session: session, N: n}
	seats, err := a.Seats()
	if err != nil {
		return nil, nil, err
	}
	var j *job.Job
	if seats != nil {
		j, err = m.beginPanel(ctx, &c, cfg, how, a, rec, seats)
	} else {
		var eng engine.Engine
		if j, eng, err = m.prepare(ctx, &c, cfg, how, a, rec, nil); err == nil {
			err = m.enqueue(cfg, j, eng)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return j, nil, nil
}

// prepare checks a request and makes its job, which no other goroutine knows yet. rec has the
// id, the session and the line. shared is the record of another member of the same panel, whose
// context the job gets as well; with nil the context is gathered.
func (m *Manager) prepare(
	ctx context.Context, c *tool.Caller, cfg *config.Config, how asking, a *request.Arguments, rec jobdir.Record,
	shared *jobdir.Record,
) (*job.Job, engine.Engine, error) {
	set := &cfg.Consult
	name := cmp.Or(a.Engine, set.Engine)
	eng, err := m.engine(name)
	if err != nil {
		return nil, nil, err
	}
	reader := &material.Reader{Home: m.opt.Home, Roots: set.Roots, Project: c.Place(), Variable: m.opt.Variable}
	req, timeout, err := a.Resolve(set, reader, c.Cwd, eng)
	if err == nil {
		timeout, err = a.Permit(set, c.Identity, name, &req, timeout)
	}
	if err != nil {
		return nil, nil, err
	}
	if a.Session != "" && !how.shell {
		if err := m.continues(c, a.Session); err != nil {
			return nil, nil, err
		}
	}
	if _, err := m.afford(cfg, c.Identity, rec.Session, eng, req); err != nil {
		m.opt.Log.InfoContext(ctx, "consult refused by a budget", "identity", c.Identity, "err", err,
			"event", events.NewBad(control.Refused, "", "a consult of %s was refused: %v", c.Identity, err))
		return nil, nil, err
	}
	info, err := eng.Check(ctx)
	if err != nil {
		err = engine.NameLacking(err, eng, c.Logins)
		m.failures.Failed(time.Now(), err)
		return nil, nil, err
	}
	// The level is checked before git and the files are: they take longer.
	if err := request.Enforceable(&req, &info); err != nil {
		return nil, nil, err
	}
	var given *material.Context
	if shared != nil {
		req.Prompt, given = shared.Request.Prompt, shared.Context
	} else if given, err = reader.Gather(ctx, &req, a.Files, a.Diff); err != nil {
		return nil, nil, err
	}
	if err := eng.Fits(req); err != nil { // the context counts
		return nil, nil, err
	}
	cmd := eng.Command(req, info)
	now := time.Now()
	rec.Version, rec.Identity, rec.Project, rec.Client = jobdir.Version, c.Identity, c.Project, c.Client
	rec.Attended, rec.Task, rec.Engine, rec.EngineVersion = how.attended, how.task, name, info.Version
	rec.CreatedUnixMS, rec.CreatedBootMS, rec.BootID = now.UnixMilli(), bootclock.AtMS(now), bootclock.ID()
	rec.TimeoutMS, rec.WaitMS = timeout.Milliseconds(), a.Wait(set).Milliseconds()
	rec.Request, rec.AskedBytes, rec.Context = req, len(a.Prompt), given
	rec.Follows = how.follows
	rec.Level, rec.EnforcedBy, rec.Notes = cmd.Level, cmd.EnforcedBy, cmd.Notes
	rec.ClientPID, rec.ClientStart = c.PID, c.Start
	return m.makeJob(rec, how, now), eng, nil
}

// makeJob returns a new job, which the caller attends if how says so. A member of a panel has no
// client of its own.
func (m *Manager) makeJob(rec jobdir.Record, how asking, now time.Time) *job.Job {
	j := job.New(m.life, rec, filepath.Join(m.opt.Dir, rec.ID))
	j.Created = now // in full
	if rec.Panel != "" {
		return j
	}
	j.Claim = &job.Claim{Key: j.Rec.Key()}
	if how.attended {
		j.Attend()
	}
	if !how.confirms {
		j.Claim.Expires = now.Add(m.opt.Return)
	}
	return j
}
