package consult

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/budget"
	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/shelf"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// load reads the directories of earlier jobs. It keeps their answers, and resumes the
// jobs that have none. A directory that it cannot read is reported and left alone. The
// order matters: the ledger must be read before prune books costs into it.
func (m *Manager) load() error {
	entries, err := os.ReadDir(m.opt.Dir)
	if err != nil {
		return fmt.Errorf("reading kept consults: %w", err)
	}
	var open []*job.Job
	for _, e := range entries {
		if !e.IsDir() || !jobdir.IsID(e.Name()) {
			continue
		}
		dir := filepath.Join(m.opt.Dir, e.Name())
		// A half-written file of the program that ran in this process before an upgrade
		// has the same pid in its name. Later it would look like one of our own.
		statedir.Sweep(dir, true)
		j, k, err := m.adoptDir(dir)
		switch {
		case err != nil:
			m.opt.Log.Warn("consult cannot be read", "dir", dir, "err", err)
			m.failures.Unread(err)
		case j != nil:
			open = append(open, j)
		case k != nil:
			m.kept[k.Info.ID] = k
			m.auditKept(k.Info.ID, dir)
			m.clear(dir)
		}
	}
	m.ledger = budget.Read(m.opt.Ledger)
	m.resumeJobs(open) // before answers are pruned: a panel needs those of its members
	m.prune()
	m.jobs.Go(m.expire)
	return nil
}

// auditKept writes the audit line of a kept consult if it may be missing. It also takes
// over what the answer says of the subscription's window, if that is the latest.
func (m *Manager) auditKept(id, dir string) {
	m.window.KeepEarlier(m.kept[id].Window)
	if !unaudited(dir) {
		return
	}
	a, err := answer.Read(dir)
	if err == nil {
		var rec jobdir.Record
		if rec, err = jobdir.ReadRecord(dir); err == nil {
			m.writeAudit(&rec, a, nil)
		}
	}
	if err != nil {
		m.opt.Log.Warn("end of a consult is not in the audit log", "consult", id, "err", err)
	}
}

// clear removes what a job with an answer no longer needs: temporary files, output and
// socket. If the daemon died before the job's worker had ended, that is ended now.
func (m *Manager) clear(dir string) {
	_ = os.RemoveAll(filepath.Join(dir, jobdir.DirTemp))
	if err := m.opt.Host.Clear(context.Background(), dir); err != nil {
		m.opt.Log.Warn("worker of a consult that has ended lives on", "dir", dir, "err", err)
	}
}

// adoptDir decides what happens to the directory of an earlier daemon's job, and does
// it. It gathers facts from the directory, and [jobdir.Decide] decides from these alone.
// It returns the job if that goes on, the entry if there is an answer, and neither if the
// directory is removed.
func (m *Manager) adoptDir(dir string) (*job.Job, *shelf.Entry, error) {
	var a answer.Answer
	f, rec, err := jobdir.Look(dir, &a, &a.Version)
	if err != nil {
		return nil, nil, err
	}
	what := jobdir.Decide(f)
	switch what {
	case jobdir.Ended:
		if a.State == answer.Failed && a.Fault != nil {
			m.failures.Failed(time.UnixMilli(a.EndedUnixMS), a.Fault)
		}
		return nil, shelf.NewEntry(&a, &rec, !rec.Attended, m.restoreClaim(&rec)), nil
	case jobdir.GoesOn, jobdir.Waits:
		j, err := m.restore(rec, dir, f, what == jobdir.GoesOn && !f.Panel)
		return j, nil, err
	case jobdir.NeverBegan:
		return m.answerLost(rec, dir, fault.New(fault.ProcessFailure, fault.Host, operation,
			"the daemon ended before the consult began"))
	case jobdir.Lost:
		return m.answerLost(rec, dir, fault.New(fault.OutcomeUnknown, fault.Host, operation,
			"the daemon and the consult's worker ended before there was an answer; it is not run again by itself"))
	case jobdir.Unknown:
		m.clear(dir)
		return nil, nil, os.RemoveAll(dir)
	}
	return nil, nil, nil
}

// answerLost writes the fault f as the answer of a job whose daemon and worker are both
// gone. It holds the lock of the worker's directory meanwhile: so no worker can start
// there. It returns an error if the lock is taken, that is, if a worker lives after
// all.
func (m *Manager) answerLost(rec jobdir.Record, dir string, f *fault.Record) (*job.Job, *shelf.Entry, error) {
	lock, err := statedir.TryLock(filepath.Join(dir, process.FileLock))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = lock.Unlock() }()
	a, k := m.keepAnswer(job.New(m.life, rec, dir), engine.Outcome{Fault: f}, time.Now())
	k.Claim = m.restoreClaim(&rec)
	m.failures.Failed(time.Now(), f)
	if !unaudited(dir) { // otherwise auditKept writes the line when a daemon loads the answer
		m.writeAudit(&rec, a, nil)
	}
	return nil, k, nil
}

