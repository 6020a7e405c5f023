package consult

import (
	"context"
	"fmt"
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

// A panel asks several engines at once. It is a job without a worker: its record has the records of
// its members, which are jobs like others, so that the next daemon makes those that are missing. A
// judge, if there is one, is the last member, and is asked once the others have ended.

// panelName stands for the engine of a panel.
const panelName = "panel"

// isJudge reports whether the job compares the answers of a panel's other members.
func (j *Job) isJudge() bool { return j.Rec.Label == request.JudgeLabel }

// beginPanel begins a panel of those seats.
func (m *Manager) beginPanel(
	ctx context.Context, c *tool.Caller, cfg *config.Config, how asking, a *request.Arguments, rec jobdir.Record,
	seats []request.Seat,
) (*Job, error) {
	var members []*Job
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
		if !j.isJudge() {
			names = append(names, seat.Name)
		}
	}
	of := members[0].Rec
	of.ID, of.Panel, of.Label, of.Attended, of.Task = rec.ID, "", "", how.attended, how.task
	of.Engine, of.EngineVersion, of.Request.Model, of.Notes = panelName, "", strings.Join(names, "+"), nil
	of.Request.MaxUSD = a.MaxUSD // of each
	p := m.makeJob(of, how, time.Now())
	if err := m.admit(cfg, p, members, engs, seats); err != nil {
		return nil, err
	}
	if f := p.record(); f != nil {
		for _, j := range append(members, p) {
			m.withdraw(j, f)
		}
		return nil, f
	}
	m.announce(p)
	faultpoint.At("consult.panel")
	m.launchMembers(members)
	m.serving.Go(func() { m.serve(p) })
	return p, nil
}

// launchMembers launches the members of a panel but for its judge. One that cannot be recorded has
// failed, and the others go on.
func (m *Manager) launchMembers(members []*Job) {
	for _, j := range members {
		if !j.isJudge() {
			_ = m.launch(j)
		}
	}
}

// seatLocked writes the members into the record of their panel, and queues them. What the budget has
// left is shared out among them before: see [Manager.admit].
func (m *Manager) seatLocked(p *Job, members []*Job) {
	recs := make([]jobdir.Record, len(members))
	for i, j := range members {
		recs[i] = j.Rec
		if j.isJudge() {
			j.Rec.Request.Prompt, j.Rec.AskedBytes = "", 0 // it comes with the answers
			j.note = "waits for the answers of the others"
			continue
		}
		m.queue.add(j)
		m.serving.Add(1)
	}
	p.Rec.SetMembers(recs, members[len(members)-1].isJudge())
	m.startLocked()
}

// shareBudgetLocked bounds what each member may cost by its share of what the budget has left.
func (m *Manager) shareBudgetLocked(
	cfg *config.Config, p *Job, members []*Job, engs []engine.Engine, seats []request.Seat,
) {
	identity := p.Rec.Identity
	left := m.sumsLocked(nil, true).Left(cfg.Identities[identity].Budget, identity, p.Rec.Session)
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
	}
}

// servePanel waits for the members of a panel, asks the judge, and ends the panel.
func (m *Manager) servePanel(p *Job) {
	m.began(p)
	m.makeMembers(p)
	if p.life.Err() != nil {
		return // before all members were made: the next daemon makes them
	}
	stop, of := p.stop, len(p.Rec.Members)
	if p.Rec.Judged {
		of--
	}
	for i := range p.Rec.Members {
		if i < of {
			p.setNote("%d of %d have ended", i, of)
		} else if !m.askJudge(p) {
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
		why = m.whyOf(p)
	}
	a.End(now, why)
	after := m.store(p, a)
	faultpoint.At("consult.panelkept")
	m.retire(p, after, a, false)
}

// whyOf returns why a job was asked to end; "" if it was not.
func (m *Manager) whyOf(j *Job) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return j.why
}

