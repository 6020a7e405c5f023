package consult

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/progress"
	"holdline/daemon/consult/request"
	"holdline/daemon/consult/steps"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// await waits for a job: see [progress.Await].
func (m *Manager) await(
	ctx context.Context, j *job.Job, wait time.Duration, report progress.Report,
) (ended bool, err error) {
	return progress.Await(ctx, j.Done, wait, j.Created, j.ProgressNote, report)
}

// consult handles a call of the tool consult. It starts a job, or finds the one that
// this line of the client has started before. With wait_s 0 it returns the id at once.
// Else it waits, and returns the answer or, if the wait is over first, the id.
func (m *Manager) consult(ctx context.Context, c tool.Call) (tool.Result, error) {
	var a request.Arguments
	if err := request.Decode(c.Args, &a); err != nil {
		return tool.Result{}, err
	}
	wait := a.Wait(&m.config.Load().Consult)
	how := asking{n: c.N, attended: wait != 0, confirms: true}
	if c.Task {
		how.attended = false
		how.task = &tasks.Asked{ID: tasks.ID(c.Caller.Session, c.N), Render: c.Render, Detail: c.Detail}
	}
	j, done, err := m.begin(ctx, c.Caller, how, &a)
	switch {
	case err != nil:
		return tool.Result{}, err
	case done != nil:
		return done.Result(0, c.Detail), nil
	case j.Rec.Task != nil:
		return m.handle(j)
	case wait == 0:
		j.Detach() // an earlier daemon may have had it attended, by another configuration
		return m.pending(j, c.Detail), nil
	}
	return m.attended(ctx, &c, j, wait)
}

