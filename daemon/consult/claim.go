package consult

import (
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
)

// restoreClaim returns the claim to a job of an earlier daemon. Its client has
// [Options.Return] from the manager's start to come back. If the client's process is
// gone, or the job is a member of a panel, restoreClaim returns nil.
func (m *Manager) restoreClaim(rec *jobdir.Record) *job.Claim {
	if rec.Panel != "" || rec.IsDeserted() {
		return nil
	}
	return &job.Claim{Key: rec.Key(), Expires: m.begun.Add(m.opt.Return)}
}

// review asks the owner about all claims of a session, those of live jobs and those of
// kept answers.
func (m *Manager) review(session string, o calls.Owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.live {
		if j.Rec.Session == session {
			j.Claim = j.Claim.Reviewed(o)
		}
	}
	m.kept.Review(session, o)
}

// Resumed is called when a client is back, with the numbers of its lines that are
// pending. The daemon drops the session's claims to other lines. It ends the attended
// jobs of other lines: for those the client already holds an answer, or it has
// cancelled them. Background jobs go on.
func (m *Manager) Resumed(session string, pending map[int64]struct{}) {
	o := calls.Resumed(pending)
	m.review(session, o)
	m.mu.Lock()
	var jobs []*job.Job
	for _, j := range m.live {
		if j.Rec.Session == session && o.HasConfirmed(j.Rec.Key()) {
			jobs = append(jobs, j)
		}
	}
	m.mu.Unlock()
	for _, j := range jobs {
		j.EndUnattended("its client cancelled it")
	}
}

// Confirmed drops the claim to the answer of line n. The client holds the answer, or
// does not want it any more. If more is kept than the configuration allows, it prunes.
func (m *Manager) Confirmed(session string, n int64) {
	m.mu.Lock()
	none := len(m.live)+len(m.kept) == 0
	m.mu.Unlock()
	if none { // as mostly; each answer to a client comes here
		return
	}
	id := jobdir.ID(session, n)
	m.mu.Lock()
	if j := m.live[id]; j != nil {
		j.Claim = nil
	}
	k := m.kept[id]
	if k != nil {
		k.Claim = nil
	}
	m.mu.Unlock()
	if k != nil {
		m.pruneOver()
	}
}

// Closed drops all claims of a session that is over, and prunes if more is kept than
// the configuration allows. The second argument, the agent, is not used.
func (m *Manager) Closed(session, _ string) {
	m.review(session, calls.Gone{})
	m.pruneOver()
}

// pruneOver prunes if more answers are kept than the configuration allows, or if answers
// are to go as soon as their clients hold them (an age of 0). Otherwise it only compares
// two numbers, since each confirmed answer calls it.
func (m *Manager) pruneOver() {
	keep := m.config.Load().Consult.Keep
	m.mu.Lock()
	over := len(m.kept) > keep.Count || keep.Age == 0
	m.mu.Unlock()
	if over {
		m.prune()
	}
}

// agePause is the longest pause between two looks for answers that are too old to be
// kept.
const agePause = time.Hour

// retryPause is the pause between attempts to write answers that could not be written.
const retryPause = 5 * time.Second

// expire prunes when the claims of an earlier daemon's clients have expired, and from
// then on at intervals: answers grow too old while nothing else happens. As long as an
// answer is only in memory, it tries again to write that every few seconds. It blocks until
// the manager closes.
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
