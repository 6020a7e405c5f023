package consult

import (
	"context"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
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
) (*job, error) {
	var members []*job
	var engs []engine.Engine
	var names []string
	for i, seat := range seats {
		its := a.For(seat, m.engine)
		one := jobdir.Record{
			ID: jobdir.MemberID(rec.Session, rec.N, i), Session: rec.Session, N: rec.N, Panel: rec.ID, Label: seat.Label,
		}
		var shared *jobdir.Record
		if i > 0 && seat.Label != request.JudgeLabel {
			shared = &members[0].rec
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
	of := members[0].rec
	of.ID, of.Panel, of.Label, of.Attended, of.Task = rec.ID, "", "", how.attended, how.task
	of.Engine, of.EngineVersion, of.Request.Model, of.Notes = panelName, "", strings.Join(names, "+"), nil
	of.Request.MaxUSD = a.MaxUSD // of each
	p := m.makeJob(of, how, time.Now())
	if err := m.admitPanel(cfg, p, members, engs, seats); err != nil {
		return nil, err
	}
	if f := p.record(); f != nil {
		for _, j := range members {
			if j.rec.Label != request.JudgeLabel {
				m.withdraw(j, f)
			}
		}
		m.dropPanel(p, f)
		return nil, f
	}
	faultpoint.At("consult.panel")
	for _, j := range members {
		if j.rec.Label != request.JudgeLabel {
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
	cfg *config.Config, p *job, members []*job, engs []engine.Engine, seats []request.Seat,
) error {
	judged := seats[len(seats)-1].Label == request.JudgeLabel
	identity := p.rec.Identity
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refusalLocked(); err != nil {
		return err
	}
	if m.live[p.rec.ID] != nil {
		return fault.New(fault.InternalFailure, fault.Host, operation, "the request was asked twice at once")
	}
	if err := m.queue.Room(identity, len(members)); err != nil {
		return err
	}
	left := m.sumsLocked(nil, (*job).reserved).Left(cfg.Identities[identity].Budget, identity, p.rec.Session)
	for i, j := range members {
		req := j.rec.Request
		if each := left / float64(len(members)); each > 0 && (req.MaxUSD == 0 || each < req.MaxUSD) {
			req.MaxUSD = each
		}
		fits := engs[i].Fits(req) == nil
		if fits {
			j.rec.Request = req
		}
		if !fits || p.rec.Request.MaxUSD > 0 && req.MaxUSD == 0 {
			p.rec.Notes = append(p.rec.Notes, "nothing limits what "+seats[i].Name+" costs, since it reports no cost")
		}
		if err := m.reserveLocked(cfg, j, engs[i]); err != nil {
			for _, done := range members[:i] {
				delete(m.live, done.rec.ID)
			}
			return seats[i].Refused(err)
		}
		m.live[j.rec.ID] = j
	}
	recs := make([]jobdir.Record, len(members))
	for i, j := range members {
		recs[i] = j.rec
		if j.rec.Label == request.JudgeLabel {
			j.rec.Request.Prompt, j.rec.AskedBytes = "", 0 // it comes with the answers
			j.note = "waits for the answers of the others"
			continue
		}
		m.queue.Add(j)
		m.jobs.Add(1)
	}
	p.rec.SetMembers(recs, judged)
	m.live[p.rec.ID] = p
	m.queue.Start(cfg.Consult.MaxConcurrent)
	return nil
}

// dropPanel takes back a panel that could not be written down.
func (m *Manager) dropPanel(p *job, f *fault.Record) {
	m.mu.Lock()
	delete(m.live, p.rec.ID)
	for i := range p.rec.Members {
		delete(m.live, p.rec.Members[i].ID) // the judge
	}
	m.mu.Unlock()
	p.finish(answer.FromOutcome(&p.rec, &engine.Outcome{Fault: f}, time.Now(), ""))
}

// servePanel takes a panel to its answer. If the next daemon is to go on with it, servePanel
// returns without one.
func (m *Manager) servePanel(p *job) {
	p.mu.Lock()
	p.state, p.began = answer.Running, time.Now()
	p.mu.Unlock()
	m.makeMembers(p)
	if p.life.Err() != nil {
		return // before all members were made: the next daemon makes them
	}
	stop, of := p.stop, len(p.rec.Members)
	if p.rec.Judged {
		of--
	}
	for i := range p.rec.Members {
		if i < of {
			p.setNote("%d of %d have ended", i, of)
		} else if !m.startJudge(p) {
			break
		}
		if !m.awaitMember(p, p.rec.Members[i].ID, &stop) {
			return
		}
	}
	now := time.Now()
	a := answer.Panel(&p.rec, m.members(p), answer.Done)
	why := ""
	if p.mu.Lock(); *a.Answered < of {
		why = p.stopWhy
	}
	p.mu.Unlock()
	a.End(now, why)
	entry := m.store(p, a)
	faultpoint.At("consult.panelkept")
	m.retire(p, a, entry, now, false)
}

// makeMembers makes the members of a panel that an earlier daemon has not made any more. After
// another start of the machine it makes none, as with consults that never began. A judge is made
// known, and started later.
func (m *Manager) makeMembers(p *job) {
	for i := range p.rec.Members {
		rec := p.rec.Member(i)
		judge := rec.Label == request.JudgeLabel
		m.mu.Lock()
		missing := p.rec.IsOfThisBoot() && m.refusalLocked() == nil && m.live[rec.ID] == nil && m.kept[rec.ID] == nil
		var j *job
		if missing {
			j = m.makeJob(rec, asking{}, rec.Created())
			if p.ending() {
				j.end("its panel was cancelled")
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
func (m *Manager) awaitMember(p *job, id string, stop *chan struct{}) bool {
	m.mu.Lock()
	j := m.live[id]
	m.mu.Unlock()
	for j != nil {
		select {
		case <-j.done:
			return true
		case <-p.life.Done():
			return false
		case <-*stop:
			*stop = nil
			m.cancelling(p)
			for i := range p.rec.Members {
				m.mu.Lock()
				one := m.live[p.rec.Members[i].ID]
				m.mu.Unlock()
				if one != nil {
					one.end("its panel was cancelled")
				}
			}
		}
	}
	return true
}

// startJudge queues the judge of a panel whose other members have ended, unless an earlier daemon
// has done that. It returns false if there is nothing to judge, or the panel is being ended.
func (m *Manager) startJudge(p *job) bool {
	last := len(p.rec.Members) - 1
	m.mu.Lock()
	j := m.live[p.rec.Members[last].ID]
	m.mu.Unlock()
	if j == nil || j.rec.Request.Prompt != "" { // only this goroutine writes it
		return true
	}
	answers := m.members(p)[:last]
	answered := answer.Answered(answers)
	if answered < 2 || p.ending() {
		m.mu.Lock()
		delete(m.live, j.rec.ID)
		m.mu.Unlock()
		f := fault.New(fault.Cancelled, fault.Host, operation,
			"the judge was not asked: fewer than two members have answered")
		j.finish(answer.FromOutcome(&j.rec, &engine.Outcome{Fault: f}, time.Now(), f.Fault.Detail))
		return false
	}
	j.mu.Lock()
	j.rec.Request.Prompt = answer.JudgePrompt(&p.rec, answers)
	j.mu.Unlock()
	p.setNote("the judge compares %d answers", answered)
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
func (m *Manager) members(p *job) []*answer.Answer {
	var all []*answer.Answer
	for i := range p.rec.Members {
		id := p.rec.Members[i].ID
		m.mu.Lock()
		j, k, unwritten := m.live[id], m.kept[id], m.unwrittenLocked(id)
		m.mu.Unlock()
		var a *answer.Answer
		var err error
		switch {
		case j != nil:
			a, _ = j.status()
		case k != nil:
			a, err = m.read(id, unwritten)
		}
		if a == nil && p.rec.Members[i].Label == request.JudgeLabel {
			continue
		}
		if a == nil {
			rec := p.rec.Member(i)
			if err == nil {
				err = fault.New(fault.ProcessFailure, fault.Host, operation, "it was not begun, or its answer is not kept")
			}
			a = answer.FromOutcome(&rec, &engine.Outcome{Fault: fault.From(err, fault.Host, operation)}, time.Now(), "")
		}
		all = append(all, a)
	}
	return all
}