// keepAnswer makes the answer of a job whose run has ended, and writes it to disk. It returns
// the answer and its entry, without a claim. If the write fails the entry has the answer.
func (m *Manager) keepAnswer(j *job.Job, out engine.Outcome, ended time.Time) (*answer.Answer, *shelf.Entry) {
	rec := &j.Rec
	began, session, why := j.BeganAt(), j.ProgramSession(), j.WhyStopped()
	a := answer.FromOutcome(rec, &out, ended, why)
	a.MaxUSD = j.MaxUSD
	var err error
	if a.Messages, err = answer.Messages(j.Dir, true); err != nil {
		m.opt.Log.Warn("messages to a consult cannot be read", "consult", rec.ID, "err", err)
	}
	// A run that failed may still have a session, which the progress has named. After an
	// invalid_input fault the run never had a session.
	if a.SessionID == "" && out.Fault != nil && out.Fault.Fault.Code != fault.InvalidInput {
		a.SessionID = session
	}
	if !began.IsZero() {
		a.QueuedMS = began.Sub(j.Created).Milliseconds()
	}
	// The outcome of a lost run has no duration.
	if a.DurationMS == 0 && !began.IsZero() {
		a.DurationMS = max(ended.Sub(began), 0).Milliseconds()
	}
	// The two are read from clocks of different grain, so a run could seem longer than its consult.
	if most := ended.Sub(j.Created).Milliseconds(); most > 0 {
		a.DurationMS = min(a.DurationMS, most)
	}
	others := m.sumsWithout(j)
	a.SessionUSD, a.TodayUSD = others.Sessions[rec.Session].USD, others.Identities[rec.Identity].USD
	if out.CostUSD != nil {
		a.SessionUSD, a.TodayUSD = a.SessionUSD+*out.CostUSD, a.TodayUSD+*out.CostUSD
	}
	return a, m.store(j, a)
}

// store writes an answer to disk, and returns its entry, without a claim. If the write fails the
// entry has the answer.
func (m *Manager) store(j *job.Job, a *answer.Answer) *shelf.Entry {
	k := shelf.NewEntry(a, &j.Rec, j.IsDetached(), nil)
	if err := a.Write(j.Dir); err != nil {
		m.opt.Log.Error("answer cannot be written", "consult", a.ID, "err", err)
		k.Answer = a // for example on a full disk: then memory has the only copy
		m.failures.Unwritten(j.Dir, jobdir.FileAnswer)
		select {
		case m.retry <- struct{}{}:
		default: // it is going to be tried again
		}
	}
	return k
}

// writeAudit writes the audit line of a consult that has ended. If the caller does not know
// the program's command line, argv is nil, and writeAudit takes it from the transcript. Call
// it only after answer.json is written: see [unaudited].
func (m *Manager) writeAudit(rec *jobdir.Record, a *answer.Answer, argv []string) {
	if argv == nil {
		if said, err := engine.ReadTranscript(filepath.Join(m.opt.Dir, rec.ID)); err == nil {
			argv = said.Start.Argv
		}
	}
	m.opt.Audit(a.Audit(rec, argv))
}

// unaudited reports whether the audit line of the answer in dir may be missing, since
// the daemon that kept the answer died first. The daemon removes the job's temporary
// directory only after it has written the line. While the directory exists, the line
// may or may not be there; writing it twice is better than never.
func unaudited(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, jobdir.DirTemp))
	return err == nil
}

// writeAgain writes the answers that could not be written when they came, for example
// since the disk was full. Until then they are only in memory and would be lost with
// the daemon. It stops at the first failure, which was logged before, and reports whether
// all are written.
func (m *Manager) writeAgain() bool {
	m.mu.Lock()
	unwritten := m.kept.Unwritten()
	m.mu.Unlock()
	for _, a := range unwritten {
		if a.Write(filepath.Join(m.opt.Dir, a.ID)) != nil {
			return false // that was said when it came
		}
		m.mu.Lock()
		if k := m.kept[a.ID]; k != nil {
			k.Answer = nil
		}
		m.mu.Unlock()
	}
	return true
}

// prune removes the answers that are not kept any more: see [shelf.Shelf.Prune]. It books the
// cost of each in the ledger before it removes the directory. Then it writes the answers that
// were only in memory: there may be room for them now. It reports whether all are written.
func (m *Manager) prune() (written bool) {
	now := time.Now()
	m.mu.Lock()
	gone := m.kept.Prune(m.config.Load().Consult.Keep, now, func(id string) bool { return m.live[id] != nil })
	for _, e := range gone {
		m.ledger.Add(e.Cost, now)
	}
	m.mu.Unlock()
	if len(gone) > 0 {
		m.writeLedger()
	}
	for _, e := range gone {
		if err := jobdir.Remove(filepath.Join(m.opt.Dir, e.Info.ID)); err != nil {
			m.opt.Log.Warn("old consult cannot be removed", "consult", e.Info.ID, "err", err)
		}
	}
	return m.writeAgain()
}

// read returns the answer of a kept job. unwritten is the answer of its entry: nil if
// the answer is on disk. The caller must not hold m.mu. If the answer was removed since the
// caller has found its entry, read returns nil and no error.
func (m *Manager) read(id string, unwritten *answer.Answer) (*answer.Answer, error) {
	if unwritten != nil {
		return unwritten, nil
	}
	a, err := answer.Read(filepath.Join(m.opt.Dir, id))
	if err != nil {
		m.mu.Lock()
		k := m.kept[id]
		m.mu.Unlock()
		if k == nil {
			return nil, nil //nolint:nilnil // see above
		}
		return nil, fault.New(fault.InternalFailure, fault.Host, operation,
			"the kept answer of consult %s cannot be read: %v", id, err)
	}
	return a, nil
}

// Failures returns how many consults have failed within that time, and why the last of them
// did: see [failures.Log.Within].
func (m *Manager) Failures(within time.Duration) (n int, last string) {
	return m.failures.Within(within)
}

// BadFiles returns which files of consults cannot be written or read: see [failures.Log.Files].
func (m *Manager) BadFiles(within time.Duration) (unwritten []control.Unwritten, unread []string) {
	return m.failures.Files(within, func(id string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.live[id] != nil || m.kept.UnwrittenOf(id) != nil
	})
}
