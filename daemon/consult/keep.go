package consult

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/budget"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/statedir"
	"holdline/daemon/tasks"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// load reads the directories of earlier daemons' jobs, and goes on with those that have not ended.
func (m *Manager) load() error {
	entries, err := os.ReadDir(m.opt.Dir)
	if err != nil {
		return fmt.Errorf("reading kept consults: %w", err)
	}
	var open []*Job
	for _, e := range entries {
		if !e.IsDir() || !jobdir.IsID(e.Name()) {
			continue
		}
		dir := filepath.Join(m.opt.Dir, e.Name())
		statedir.Sweep(dir, true)
		j, err := m.take(dir, true)
		if err != nil {
			m.postpone(dir, err)
		} else if j != nil && j.kept == nil {
			open = append(open, j)
		}
	}
	if m.ledger, err = budget.Read(m.opt.Ledger, time.Now()); err != nil {
		if m.ledger.IsLost(time.Now()) {
			m.opt.Log.Error("budgets of today count as used up", "err", err)
		} else {
			m.opt.Log.Warn("what consults have cost is known by a copy of its file", "err", err)
		}
		m.writeLedger(true) // so that the day is known to the next daemon, too
	}
	if len(m.unread) > 0 {
		m.serving.Go(func() { m.readLater(m.resumeWithoutPanels(open)) })
		return nil
	}
	m.resumeAll(open)
	return nil
}

// resumeAll goes on with jobs of earlier daemons, once all jobs are known, and begins to prune.
func (m *Manager) resumeAll(open []*Job) {
	m.resume(open) // before answers are pruned: a panel needs those of its members
	m.prune()
	m.serving.Go(m.expire)
}

// take reads the directory of an earlier daemon's job. It returns nil if no client knows of it, or if it
// cannot be used, which it logs. With patient set, it returns an error that may pass.
func (m *Manager) take(dir string, patient bool) (*Job, error) {
	j, err := m.loadJob(dir, patient)
	switch {
	case patient && ownfile.Passes(err):
		return nil, err
	case err != nil:
		m.opt.Log.Warn("consult cannot be read", "dir", dir, "err", err)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.troubles.unread = append(m.troubles.unread, err.Error())
		return nil, nil //nolint:nilnil // see above
	case j == nil:
		return nil, nil //nolint:nilnil // see above
	case j.kept != nil:
		m.auditLate(dir)
		m.clear(dir)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if j.kept != nil {
		m.window.KeepEarlier(j.kept.window)
	}
	m.jobs[j.Rec.ID] = j
	return j, nil
}

// loadJob returns the job of a directory, or nil if no client knows of it. Unless patient is set, an error
// that passes is taken for damage: see [jobdir.Look].
func (m *Manager) loadJob(dir string, patient bool) (*Job, error) {
	var a answer.Answer
	f, rec, err := jobdir.Look(dir, &a, &a.Version, &a.ID, patient)
	if err != nil {
		return nil, err
	}
	switch what := calls.DecideJob(f); what {
	case calls.JobEnded:
		if a.State == answer.Failed {
			m.noteFailure(time.UnixMilli(a.EndedUnixMS), a.Fault)
		}
		j := m.newKept(rec, &a, !rec.Attended)
		j.claimAgain()
		return j, nil
	case calls.JobGoesOn, calls.JobWaits:
		return m.restore(rec, dir, f, what == calls.JobGoesOn && !f.Group)
	case calls.JobNeverBegan:
		return m.lose(rec, dir, fault.New(fault.ProcessFailure, fault.Host, operation,
			"the daemon ended before the consult began"))
	case calls.JobTorn:
		return m.lose(rec, dir, fault.New(fault.OutcomeUnknown, fault.Host, operation,
			"the consult has ended, and its answer is damaged, with nothing beside it to make it again: %s",
			filepath.Join(dir, jobdir.FileAnswer)))
	case calls.JobLost:
		if rec.Damaged || f.Damaged {
			return m.lose(rec, dir, fault.New(fault.OutcomeUnknown, fault.Host, operation,
				"the record of the consult is missing or damaged, and what it did is not known; it is not run again "+
					"by itself: %s", filepath.Join(dir, jobdir.FileJob)))
		}
		return m.lose(rec, dir, fault.New(fault.OutcomeUnknown, fault.Host, operation,
			"the daemon and the consult's worker ended before there was an answer; it is not run again by itself"))
	default:
		m.clear(dir)
		return nil, os.RemoveAll(dir)
	}
}

// restore returns the live job of an earlier daemon's record. started says that it had a worker.
func (m *Manager) restore(rec jobdir.Record, dir string, f calls.JobFacts, started bool) (*Job, error) {
	j := m.newJob(rec)
	j.claimAgain()
	if started {
		spec, err := process.ReadSpec(dir)
		if err != nil {
			return nil, err
		}
		j.adopted, j.state, j.note = true, answer.Running, "taken over by the new daemon"
		if rec.IsOfThisBoot() {
			j.began = bootclock.TimeMS(spec.Orphan.HardDeadlineBootMS).Add(-m.hardTime(j))
		}
		if !f.Alive {
			j.sign = jobdir.LastSign(dir)
		}
	}
	if rec.Ending != "" {
		j.endLocked(rec.Ending) // no other goroutine knows it yet
	}
	return j, nil
}

// lose ends a job of an earlier daemon with its outcome if that is there, else with a fault, under the
// lock of its worker, which it ends: no late one may begin. The audit log gets its line when the answer is
// loaded, if it may lack it.
func (m *Manager) lose(rec jobdir.Record, dir string, f *fault.Record) (*Job, error) {
	if err := m.opt.Host.Clear(context.Background(), dir); err != nil {
		return nil, err
	}
	lock, err := statedir.Seize(filepath.Join(dir, process.FileLock))
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Unlock() }()
	if rec.Damaged {
		err = rec.Write(dir)
	}
	if err == nil { // else the spec is all that tells who has asked
		err = removeSpec(dir)
	}
	if err != nil {
		m.opt.Log.Warn("files of a consult that is lost stay as they are", "dir", dir, "err", err)
	}
	out, ended := m.left(dir, f)
	if out.Fault != nil {
		m.opt.Log.Warn("a consult of an earlier daemon is lost", "consult", rec.ID, "err", out.Fault)
	}
	a, after := m.keepAnswer(m.newJob(rec), out, ended)
	after.claimAgain()
	m.noteFailure(time.Now(), out.Fault)
	if !unaudited(dir) {
		m.writeAudit(&rec, a, nil)
	}
	return after, nil
}