// makeMembers makes the members that an earlier daemon has not come to.
func (m *Manager) makeMembers(p *Job) {
	var missing []*Job
	m.mu.Lock()
	for i := range p.Rec.Members {
		rec := p.Rec.Member(i)
		if !p.Rec.IsOfThisBoot() || m.open.Err() != nil || m.jobs[rec.ID] != nil {
			continue
		}
		j := m.makeJob(rec, asking{}, rec.Created())
		if p.why != "" {
			j.endLocked("its panel was cancelled")
		}
		m.jobs[rec.ID] = j
		if !j.isJudge() {
			m.enqueueLocked(j)
		}
		missing = append(missing, j)
	}
	m.mu.Unlock()
	m.launchMembers(missing)
}

// awaitMember waits until a member has ended; when *stop is closed it ends all, once. It returns
// false if the panel is left to the next daemon.
func (m *Manager) awaitMember(p *Job, id string, stop *chan struct{}) bool {
	j := m.job(id)
	for j != nil && j.kept == nil {
		select {
		case <-j.done:
			return true
		case <-p.life.Done():
			return false
		case <-*stop:
			*stop = nil
			m.cancelling(p)
			m.mu.Lock()
			for i := range p.Rec.Members {
				if one := m.jobs[p.Rec.Members[i].ID]; one != nil && one.kept == nil {
					one.endLocked("its panel was cancelled")
				}
			}
			m.mu.Unlock()
		}
	}
	return true
}

// askJudge gives the judge of a panel the answers of the others, and launches it. It returns false if
// the judge is not to be asked: too few have answered, or the panel is ending.
func (m *Manager) askJudge(p *Job) bool {
	last := len(p.Rec.Members) - 1
	j := m.job(p.Rec.Members[last].ID)
	if j == nil || j.kept != nil || j.Rec.Request.Prompt != "" { // only this goroutine writes it
		return true
	}
	answers := m.members(p)[:last]
	answered := answer.Answered(answers)
	why := ""
	switch {
	case answered < 2:
		why = "fewer than two members have answered"
	case m.whyOf(p) != "":
		why = "its panel is ending"
	}
	if why != "" {
		m.withdraw(j, fault.New(fault.Cancelled, fault.Host, operation, "the judge was not asked: %s", why))
		return false
	}
	prompt := answer.JudgePrompt(&p.Rec, answers)
	p.setNote("the judge compares %d answers", answered)
	m.mu.Lock()
	j.Rec.Request.Prompt = prompt
	m.enqueueLocked(j)
	m.mu.Unlock()
	_ = m.launch(j) // without it, the panel has the answers of the others
	return true
}

// members returns the answers of a panel's members, or how they stand. A judge that was not asked has
// none.
func (m *Manager) members(p *Job) []*answer.Answer {
	var all []*answer.Answer
	for i := range p.Rec.Members {
		var a *answer.Answer
		var err error = fault.New(fault.ProcessFailure, fault.Host, operation,
			"it was not begun, or its answer is not kept")
		if j := m.job(p.Rec.Members[i].ID); j != nil && j.kept == nil {
			a, _ = j.status()
		} else if j != nil {
			var rerr error
			if a, rerr = m.read(j); rerr != nil {
				err = rerr
			}
		}
		rec := p.Rec.Member(i)
		if a == nil && rec.Label != request.JudgeLabel {
			a = answer.FromOutcome(&rec, &engine.Outcome{Fault: fault.From(err, fault.Host, operation)}, time.Now(), "")
		}
		if a != nil {
			all = append(all, a)
		}
	}
	return all
}

// panelRefusal says that a message goes to a member, not to the panel.
func panelRefusal(panel *jobdir.Record) error {
	names := make([]string, len(panel.Members))
	for i := range panel.Members {
		one := &panel.Members[i]
		names[i] = fmt.Sprintf("%s (%s %s)", one.ID, one.Label, one.Engine)
	}
	return engine.Invalid("consult_id: %s is a panel; say it to one of its members: %s", panel.ID,
		strings.Join(names, ", "))
}
