package consult

import (
	"context"
	"path/filepath"
	"time"

	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
)

// isOwed reports whether a client may still come for the end of a task.
func (k *kept) isOwed(age time.Duration, now time.Time) bool {
	return k.task != "" && !k.fetched && k.hasTask(age, now)
}

// hasTask reports whether a task that has ended is still kept.
func (k *kept) hasTask(age time.Duration, now time.Time) bool {
	created := time.UnixMilli(k.info.CreatedUnixMS)
	return now.Before(created.Add(tasks.TTL(age, k.cost.Ended.Sub(created))))
}

// handle returns the result of a call that gets a task: its job is on disk.
func (m *Manager) handle(j *job) (tool.Result, error) {
	raw, err := m.working(j).Created()
	return tool.Result{Task: raw}, err
}

// working returns the task of a job that has not ended.
func (m *Manager) working(j *job) *tasks.Task {
	created, now := time.UnixMilli(j.rec.CreatedUnixMS), time.Now() // the same at each daemon
	ttl := tasks.TTL(m.config.Load().Consult.Keep.Age, now.Sub(created))
	return tasks.New(j.rec.Task.ID, j.progressNote(), created, now, ttl)
}

// findTask returns the job or the entry of the kept answer of a task. It returns neither if there
// is none, or none that the caller sees.
func (m *Manager) findTask(c *tool.Caller, id string) (*job, *kept) {
	age, now := m.config.Load().Consult.Keep.Age, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.live {
		if j.rec.Task != nil && j.rec.Task.ID == id && m.sees(c, j.rec.Identity, j.rec.Project) {
			return j, nil
		}
	}
	for _, k := range m.kept {
		if k.task == id && id != "" && k.hasTask(age, now) && m.sees(c, k.info.Identity, k.project) {
			return nil, k
		}
	}
	return nil, nil
}

// Task implements [tasks.Store].
func (m *Manager) Task(
	ctx context.Context, c *tool.Caller, id string, wait time.Duration, fetched bool,
) (*tasks.Task, error) {
	j, k := m.findTask(c, id)
	if j != nil {
		ended, err := m.await(ctx, j, wait, nil)
		switch {
		case err != nil:
			return nil, err
		case !ended:
			return m.working(j), nil
		}
		if _, k = m.findTask(c, id); k == nil { // it ended a moment ago
			return m.ended(&j.rec, j.answer)
		}
	}
	if k == nil {
		return nil, nil //nolint:nilnil // there is no such task
	}
	m.mu.Lock()
	job, unwritten := k.info.ID, k.answer
	m.mu.Unlock()
	a, err := m.read(job, unwritten)
	if err != nil || a == nil {
		return nil, err
	}
	rec, err := jobdir.ReadRecord(filepath.Join(m.opt.Dir, job))
	if err != nil {
		return nil, err
	}
	t, err := m.ended(&rec, a)
	if err == nil && fetched {
		m.mu.Lock()
		k.fetched = true
		m.mu.Unlock()
		m.pruneOver()
	}
	return t, err
}

// ended returns the task of a job that has ended with an answer: its result is the one that
// consult_result returns.
func (m *Manager) ended(rec *jobdir.Record, a *answer.Answer) (*tasks.Task, error) {
	created, end := time.UnixMilli(a.CreatedUnixMS), time.UnixMilli(a.EndedUnixMS)
	ttl := tasks.TTL(m.config.Load().Consult.Keep.Age, end.Sub(created))
	t := tasks.New(rec.Task.ID, string(a.State), created, end, ttl)
	if a.State == answer.Cancelled {
		t.Status, t.Message = tasks.Cancelled, a.Why
		return t, nil
	}
	t.Status, t.Result = tasks.Completed, m.tool.Encode(a.Result(0, rec.Task.Detail), rec.Task.Render)
	return t, nil
}

// CancelTask implements [tasks.Store]. It blocks until the job has its answer.
func (m *Manager) CancelTask(ctx context.Context, c *tool.Caller, id string) (known bool, err error) {
	j, k := m.findTask(c, id)
	if j != nil {
		j.end("cancelled by " + c.Identity)
		_, err = m.await(ctx, j, m.opt.Ladder.Whole(), nil)
	}
	return j != nil || k != nil, err
}
