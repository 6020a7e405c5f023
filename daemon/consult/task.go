package consult

import (
	"context"
	"encoding/json"
	"time"

	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/job"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
)

// noteFetched records that a client has fetched the answer of a consult, which may be pruned
// then.
func (m *Manager) noteFetched(id string) {
	m.mu.Lock()
	if k := m.kept[id]; k != nil {
		k.Fetched = true
	}
	m.mu.Unlock()
	m.pruneOver()
}

// handle returns the result of a call that gets a task: its job is on disk.
func (m *Manager) handle(j *job.Job) (tool.Result, error) {
	raw, err := m.working(j).Created()
	return tool.Result{Task: raw}, err
}

// working returns the task of a job that has not ended.
func (m *Manager) working(j *job.Job) *tasks.Task {
	created, now := time.UnixMilli(j.Rec.CreatedUnixMS), time.Now() // the same at each daemon
	ttl := tasks.TTL(m.config.Load().Consult.Keep.Age, now.Sub(created))
	return tasks.New(j.Rec.Task.ID, j.ProgressNote(), created, now, ttl)
}

// byTask returns the consult and how the task was asked for; "" if there is no such task, or the
// caller does not see it.
func (m *Manager) byTask(c *tool.Caller, id string) (consult string, asked *tasks.Asked) {
	age, now := m.config.Load().Consult.Keep.Age, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.live {
		if t := j.Rec.Task; t != nil && t.ID == id && m.sees(c, j.Rec.Identity, j.Rec.Project) {
			return j.Rec.ID, t
		}
	}
	if k := m.kept.ByTask(id, age, now); k != nil && m.sees(c, k.Info.Identity, k.Project) {
		return k.Info.ID, k.Task
	}

	return "", nil
}

// Task implements [tasks.Store].
func (m *Manager) Task(
	ctx context.Context, c *tool.Caller, id string, wait time.Duration, fetched bool,
) (*tasks.Task, error) {
	consult, asked := m.byTask(c, id)
	if asked == nil {
		return nil, nil //nolint:nilnil // there is no such task
	}
	j, a, err := m.find(c, consult)
	if j != nil {
		ended, err := m.await(ctx, j, wait, nil)
		switch {
		case err != nil:
			return nil, err
		case !ended:
			return m.working(j), nil
		}
		a = j.Answer
	}
	if err != nil {
		return nil, err
	}
	t := m.ended(asked, a)
	if fetched {
		m.noteFetched(consult)
	}
	return t, nil
}

// ended returns the task of a consult that has ended: its result is the one that consult_result
// returns.
func (m *Manager) ended(asked *tasks.Asked, a *answer.Answer) *tasks.Task {
	created, end := time.UnixMilli(a.CreatedUnixMS), time.UnixMilli(a.EndedUnixMS)
	t := tasks.New(asked.ID, string(a.State), created, end,
		tasks.TTL(m.config.Load().Consult.Keep.Age, end.Sub(created)))
	if a.State == answer.Cancelled {
		t.Status, t.Message = tasks.Cancelled, a.Why
		return t
	}
	t.Status, t.Result = tasks.Completed, m.tool.Encode(a.Result(0, asked.Detail), asked.Render)
	return t
}

// UpdateTask implements [tasks.Store]. A consult asks its client nothing.
func (m *Manager) UpdateTask(_ context.Context, c *tool.Caller, id string, _ json.RawMessage) (known bool, err error) {
	_, asked := m.byTask(c, id)
	return asked != nil, nil
}

// CancelTask implements [tasks.Store]. It blocks until the job has its answer.
func (m *Manager) CancelTask(ctx context.Context, c *tool.Caller, id string) (known bool, err error) {
	consult, asked := m.byTask(c, id)
	m.mu.Lock()
	j := m.live[consult]
	m.mu.Unlock()
	if j != nil {
		j.End("cancelled by " + c.Identity)
		_, err = m.await(ctx, j, m.opt.Ladder.Whole(), nil)
	}
	return asked != nil, err
}
