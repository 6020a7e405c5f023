package consult

import (
	"context"
	"encoding/json"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
)

// What sessions say of the calls that jobs were begun by, and what they ask of jobs by their tasks.

// Recall returns the tool that line n of a session has called if that has begun a consult which
// is live or kept here, and nil otherwise. The session uses it for a call that was made at an
// earlier daemon.
func (m *Manager) Recall(session string, n int64, _ string) (t *tool.Remote, recorded bool) {
	switch j := m.job(jobdir.ID(session, n)); {
	case j == nil:
		return nil, false
	case j.Rec.Follows != "":
		return m.say.Remote(), true
	}
	return m.tool.Remote(), true
}

// Resumed ends the attended jobs of a session whose client is back and does not wait for them.
func (m *Manager) Resumed(session string, pending map[int64]struct{}) {
	o := calls.Resumed(pending)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sayLocked(session, func(j *Job) {
		j.reviewLocked(o)
		if j.kept == nil && o.HasConfirmed(j.Rec.Key()) {
			j.endUnattendedLocked("its client cancelled it")
		}
	})
}

// Confirmed ends the claim of the client, which has the answer to its line n.
func (m *Manager) Confirmed(session string, n int64) {
	m.mu.Lock()
	none := len(m.jobs)+len(m.unread) == 0
	m.mu.Unlock()
	if none { // as mostly; each answer to a client comes here
		return
	}
	id := jobdir.ID(session, n)
	m.mu.Lock()
	j := m.jobs[id]
	if j != nil {
		j.claimed = false
	} else if m.unread[id] != nil {
		m.said = append(m.said, heard{session, func(j *Job) { j.claimed = j.claimed && j.Rec.N != n }})
	}
	m.mu.Unlock()
	if j != nil && j.kept != nil {
		m.pruneOver()
	}
}

// Closed ends the claims of a session that is over.
func (m *Manager) Closed(session, _ string) {
	m.mu.Lock()
	m.sayLocked(session, func(j *Job) { j.reviewLocked(calls.Gone{}) })
	m.mu.Unlock()
	m.pruneOver()
}

// pruneOver prunes if more answers are kept than there may be.
func (m *Manager) pruneOver() {
	keep := m.config.Load().Consult.Keep
	if _, _, keeps := m.Counts(); keeps > keep.Count || keep.Age == 0 {
		m.prune()
	}
}

// fetched records that a client has asked for the answer of a job that has ended.
func (m *Manager) fetched(id string) {
	m.mu.Lock()
	if j := m.jobs[id]; j != nil && j.kept != nil {
		j.kept.fetched = true
	}
	m.mu.Unlock()
	m.pruneOver()
}

// handle returns the result that tells a client of the task that its call has become.
func (m *Manager) handle(j *Job) (tool.Result, error) {
	raw, err := m.working(j).Created()
	return tool.Result{Task: raw}, err
}

// ttl returns how long after its creation a task is kept that took so long.
func (m *Manager) ttl(took time.Duration) time.Duration {
	return tasks.TTL(m.config.Load().Consult.Keep.Age, took)
}

// working returns the task of a live job.
func (m *Manager) working(j *Job) *tasks.Task {
	created, now := time.UnixMilli(j.Rec.CreatedUnixMS), time.Now() // the same at each daemon
	return tasks.New(j.Rec.Task.ID, j.progressNote(), created, now, m.ttl(now.Sub(created)))
}

// byTask returns the job that a caller asks for by the id of its task, or nil. It waits until all jobs are
// read, or until ctx ends.
func (m *Manager) byTask(ctx context.Context, c *tool.Caller, id string) (*Job, error) {
	if err := m.awaitRead(ctx, ""); err != nil {
		return nil, err
	}
	age, now := m.config.Load().Consult.Keep.Age, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if t := j.Rec.Task; t != nil && t.ID == id && (j.kept == nil || j.hasTaskLocked(age, now)) && m.sees(c, j) {
			return j, nil
		}
	}
	return nil, nil //nolint:nilnil // there is no such task
}

// Task returns the task with that id, nil if there is none. It waits up to wait for its end.
func (m *Manager) Task(
	ctx context.Context, c *tool.Caller, id string, wait time.Duration, fetched bool,
) (*tasks.Task, error) {
	j, err := m.byTask(ctx, c, id)
	if j == nil {
		return nil, err
	}
	var a *answer.Answer
	if j.kept != nil {
		var err error
		if a, err = m.read(j); a == nil || err != nil {
			return nil, err
		}
	} else {
		ended, err := j.await(ctx, wait, nil)
		switch {
		case err != nil:
			return nil, err
		case !ended:
			return m.working(j), nil
		}
		a = j.answer
	}
	t := m.ended(j.Rec.Task, a)
	if fetched {
		m.fetched(j.Rec.ID)
	}
	return t, nil
}

// ended returns the task of a job that has ended with the answer a.
func (m *Manager) ended(asked *tasks.Asked, a *answer.Answer) *tasks.Task {
	created, end := time.UnixMilli(a.CreatedUnixMS), time.UnixMilli(a.EndedUnixMS)
	t := tasks.New(asked.ID, string(a.State), created, end, m.ttl(end.Sub(created)))
	if a.State == answer.Cancelled {
		t.Status, t.Message = tasks.Cancelled, a.Why
		return t
	}
	t.Status, t.Result = tasks.Completed, m.tool.Encode(a.Result(0, asked.Detail), asked.Render)
	return t
}

// UpdateTask ignores the client's input: a consult asks for none.
func (m *Manager) UpdateTask(
	ctx context.Context, c *tool.Caller, id string, _ json.RawMessage,
) (known bool, err error) {
	j, err := m.byTask(ctx, c, id)
	return j != nil, err
}

// CancelTask ends the job of a task, and waits until it has ended.
func (m *Manager) CancelTask(ctx context.Context, c *tool.Caller, id string) (known bool, err error) {
	j, err := m.byTask(ctx, c, id)
	if j != nil && j.kept == nil {
		j.end("cancelled by " + c.Identity)
		_, err = j.await(ctx, m.opt.Ladder.Whole(), nil)
	}
	return j != nil, err
}