// left returns the outcome that a run has left in its directory, and when that was. Without a whole
// outcome.json it has the fault f, and what the program has said.
func (m *Manager) left(dir string, f *fault.Record) (engine.Outcome, time.Time) {
	out, err := jobdir.ReadOutcome(dir)
	if err == nil {
		return out, time.UnixMilli(out.EndedUnixMS)
	}
	m.nameOutcome(f, err)
	out = engine.Outcome{Fault: f}
	if said, err := engine.ReadTranscript(dir); err == nil {
		out.Answer, out.Partial, out.Session, out.CostUSD = said.Text, said.Text != "", said.Session, said.CostUSD
	}
	return out, time.Now()
}

// nameOutcome adds to the fault of a consult that its outcome.json cannot be read, for err, if there is one.
func (m *Manager) nameOutcome(f *fault.Record, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	m.opt.Log.Error("outcome of a consult cannot be read", "err", err)
	f.Fault.Detail += fmt.Sprintf("; what its process wrote down cannot be read: %v", err)
}

// resume goes on with the jobs of earlier daemons, the oldest first.
func (m *Manager) resume(jobs []*Job) {
	slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.Rec.CreatedUnixMS, b.Rec.CreatedUnixMS) })
	m.mu.Lock()
	for _, j := range jobs {
		switch {
		case j.adopted:
			m.queue.occupy(j)
		case !j.isPanel():
			m.queue.add(j)
		}
	}
	m.startLocked()
	m.mu.Unlock()
	faultpoint.At("consult.resumed")
	for _, j := range jobs {
		m.opt.Log.Info("consult of an earlier daemon", "consult", j.Rec.ID, "identity", j.Rec.Identity,
			"state", j.state, "attended", j.Rec.Attended)
		if j.Rec.Attended {
			m.serving.Go(func() { j.awaitClient(m.opt.Return) })
		}
		m.serving.Go(func() { m.serve(j) })
	}
}

