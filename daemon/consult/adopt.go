package consult

import (
	"cmp"
	"slices"
	"time"

	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
	"holdline/protocol/bootclock"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// restore returns the job of a directory that an earlier daemon has left, with the facts f.
// With started the job has a worker, or had one; without, it still waits in the queue. The
// caller must pass the job to [Manager.resumeJobs].
//
// An adopted job began [Manager.hardTime] before its worker's hard deadline. If the
// machine has been booted since, it is not known when it began. A job that was being
// cancelled is cancelled again.
func (m *Manager) restore(rec jobdir.Record, dir string, f jobdir.Facts, started bool) (*job.Job, error) {
	j := job.New(m.life, rec, dir)
	j.Claim = m.restoreClaim(&rec)
	if started {
		spec, err := process.ReadSpec(dir)
		if err != nil {
			return nil, err
		}
		var began time.Time
		if rec.IsOfThisBoot() {
			began = bootclock.TimeMS(spec.Orphan.HardDeadlineBootMS).Add(-m.hardTime(j))
		}
		j.Adopt(began)
		if !f.Alive {
			j.Sign = jobdir.LastSign(dir)
		}
	}
	if rec.Ending != "" {
		j.End(rec.Ending)
	}
	return j, nil
}

// resumeJobs puts restored jobs into the queue or into its slots, oldest first, and
// starts a goroutine for each. For an attended job it starts a second one, which ends
// the job if its client does not come back.
//
// Adopted jobs take their slots whatever the limit says: their programs already run.
func (m *Manager) resumeJobs(jobs []*job.Job) {
	slices.SortFunc(jobs, func(a, b *job.Job) int { return cmp.Compare(a.Rec.CreatedUnixMS, b.Rec.CreatedUnixMS) })
	m.mu.Lock()
	for _, j := range jobs {
		m.live[j.Rec.ID] = j
		switch {
		case j.Adopted:
			m.queue.Occupy(j)
		case j.Rec.Members == nil:
			m.queue.Add(j)
		}
	}
	m.queue.Start(m.config.Load().Consult.MaxConcurrent)
	m.mu.Unlock()
	faultpoint.At("consult.resumed")
	for _, j := range jobs {
		m.opt.Log.Info("consult of an earlier daemon", "consult", j.Rec.ID, "identity", j.Rec.Identity,
			"state", j.StateNow(), "attended", j.Rec.Attended)
		if j.Rec.Attended {
			m.jobs.Go(func() { j.AwaitClient(m.opt.Return) })
		}
		m.jobs.Go(func() { m.serve(j) })
	}
}

// Recorded reports whether line n of a session has asked for a consult that is live or
// kept here.
func (m *Manager) Recorded(session string, n int64) bool {
	id := jobdir.ID(session, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id] != nil || m.kept[id] != nil
}
