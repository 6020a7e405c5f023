package consult

import (
	"context"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
)

// A panel is a job with members, which are jobs of their own: they are queued, run, kept and
// paged as any other. The panel's job.json has all that they need and is written first, so a
// daemon that finds the panel makes those members that are missing. The panel itself runs
// nothing: it waits for its members, then starts the judge if there is one, and ends when all
// have ended. The client attends the panel alone; its members are background jobs, and a panel
// that ends early ends them.

// panelName is what stands for the engine of a panel.
const panelName = "panel"

// beginPanel makes, records and starts a panel with its members. Each member is checked first,
// so that an error, which names the member, leaves nothing behind.
func (m *Manager) beginPanel(
	ctx context.Context, c *tool.Caller, cfg *config.Config, how asking, a *request.Arguments, rec jobdir.Record,
	seats []request.Seat,
) (*job.Job, error) {
	var members []*job.Job
	var engs []engine.Engine
	var names []string
	for i, seat := range seats {
		its := a.For(seat, m.engine)
		one := jobdir.Record{
			ID: jobdir.MemberID(rec.Session, rec.N, i), Session: rec.Session, N: rec.N,
			Panel: rec.ID, Label: seat.Label,
		}
		var shared *jobdir.Record
		if i > 0 && seat.Label != request.JudgeLabel {
			shared = &members[0].Rec
		}
		j, eng, err := m.prepare(ctx, c, cfg, asking{shell: how.shell}, &its, one, shared)
		if err != nil {
			return nil, seat.Refused(err)
		}
		members, engs = append(members, j), append(engs, eng)
		if seat.Label != request.JudgeLabel {
			names = append(names, seat.Name)
		}
	}
	of := members[0].Rec
	of.ID, of.Panel, of.Label, of.Attended, of.Task = rec.ID, "", "", how.attended, how.task
	of.Engine, of.EngineVersion, of.Request.Model, of.Notes = panelName, "", strings.Join(names, "+"), nil
	of.Request.MaxUSD = a.MaxUSD // of each
	p := m.makeJob(of, how, time.Now())
	if err := m.admitPanel(cfg, p, members, engs, seats); err != nil {
		return nil, err
	}
	if f := p.Record(); f != nil {
		for _, j := range members {
			if j.Rec.Label != request.JudgeLabel {
				m.withdraw(j, f)
			}
		}
		m.dropPanel(p, f)
		return nil, f
	}
	m.asked(p)
	faultpoint.At("consult.panel")
	for _, j := range members {
		if j.Rec.Label != request.JudgeLabel {
			_ = m.launch(j) // a member that cannot be written down has failed, and the others go on
		}
	}
	m.jobs.Go(func() { m.serve(p) })
	return p, nil
}

// admitPanel makes a panel and its members known, all or none, and queues the members. They
// share what is left of the budgets in US dollars, and each has its place among the day's
// consults; the judge, too, although it is not queued yet. The caller must launch or withdraw
// the members.
func (m *Manager) admitPanel(
	cfg *config.Config, p *job.Job, members []*job.Job, engs []engine.Engine, seats []request.Seat,
) error {
	judged := seats[len(seats)-1].Label == request.JudgeLabel
	identity := p.Rec.Identity
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refusalLocked(); err != nil {
		return err
	}
	if m.live[p.Rec.ID] != nil || slices.ContainsFunc(members, func(j *job.Job) bool {
		return m.live[j.Rec.ID] != nil // of a panel whose record cannot be read
	}) {
		return fault.New(fault.InternalFailure, fault.Host, operation, "the request was asked twice at once")
	}
	if err := m.queue.Room(identity, len(members)); err != nil {
		return err
	}
	left := m.sumsLocked(nil, (*job.Job).Reserved).Left(cfg.Identities[identity].Budget, identity, p.Rec.Session)
	for i, j := range members {
		req := j.Rec.Request
		if each := left / float64(len(members)); each > 0 && (req.MaxUSD == 0 || each < req.MaxUSD) {
			req.MaxUSD = each
		}
		fits := engs[i].Fits(req) == nil
		if fits {
			j.Rec.Request = req
		}
		if !fits || p.Rec.Request.MaxUSD > 0 && req.MaxUSD == 0 {
			p.Rec.Notes = append(p.Rec.Notes, "nothing limits what "+seats[i].Name+" costs, since it reports no cost")
		}
		if err := m.reserveLocked(cfg, j, engs[i]); err != nil {
			for _, done := range members[:i] {
				delete(m.live, done.Rec.ID)
			}
			return seats[i].Refused(err)
		}
		m.live[j.Rec.ID] = j
	}
	recs := make([]jobdir.Record, len(members))
	for i, j := range members {
		recs[i] = j.Rec
		if j.Rec.Label == request.JudgeLabel {
			j.Rec.Request.Prompt, j.Rec.AskedBytes = "", 0 // it comes with the answers
			j.SetNote("waits for the answers of the others")
			continue
		}
		m.queue.Add(j)
		m.jobs.Add(1)
	}
	p.Rec.SetMembers(recs, judged)
	m.live[p.Rec.ID] = p
	m.queue.Start(cfg.Consult.MaxConcurrent)
	return nil
}

// dropPanel takes back a panel that could not be written down, with its judge.
func (m *Manager) dropPanel(p *job.Job, f *fault.Record) {
	dropped := []*job.Job{p}
	m.mu.Lock()
	delete(m.live, p.Rec.ID)
	for i := range p.Rec.Members {
		if judge := m.live[p.Rec.Members[i].ID]; judge != nil { // the others are withdrawn
			delete(m.live, judge.Rec.ID)
			dropped = append(dropped, judge)
		}
	}
	m.mu.Unlock()
	for _, j := range dropped {
		j.Finish(answer.FromOutcome(&j.Rec, &engine.Outcome{Fault: f}, time.Now(), ""))
	}
}