// keepAnswer makes and writes the answer of a job that ended at that time, and returns it with the
// job that takes its place.
func (m *Manager) keepAnswer(j *Job, out engine.Outcome, ended time.Time) (*answer.Answer, *Job) {
	m.mu.Lock()
	began, session, why, maxUSD := j.began, j.session, j.why, j.maxUSD
	others := m.sumsLocked(j, false)
	m.mu.Unlock()
	rec := &j.Rec
	a := answer.FromOutcome(rec, &out, ended, why)
	a.MaxUSD = maxUSD
	var err error
	if a.Messages, err = answer.Messages(j.Dir, true); err != nil {
		m.opt.Log.Warn("messages to a consult cannot be read", "consult", rec.ID, "err", err)
	}
	if a.SessionID == "" && out.Fault != nil && out.Fault.Fault.Code != fault.InvalidInput {
		a.SessionID = session
	}
	if !began.IsZero() {
		a.QueuedMS = began.Sub(j.created).Milliseconds()
		if a.DurationMS == 0 {
			a.DurationMS = max(ended.Sub(began), 0).Milliseconds()
		}
	}
	if most := ended.Sub(j.created).Milliseconds(); most > 0 {
		a.DurationMS = min(a.DurationMS, most)
	}
	a.SessionUSD, a.TodayUSD = others.Sessions[rec.Session].USD, others.Identities[rec.Identity].USD
	if out.CostUSD != nil {
		a.SessionUSD, a.TodayUSD = a.SessionUSD+*out.CostUSD, a.TodayUSD+*out.CostUSD
	}
	return a, m.store(j, a)
}

// store writes an answer, and returns the job that takes the place of the live one. An answer that
// cannot be written, for example on a full disk, is kept in memory until it can.
func (m *Manager) store(j *Job, a *answer.Answer) *Job {
	m.mu.Lock()
	after := m.newKept(j.Rec, a, !j.Rec.Attended)
	m.mu.Unlock()
	if err := a.Write(j.Dir); err != nil {
		m.opt.Log.Error("answer cannot be written", "consult", a.ID, "err", err)
		after.kept.unwritten = a
		m.noteUnwritten(j.Dir, jobdir.FileAnswer)
		select {
		case m.retry <- struct{}{}:
		default: // it is going to be tried again
		}
	}
	return after
}

// read returns the answer of a job that has ended, or nil if it was removed meanwhile.
func (m *Manager) read(j *Job) (*answer.Answer, error) {
	m.mu.Lock()
	a := j.kept.unwritten
	m.mu.Unlock()
	if a != nil {
		return a, nil
	}
	a, err := answer.Read(j.Dir)
	if err != nil && m.job(j.Rec.ID) != j {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil && !ownfile.Passes(err) {
		if out, oerr := jobdir.ReadOutcome(j.Dir); oerr == nil {
			m.opt.Log.Warn("the kept answer of a consult is made again", "consult", j.Rec.ID, "err", err)
			rec, rerr := jobdir.ReadRecord(j.Dir)
			if rerr != nil {
				rec = j.Rec
			}
			a, _ := m.keepAnswer(m.newJob(rec), out, time.UnixMilli(out.EndedUnixMS))
			return a, nil
		}
	}
	if err != nil {
		return nil, fault.New(fault.InternalFailure, fault.Host, operation,
			"the kept answer of consult %s cannot be read: %v", j.Rec.ID, err)
	}
	return a, nil
}

// writeAgain writes the answers that are in memory alone. It reports whether none is left.
func (m *Manager) writeAgain() bool {
	var unwritten []*Job
	m.mu.Lock()
	for _, j := range m.jobs {
		if j.kept != nil && j.kept.unwritten != nil {
			unwritten = append(unwritten, j)
		}
	}
	m.mu.Unlock()
	for _, j := range unwritten {
		if a, _ := m.read(j); a != nil && a.Write(j.Dir) != nil {
			return false // that was said when it came
		}
		m.mu.Lock()
		j.kept.unwritten = nil
		m.mu.Unlock()
	}
	return true
}

// writeAudit writes the line of a job that has ended into the audit log.
func (m *Manager) writeAudit(rec *jobdir.Record, a *answer.Answer, argv []string) {
	if argv == nil {
		if said, err := engine.ReadTranscript(filepath.Join(m.opt.Dir, rec.ID)); err == nil {
			argv = said.Start.Argv
		}
	}
	m.opt.Audit(a.Audit(rec, argv))
}

// unaudited reports whether a job's line may be missing in the audit log: its temporary directory is
// removed behind the line.
func unaudited(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, jobdir.DirTemp))
	return err == nil
}

// auditLate writes the line of a job that an earlier daemon has ended, if it may be missing.
func (m *Manager) auditLate(dir string) {
	if !unaudited(dir) {
		return
	}
	a, err := answer.Read(dir)
	rec, rerr := jobdir.ReadRecord(dir)
	if err = errors.Join(err, rerr); err != nil {
		m.opt.Log.Warn("end of a consult is not in the audit log", "consult", filepath.Base(dir), "err", err)
		return
	}
	m.writeAudit(&rec, a, nil)
}