// Recall returns the tool that line n of a session has called if that has begun a consult which
// is live or kept here, and nil otherwise. The session uses it for a call that was made at an
// earlier daemon.
func (m *Manager) Recall(session string, n int64) (t *tool.Remote, recorded bool) {
	id := jobdir.ID(session, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	j, k := m.live[id], m.kept[id]
	switch {
	case j == nil && k == nil:
		return nil, false
	case j != nil && j.Rec.Follows != "", j == nil && k.Follows:
		return m.say.Remote(), true
	}
	return m.tool.Remote(), true
}

// again answers a repeated call of consult whose arguments are lost. How long it waits
// is in the job's record, so the answer is the one that the call would have had with
// its arguments. If the job's answer has been pruned, the fault is outcome_unknown: the
// consult did run.
func (m *Manager) again(ctx context.Context, c tool.Call) (tool.Result, error) {
	j, done, err := m.known(jobdir.ID(c.Caller.Session, c.N), false)
	switch {
	case err != nil:
		return tool.Result{}, err
	case done != nil:
		return done.Result(0, c.Detail), nil
	case j == nil:
		return tool.Result{}, fault.New(fault.OutcomeUnknown, fault.Host, operation,
			"the consult's answer is not kept any more")
	}
	if j.Rec.Task != nil {
		return m.handle(j)
	}
	wait := time.Duration(j.Rec.WaitMS) * time.Millisecond
	switch attended := j.Attended(); {
	case wait == 0 && !attended:
		return m.pending(j, c.Detail), nil
	case wait == 0: // it was begun by a daemon that did not note it
		wait = m.config.Load().Consult.Wait
	}
	j.Attend()
	return m.attended(ctx, &c, j, wait)
}

// attended waits for a job that the call attends, and ends the attendance. The caller
// must have called [job.Job.Attend], or have made the job with its first attendance.
//
// If the wait is over first, the job becomes a background one before the client gets
// its id. If the client cancels or leaves, the job ends with the last attending call.
// If the daemon stops ([tool.ErrStopping]), the job stays: its client comes back at the
// next daemon.
func (m *Manager) attended(ctx context.Context, c *tool.Call, j *job.Job, wait time.Duration) (tool.Result, error) {
	// A call that was begun at an earlier daemon has waited since then.
	ended, err := m.await(ctx, j, max(wait-time.Since(j.Created), 0), progress.OfCall(c))
	if err == nil && !ended {
		j.Detach()
	}
	j.StopAttending(err != nil && !errors.Is(err, tool.ErrStopping)) // after ErrStopping the client may come back
	switch {
	case err != nil:
		return tool.Result{}, err
	case ended:
		return j.Answer.Result(0, c.Detail), nil
	}
	return m.pending(j, c.Detail), nil
}

// unlisted returns the fault about an id of the command line that is no consult's.
func unlisted(id string) *fault.Record {
	return engine.Invalid("there is no consult %q; those that there are: holdline consult list", id)
}

// sees reports whether a caller may know of a consult that was asked for by an identity in a
// project. The command line passes nil and sees all.
func (m *Manager) sees(c *tool.Caller, identity, project string) bool {
	return c == nil || c.Identity == identity &&
		(c.Project == project || m.config.Load().Consult.Share == config.ShareIdentity)
}

// continues returns an invalid_input fault if no consult that the caller sees has this
// session: a session holds all that its consults have read.
func (m *Manager) continues(c *tool.Caller, session string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.kept {
		if k.Session == session && m.sees(c, k.Info.Identity, k.Project) {
			return nil
		}
	}
	return engine.Invalid("session: no kept consult of yours in this project has the session %s; leave session out, "+
		"or take session_id of an answer that consult_result shows", session)
}

// find returns the live job or the kept answer with that id; one of the two is set. Those
// that the caller does not see give the same invalid_input fault as an unknown id; see
// [Manager.sees].
func (m *Manager) find(c *tool.Caller, id string) (*job.Job, *answer.Answer, error) {
	unknown := engine.Invalid(
		"consult_id: %q is not known here; without consult_id, consult_result lists those that are", id)
	if c == nil {
		unknown = unlisted(id)
	}
	m.mu.Lock()
	j, k, unwritten := m.live[id], m.kept[id], m.kept.UnwrittenOf(id)
	m.mu.Unlock()
	switch {
	case j != nil:
		if !m.sees(c, j.Rec.Identity, j.Rec.Project) {
			return nil, nil, unknown
		}
		return j, nil, nil
	case k != nil:
		if !m.sees(c, k.Info.Identity, k.Project) {
			return nil, nil, unknown
		}
		if a, err := m.read(id, unwritten); a != nil || err != nil {
			return nil, a, err
		}
	}
	return nil, nil, unknown
}

// consultResult handles a call of the tool consult_result. It waits for a job and
// returns its answer, or what the program has said so far. Without an id it lists the
// caller's consults. The end of this call never ends the job.
func (m *Manager) consultResult(ctx context.Context, c tool.Call) (tool.Result, error) {
	var a struct {
		ID     string   `json:"consult_id"`
		WaitS  *float64 `json:"wait_s"`
		Offset int      `json:"offset"`
	}
	if err := request.Decode(c.Args, &a); err != nil {
		return tool.Result{}, err
	}
	if a.ID == "" {
		return answer.List(m.List(&c.Caller), c.Detail), nil
	}
	wait := m.config.Load().Consult.Wait
	if a.WaitS != nil {
		wait = time.Duration(*a.WaitS * float64(time.Second))
	}
	j, done, err := m.find(&c.Caller, a.ID)
	if err != nil {
		return tool.Result{}, err
	}
	if done != nil {
		m.noteFetched(a.ID)
		return done.Result(a.Offset, c.Detail), nil
	}
	j.Watch(1)
	ended, err := m.await(ctx, j, wait, progress.OfCall(&c))
	j.Watch(-1)
	switch {
	case err != nil:
		return tool.Result{}, err
	case ended:
		m.noteFetched(a.ID)
		return j.Answer.Result(a.Offset, c.Detail), nil
	}
	return m.pending(j, c.Detail), nil
}

// consultControl handles a call of the tool consult_control. It cancels a job and waits
// until the job has ended, at most as long as all steps of ending a program can take. A
// consult that has ended is returned as it is.
func (m *Manager) consultControl(ctx context.Context, c tool.Call) (tool.Result, error) {
	var a struct {
		ID     string `json:"consult_id"`
		Action string `json:"action"`
	}
	if err := request.Decode(c.Args, &a); err != nil {
		return tool.Result{}, err
	}
	j, done, err := m.find(&c.Caller, a.ID)
	switch {
	case err != nil:
		return tool.Result{}, err
	case done != nil:
		return done.Ending(0, c.Detail), nil
	}
	if err := j.CheckAsked(); err != nil {
		return tool.Result{}, err
	}
	j.End("cancelled by " + c.Caller.Identity)
	ended, err := m.await(ctx, j, m.opt.Ladder.Whole(), progress.OfCall(&c))
	switch {
	case err != nil:
		return tool.Result{}, err
	case ended:
		return j.Answer.Ending(0, c.Detail), nil
	}
	return m.pending(j, c.Detail), nil
}

// Run runs a consult for the command line and blocks until it has ended, without a
// limit.
//
// If ctx is done, the job ends with it, unless the cause is [tool.ErrStopping]: then
// the command can come back to the next daemon with the same session and finds the job
// again. A command's session has one line, which is the consult.
//
// raw are the tool's arguments. Run calls begun once with the job's id, and then
// report with what the job does; both may be nil.
func (m *Manager) Run(
	ctx context.Context, c tool.Caller, raw json.RawMessage, begun, report func(string),
) (*answer.Answer, error) {
	raw, _, _, err := m.tool.Parse(raw)
	if err != nil {
		return nil, err
	}
	var a request.Arguments
	if err := request.Decode(raw, &a); err != nil {
		return nil, err
	}
	j, done, err := m.begin(ctx, c, asking{n: 1, attended: true, shell: true}, &a)
	if err != nil || done != nil {
		return done, err
	}
	if begun != nil {
		begun(j.Rec.ID)
	}
	_, err = m.await(ctx, j, progress.Forever, progress.Lines(report))
	j.StopAttending(err != nil && !errors.Is(err, tool.ErrStopping))
	if err != nil {
		return nil, err
	}
	return j.Answer, nil
}

// List returns the jobs and answers that the caller sees, newest first; see [Manager.sees].
func (m *Manager) List(c *tool.Caller) []answer.Info {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []answer.Info{}
	for _, j := range m.live {
		if m.sees(c, j.Rec.Identity, j.Rec.Project) {
			list = append(list, j.Info(now))
		}
	}
	for _, k := range m.kept {
		if m.sees(c, k.Info.Identity, k.Project) {
			list = append(list, k.Info)
		}
	}
	slices.SortFunc(list, func(a, b answer.Info) int {
		return cmp.Or(cmp.Compare(b.CreatedUnixMS, a.CreatedUnixMS), strings.Compare(a.ID, b.ID))
	})
	return list
}

// Show returns the answer with that id. For a job that has not ended it returns what
// the program has said so far, as a partial answer.
func (m *Manager) Show(id string) (*answer.Answer, error) {
	j, done, err := m.find(nil, id)
	if err != nil || done != nil {
		return done, err
	}
	return m.sofar(j), nil
}

// Wait blocks until a job has ended, and returns its answer. If ctx ends first, the job
// goes on. While Wait blocks, the caller stands in for a client that has not come back:
// the daemon does not end the job for want of one.
func (m *Manager) Wait(ctx context.Context, id string, report func(note string)) (*answer.Answer, error) {
	j, done, err := m.find(nil, id)
	if err != nil || done != nil {
		return done, err
	}
	j.Watch(1)
	defer j.Watch(-1)
	if _, err := m.await(ctx, j, progress.Forever, progress.Lines(report)); err != nil {
		return nil, err
	}
	return j.Answer, nil
}

// Cancel ends a job and blocks until it has ended. It returns the answer of a consult
// that has ended already.
func (m *Manager) Cancel(ctx context.Context, id string) (*answer.Answer, error) {
	j, done, err := m.find(nil, id)
	if err != nil || done != nil {
		return done, err
	}
	if err := j.CheckAsked(); err != nil {
		return nil, err
	}
	j.End("cancelled from the command line")
	if _, err := m.await(ctx, j, progress.Forever, nil); err != nil {
		return nil, err
	}
	return j.Answer, nil
}

// Remove removes a kept answer with its directory. It refuses a job that has not ended.
// It also refuses an answer with an open claim: the client would repeat its request,
// find no job, and so run the consult a second time. The cost of the answer moves to
// the ledger first.
func (m *Manager) Remove(id string) error {
	m.mu.Lock()
	j, k := m.live[id], m.kept[id]
	switch now := time.Now(); {
	case j != nil:
		m.mu.Unlock()
		return engine.Invalid("consult_id: %s has not ended; cancel it first", id)
	case k == nil:
		m.mu.Unlock()
		return unlisted(id)
	case m.live[k.Info.Panel] != nil:
		m.mu.Unlock()
		return engine.Invalid("consult_id: %s belongs to panel %s, which has not ended; cancel that first",
			id, k.Info.Panel)
	case k.Claim.IsOpen(now):
		m.mu.Unlock()
		return fault.New(fault.Denied, fault.Host, operation,
			"consult %s: its client may still come for the answer, and would have it run again", id)
	default:
		delete(m.kept, id)
		m.ledger.Add(k.Cost, now)
	}
	m.mu.Unlock()
	m.writeLedger()
	return jobdir.Remove(filepath.Join(m.opt.Dir, id))
}

// lastSteps is how many steps of a consult that has not ended detail=full shows.
const lastSteps = 10

// pending returns the result of a call whose wait was over before its job had ended. It
// first writes to disk that the job is a background job: see [job.Job.SaveDetached].
func (m *Manager) pending(j *job.Job, d tool.Detail) tool.Result {
	a := m.sofar(j)
	if a.EndedUnixMS > 0 { // just now
		return a.Result(0, d)
	}
	if d == tool.Full && a.State == answer.Running { // so it is not shared
		var err error
		if a.Steps, err = steps.Last(j.Dir, lastSteps); err != nil {
			m.opt.Log.Warn("transcript of a consult cannot be read", "consult", j.Rec.ID, "err", err)
		}
	}
	if err := j.SaveDetached(); err != nil { // the client has the id and can come back all the same
		m.opt.Log.Error("consult cannot be written down as a background one", "consult", j.Rec.ID, "err", err)
		its := *a // the job may have ended, and its answer is shared
		its.Why += "; it cannot be written down that you know of it, so it ends if the daemon does, and what it has " +
			"said is kept"
		a = &its
	}
	return a.Pending(d)
}

// sofar returns a partial answer for a job that has not ended: the text from its
// transcript, and the progress that the engine process has reported. If the job has
// ended meanwhile, it returns the job's answer.
func (m *Manager) sofar(j *job.Job) *answer.Answer {
	said, err := engine.ReadTranscript(j.Dir)
	if err != nil {
		m.opt.Log.Warn("transcript of a consult cannot be read", "consult", j.Rec.ID, "err", err)
	}
	a, ended := j.Status()
	if ended {
		return a
	}
	if j.Rec.Members != nil {
		panel := answer.Panel(&j.Rec, m.members(j), a.State)
		panel.Partial, panel.Why = true, a.Why
		return panel
	}
	a.Messages, _ = answer.Messages(j.Dir, false) // only for people
	a.Text, a.SessionID = said.Text, cmp.Or(a.SessionID, said.Session)
	if len(a.Models) == 0 && said.Model != "" {
		a.Models = []string{said.Model}
	}
	return a
}