// servePanel takes a panel to its answer. If the next daemon is to go on with it, servePanel
// returns without one.
func (m *Manager) servePanel(p *job.Job) {
	p.Begin()
	m.makeMembers(p)
	if p.Life.Err() != nil {
		return // before all members were made: the next daemon makes them
	}
	stop, of := p.Stop, len(p.Rec.Members)
	if p.Rec.Judged {
		of--
	}
	for i := range p.Rec.Members {
		if i < of {
			p.SetNote("%d of %d have ended", i, of)
		} else if !m.startJudge(p) {
			break
		}
		if !m.awaitMember(p, p.Rec.Members[i].ID, &stop) {
			return
		}
	}
	now := time.Now()
	a := answer.Panel(&p.Rec, m.members(p), answer.Done)
	why := ""
	if *a.Answered < of {
		why = p.WhyStopped()
	}
	a.End(now, why)
	entry := m.store(p, a)
	faultpoint.At("consult.panelkept")
	m.retire(p, a, entry, now, false)
}

// makeMembers makes the members of a panel that an earlier daemon has not made any more. After
// another start of the machine it makes none, as with consults that never began. A judge is made
// known, and started later.
func (m *Manager) makeMembers(p *job.Job) {
	for i := range p.Rec.Members {
		rec := p.Rec.Member(i)
		judge := rec.Label == request.JudgeLabel
		m.mu.Lock()
		missing := p.Rec.IsOfThisBoot() && m.refusalLocked() == nil && m.live[rec.ID] == nil && m.kept[rec.ID] == nil
		var j *job.Job
		if missing {
			j = m.makeJob(rec, asking{}, rec.Created())
			if p.Ending() {
				j.End("its panel was cancelled")
			}
			m.live[rec.ID] = j
			if !judge {
				m.queue.Add(j)
				m.queue.Start(m.config.Load().Consult.MaxConcurrent)
				m.jobs.Add(1)
			}
		}
		m.mu.Unlock()
		if missing && !judge {
			_ = m.launch(j) // a member that cannot be written down has failed
		}
	}
}

// awaitMember blocks until a member has ended. It ends all members when the panel is asked to
// end, and then sets stop to nil. It returns false if the panel is left to the next daemon.
func (m *Manager) awaitMember(p *job.Job, id string, stop *chan struct{}) bool {
	m.mu.Lock()
	j := m.live[id]
	m.mu.Unlock()
	for j != nil {
		select {
		case <-j.Done:
			return true
		case <-p.Life.Done():
			return false
		case <-*stop:
			*stop = nil
			m.cancelling(p)
			for i := range p.Rec.Members {
				m.mu.Lock()
				one := m.live[p.Rec.Members[i].ID]
				m.mu.Unlock()
				if one != nil {
					one.End("its panel was cancelled")
				}
			}
		}
	}
	return true
}

// startJudge queues the judge of a panel whose other members have ended, unless an earlier daemon
// has done that. It returns false if there is nothing to judge, or the panel is being ended.
func (m *Manager) startJudge(p *job.Job) bool {
	last := len(p.Rec.Members) - 1
	m.mu.Lock()
	j := m.live[p.Rec.Members[last].ID]
	m.mu.Unlock()
	if j == nil || j.Rec.Request.Prompt != "" { // only this goroutine writes it
		return true
	}
	answers := m.members(p)[:last]
	answered := answer.Answered(answers)
	if answered < 2 || p.Ending() {
		m.mu.Lock()
		delete(m.live, j.Rec.ID)
		m.mu.Unlock()
		why := "fewer than two members have answered"
		if answered >= 2 {
			why = "its panel is ending"
		}
		f := fault.New(fault.Cancelled, fault.Host, operation, "the judge was not asked: %s", why)
		j.Finish(answer.FromOutcome(&j.Rec, &engine.Outcome{Fault: f}, time.Now(), f.Fault.Detail))
		return false
	}
	j.SetPrompt(answer.JudgePrompt(&p.Rec, answers))
	p.SetNote("the judge compares %d answers", answered)
	m.mu.Lock()
	m.queue.Add(j)
	m.queue.Start(m.config.Load().Consult.MaxConcurrent)
	m.jobs.Add(1)
	m.mu.Unlock()
	_ = m.launch(j) // without it, the panel has the answers of the others
	return true
}

// members returns the answers of a panel's members, in their order; of those that have not
// ended, how far they are. A judge that was not asked is left out.
func (m *Manager) members(p *job.Job) []*answer.Answer {
	var all []*answer.Answer
	for i := range p.Rec.Members {
		id := p.Rec.Members[i].ID
		m.mu.Lock()
		j, k, unwritten := m.live[id], m.kept[id], m.kept.UnwrittenOf(id)
		m.mu.Unlock()
		var a *answer.Answer
		var err error
		switch {
		case j != nil:
			a, _ = j.Status()
		case k != nil:
			a, err = m.read(id, unwritten)
		}
		if a == nil && p.Rec.Members[i].Label == request.JudgeLabel {
			continue
		}
		if a == nil {
			rec := p.Rec.Member(i)
			if err == nil {
				err = fault.New(fault.ProcessFailure, fault.Host, operation,
					"it was not begun, or its answer is not kept")
			}
			a = answer.FromOutcome(&rec, &engine.Outcome{Fault: fault.From(err, fault.Host, operation)}, time.Now(), "")
		}
		all = append(all, a)
	}
	return all
}