// removeSpec removes the spec of a job's worker: one that an earlier daemon was about to start when it died may come
// late to its lock, and does not begin without. The caller must hold that lock.
func removeSpec(dir string) error {
	if err := os.Remove(filepath.Join(dir, process.FileSpec)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// revoke has no late worker of a job begin: see removeSpec. One that is there is ended.
func (m *Manager) revoke(dir string) {
	if _, err := os.Lstat(filepath.Join(dir, process.FileSpec)); errors.Is(err, os.ErrNotExist) {
		return // no daemon was about to start one
	}
	err := statedir.ErrLocked
	for tries := 0; tries < maxBegins && errors.Is(err, statedir.ErrLocked); tries++ {
		if err = m.opt.Host.Clear(context.Background(), dir); err != nil {
			break
		}
		var lock *statedir.Lock
		if lock, err = statedir.Seize(filepath.Join(dir, process.FileLock)); err == nil {
			err = errors.Join(removeSpec(dir), lock.Unlock())
		}
	}
	if err != nil {
		m.opt.Log.Warn("a late worker of a consult may begin", "dir", dir, "err", err)
	}
}

// clear removes what the worker and the run of a job that has ended have left.
func (m *Manager) clear(dir string) {
	_ = os.RemoveAll(filepath.Join(dir, jobdir.DirTemp))
	if err := m.opt.Host.Clear(context.Background(), dir); err != nil {
		m.opt.Log.Warn("worker of a consult that has ended lives on", "dir", dir, "err", err)
	}
}

// keepTold is how long an answer is kept, if need be, whose id a client was given.
const keepTold = 24 * time.Hour

// hasTaskLocked reports whether the task of a job that has ended can still be asked for.
func (j *Job) hasTaskLocked(age time.Duration, now time.Time) bool {
	created := time.UnixMilli(j.kept.info.CreatedUnixMS)
	return j.Rec.Task != nil && now.Before(created.Add(tasks.TTL(age, j.kept.cost.Ended.Sub(created))))
}

// isWantedLocked reports whether a client may still come for the answer of a job that has ended.
func (j *Job) isWantedLocked(age time.Duration, now time.Time) bool {
	if j == nil {
		return false
	}
	owed := j.hasTaskLocked(age, now) || j.kept.told && now.Before(j.kept.cost.Ended.Add(min(age, keepTold)))
	return j.isClaimedLocked(now) || owed && !j.kept.fetched
}

// prune removes the answers that are too many or too old, unless a client may come for them or, as
// members, for their panel's. It reports whether all that are kept are on disk.
func (m *Manager) prune() (written bool) {
	keep, now := m.config.Load().Consult.Keep, time.Now()
	var gone []*Job
	m.mu.Lock()
	if len(m.unread) > 0 { // its panel may be yet to be read
		m.mu.Unlock()
		return m.writeAgain()
	}
	ended := slices.DeleteFunc(slices.Collect(maps.Values(m.jobs)), func(j *Job) bool { return j.kept == nil })
	slices.SortFunc(ended, func(a, b *Job) int { return b.kept.cost.Ended.Compare(a.kept.cost.Ended) })
	for i, j := range ended {
		past := i >= keep.Count || j.kept.cost.Ended.Before(now.Add(-keep.Age))
		held := j.isOfLivePanelLocked() || j.Rec.Panel != "" && m.jobs[j.Rec.Panel].isWantedLocked(keep.Age, now)
		if past && !held && !j.isWantedLocked(keep.Age, now) || faultpoint.Broken("directory.kept") {
			m.forgetLocked(j, now)
			gone = append(gone, j)
		}
	}
	m.mu.Unlock()
	if len(gone) > 0 {
		m.writeLedger(false)
	}
	for _, j := range gone {
		if err := jobdir.Remove(j.Dir); err != nil {
			m.opt.Log.Warn("old consult cannot be removed", "consult", j.Rec.ID, "err", err)
		}
	}
	return m.writeAgain()
}

// forgetLocked forgets a job that has ended; its cost moves to the ledger. The caller then writes the
// ledger, and removes the directory after that.
func (m *Manager) forgetLocked(j *Job, now time.Time) {
	delete(m.jobs, j.Rec.ID)
	m.ledger.Add(j.kept.cost, now)
}

const (
	agePause   = time.Hour       // the most between two looks for old answers
	retryPause = 5 * time.Second // before an answer is written again
)

// expire prunes answers from time to time, and writes again those that could not be written.
func (m *Manager) expire() {
	t := time.NewTimer(m.opt.Return)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if !m.prune() {
				t.Reset(retryPause)
				continue
			}
			t.Reset(min(agePause, max(m.config.Load().Consult.Keep.Age, m.opt.Return)))
		case <-m.retry:
			t.Reset(retryPause)
		case <-m.open.Done():
			return
		}
	}
}
