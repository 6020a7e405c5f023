package consult

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/material"
	"holdline/daemon/consult/request"
	"holdline/daemon/events"
	"holdline/daemon/program"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/control"
)

// asking is how a consult is asked for.
type asking struct {
	n        int64 // number of the client's line
	attended bool
	confirms bool   // the caller's session will confirm the answer, or report its end
	follows  string // id of the consult that it continues, or ""
	shell    bool   // the user asks on the command line, who sees all consults
	task     *tasks.Asked
}

// begin begins a job, or a panel, or returns the one that this line of the client has begun before,
// or its answer.
func (m *Manager) begin(ctx context.Context, c tool.Caller, how asking, a *request.Arguments) (
	*Job, *answer.Answer, error,
) {
	session, n := c.Session, how.n
	if session == "" || n == 0 {
		session, n = rand.Text(), 1 // a caller that does not number its calls: none of them can repeat another
	}
	id := jobdir.ID(session, n)
	if err := m.awaitRead(ctx, id); err != nil {
		return nil, nil, err
	}
	if j, a, err := m.known(id, how.attended); j != nil || a != nil || err != nil {
		return j, a, err
	}
	if err := m.awaitRead(ctx, ""); err != nil { // what all have cost counts
		return nil, nil, err
	}
	cfg := m.config.Load()
	rec := jobdir.Record{ID: id, Session: session, N: n}
	seats, err := a.Seats()
	if err != nil {
		return nil, nil, err
	}
	if seats != nil {
		p, err := m.beginPanel(ctx, &c, cfg, how, a, rec, seats)
		return p, nil, err
	}
	j, eng, err := m.prepare(ctx, &c, cfg, how, a, rec, nil)
	if err == nil {
		err = m.enqueue(cfg, j, eng)
	}
	if err != nil {
		return nil, nil, err
	}
	return j, nil, nil
}

// prepare checks what is asked for, and returns a job of it that is not begun. shared is the record
// of another member of the same panel, whose prompt and context the job has, too; or nil.
func (m *Manager) prepare(
	ctx context.Context, c *tool.Caller, cfg *config.Config, how asking, a *request.Arguments, rec jobdir.Record,
	shared *jobdir.Record,
) (*Job, engine.Engine, error) {
	set := &cfg.Consult
	name := cmp.Or(a.Engine, set.Engine)
	eng, err := m.engine(name)
	if err != nil {
		return nil, nil, err
	}
	if _, isAgent := set.Agent(name); !isAgent && slices.Contains(engines.Names(set), a.Model) {
		return nil, nil, engine.Invalid("model: %s is an engine, and no model of %s; to ask it: engine %[1]s", a.Model, name)
	}
	reader := &material.Reader{Home: m.opt.Home, Roots: set.Roots, Project: c.Place(), Variable: m.opt.Variable}
	req, timeout, err := a.Resolve(set, reader, c.Cwd, eng)
	if err == nil {
		timeout, err = a.Permit(set, c.Identity, name, &req, timeout)
	}
	if err == nil && a.Session != "" && !how.shell {
		err = m.continues(c, a.Session)
	}
	if err != nil {
		return nil, nil, err
	}
	if _, err := m.afford(cfg, c.Identity, rec.Session, eng, req); err != nil {
		m.opt.Log.InfoContext(ctx, "consult refused by a budget", "identity", c.Identity, "err", err,
			"event", events.NewBad(control.Refused, "", "a consult of %s was refused: %v", c.Identity, err))
		return nil, nil, err
	}
	info, err := look(ctx, eng)
	if err != nil {
		err = engine.NameLacking(err, eng, c.Logins)
		m.noteFailure(time.Now(), err)
		return nil, nil, err
	}
	var given *material.Context
	if err = request.Enforceable(&req, &info); err == nil {
		if shared != nil {
			req.Prompt, given = shared.Request.Prompt, shared.Context
		} else {
			given, err = reader.Gather(ctx, &req, a.Files, a.Diff)
		}
	}
	if err == nil {
		err = eng.Fits(req) // the context counts
	}
	if err != nil {
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

// makeJob returns the job of a record, with the claim of its client.
func (m *Manager) makeJob(rec jobdir.Record, how asking, now time.Time) *Job {
	j := m.newJob(rec)
	j.created = now // in full
	if rec.Panel != "" {
		return j
	}
	j.claimed = true
	if how.attended {
		j.attending = 1
	}
	if !how.confirms {
		j.expires = now.Add(m.opt.Return)
	}
	return j
}

// The program of an engine is asked up to lookTries times whether it can be used, within lookTime: a busy machine is
// no reason to refuse a consult.
const (
	lookTries = 3
	lookTime  = 20 * time.Second // of the half minute in which a consult has to start
)

// look returns what is known of an engine's program. It looks again after an error that passes.
func look(ctx context.Context, eng engine.Engine) (info engine.Info, err error) {
	begin := time.Now()
	for range lookTries {
		if info, err = eng.Check(ctx); !program.Passes(err) || time.Since(begin) >= lookTime {
			break
		}
	}
	return info, err
}
