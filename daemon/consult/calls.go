package consult

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
	"holdline/daemon/consult/steps"
	"holdline/daemon/plural"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

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
		j.detach() // an earlier daemon may have had it attended, by another configuration
		return m.pending(j, c.Detail), nil
	}
	return m.attended(ctx, &c, j, wait)
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
	m.mu.Lock()
	background := wait == 0 && !j.Rec.Attended
	if !background {
		j.attending++
	}
	m.mu.Unlock()
	if background {
		return m.pending(j, c.Detail), nil
	}
	return m.attended(ctx, &c, j, cmp.Or(wait, m.config.Load().Consult.Wait)) // an older daemon did not note it
}

// attended waits for a job that the call attends, and ends the attendance. The caller
// must have called [Manager.attend], or have made the job with its first attendance.
//
// If the wait is over first, the job becomes a background one before the client gets
// its id. If the client cancels or leaves, the job ends with the last attending call.
// If the daemon stops ([tool.ErrStopping]), the job stays: its client comes back at the
// next daemon.
func (m *Manager) attended(ctx context.Context, c *tool.Call, j *Job, wait time.Duration) (tool.Result, error) {
	// A call that was begun at an earlier daemon has waited since then.
	ended, err := j.await(ctx, max(wait-time.Since(j.created), 0), ofCall(c))
	if err == nil && !ended {
		j.detach()
	}
	j.stopAttending(err != nil && !errors.Is(err, tool.ErrStopping)) // after ErrStopping the client may come back
	switch {
	case err != nil:
		return tool.Result{}, err
	case ended:
		return j.answer.Result(0, c.Detail), nil
	}
	return m.pending(j, c.Detail), nil
}

// sees reports whether a caller may know of a job: one of its identity, in its project unless the
// configuration shares more. The command line passes nil and sees all.
func (m *Manager) sees(c *tool.Caller, j *Job) bool {
	if c == nil || j.Rec.Damaged && (j.Rec.Identity == "" || c.Identity == j.Rec.Identity) {
		return true // of a damaged one nothing is known but that it was asked for
	}
	return c.Identity == j.Rec.Identity &&
		(c.Project == j.Rec.Project || m.config.Load().Consult.Share == config.ShareIdentity)
}

// continues returns an invalid_input fault if no consult that the caller sees has this
// session: a session holds all that its consults have read.
func (m *Manager) continues(c *tool.Caller, session string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if j.kept != nil && j.kept.session == session && m.sees(c, j) {
			return nil
		}
	}
	return engine.Invalid("session: no kept consult of yours in this project has the session %s; leave session out, "+
		"or take session_id of an answer that consult_result shows", session)
}

// find returns the live job or the kept answer with that id; one of the two is set. Those that the
// caller does not see give the same invalid_input fault as an unknown id. It waits for one that is yet to
// be read, or until ctx ends.
func (m *Manager) find(ctx context.Context, c *tool.Caller, id string) (*Job, *answer.Answer, error) {
	if err := m.awaitRead(ctx, id); err != nil {
		return nil, nil, err
	}
	j := m.job(id)
	switch {
	case j == nil || !m.sees(c, j):
	case j.kept == nil:
		return j, nil, nil
	default:
		if a, err := m.read(j); a != nil || err != nil {
			return nil, a, err
		}
	}
	return nil, nil, unknown(c, id)
}

// unknown returns the fault about an id that is no consult's; c is nil for the command line.
func unknown(c *tool.Caller, id string) *fault.Record {
	if c == nil {
		return engine.Invalid("there is no consult %q; those that there are: holdline consult list", id)
	}
	return engine.Invalid(
		"consult_id: %q is not known here; without consult_id, consult_result lists those that are", id)
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
	j, done, err := m.find(ctx, &c.Caller, a.ID)
	if err != nil {
		return tool.Result{}, err
	}
	if done != nil {
		m.fetched(a.ID)
		return done.Result(a.Offset, c.Detail), nil
	}
	j.watch(1)
	ended, err := j.await(ctx, wait, ofCall(&c))
	j.watch(-1)
	switch {
	case err != nil:
		return tool.Result{}, err
	case ended:
		m.fetched(a.ID)
		return j.answer.Result(a.Offset, c.Detail), nil
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
	j, done, err := m.find(ctx, &c.Caller, a.ID)
	switch {
	case err != nil:
		return tool.Result{}, err
	case done != nil:
		return done.Ending(0, c.Detail), nil
	}
	if err := j.checkAsked(); err != nil {
		return tool.Result{}, err
	}
	j.end("cancelled by " + c.Caller.Identity)
	ended, err := j.await(ctx, m.opt.Ladder.Whole(), ofCall(&c))
	switch {
	case err != nil:
		return tool.Result{}, err
	case ended:
		return j.answer.Ending(0, c.Detail), nil
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
	_, err = j.await(ctx, forever, ofLines(report))
	j.stopAttending(err != nil && !errors.Is(err, tool.ErrStopping))
	if err != nil {
		return nil, err
	}
	return j.answer, nil
}

// List returns the jobs and answers that the caller sees, newest first; see [Manager.sees].
func (m *Manager) List(c *tool.Caller) []answer.Info {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []answer.Info{}
	for _, j := range m.jobs {
		if m.sees(c, j) {
			list = append(list, j.infoLocked(now))
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
	j, done, err := m.find(m.life, nil, id)
	if err != nil || done != nil {
		return done, err
	}
	return m.sofar(j), nil
}

// Wait blocks until a job has ended, and returns its answer. If ctx ends first, the job
// goes on. While Wait blocks, the caller stands in for a client that has not come back:
// the daemon does not end the job for want of one.
func (m *Manager) Wait(ctx context.Context, id string, report func(note string)) (*answer.Answer, error) {
	j, done, err := m.find(ctx, nil, id)
	if err != nil || done != nil {
		return done, err
	}
	j.watch(1)
	defer j.watch(-1)
	if _, err := j.await(ctx, forever, ofLines(report)); err != nil {
		return nil, err
	}
	return j.answer, nil
}

// Cancel ends a job and blocks until it has ended. It returns the answer of a consult
// that has ended already.
func (m *Manager) Cancel(ctx context.Context, id string) (*answer.Answer, error) {
	j, done, err := m.find(ctx, nil, id)
	if err != nil || done != nil {
		return done, err
	}
	if err := j.checkAsked(); err != nil {
		return nil, err
	}
	j.end("cancelled from the command line")
	if _, err := j.await(ctx, forever, nil); err != nil {
		return nil, err
	}
	return j.answer, nil
}

// Remove removes a kept answer with its directory. It refuses a job that has not ended.
// It also refuses an answer with an open claim: the client would repeat its request,
// find no job, and so run the consult a second time. The cost of the answer moves to
// the ledger first.
func (m *Manager) Remove(id string) error {
	if err := m.awaitRead(m.life, id); err != nil {
		return err
	}
	now := time.Now()
	m.mu.Lock()
	j := m.jobs[id]
	var err error
	switch {
	case j == nil:
		err = unknown(nil, id)
	case j.kept == nil:
		err = engine.Invalid("consult_id: %s has not ended; cancel it first", id)
	case j.isOfLivePanelLocked():
		err = engine.Invalid("consult_id: %s belongs to panel %s, which has not ended; cancel that first",
			id, j.Rec.Panel)
	case j.isClaimedLocked(now):
		err = fault.New(fault.Denied, fault.Host, operation,
			"consult %s: its client may still come for the answer, and would have it run again", id)
	default:
		m.forgetLocked(j, now)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	m.writeLedger(false)
	return jobdir.Remove(j.Dir)
}

// isOfLivePanelLocked reports whether the job is a member of a panel that has not ended.
func (j *Job) isOfLivePanelLocked() bool {
	panel := j.m.jobs[j.Rec.Panel]
	return panel != nil && panel.kept == nil
}

// lastSteps is how many steps of a consult that has not ended detail=full shows.
const lastSteps = 10

// pending returns the result of a call whose wait was over before its job had ended. It
// first writes to disk that the job is a background job: see [Job.saveDetached].
func (m *Manager) pending(j *Job, d tool.Detail) tool.Result {
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
	if err := j.saveDetached(); err != nil { // the client has the id and can come back all the same
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
func (m *Manager) sofar(j *Job) *answer.Answer {
	said, err := engine.ReadTranscript(j.Dir)
	if err != nil {
		m.opt.Log.Warn("transcript of a consult cannot be read", "consult", j.Rec.ID, "err", err)
	}
	a, ended := j.status()
	if ended {
		return a
	}
	if j.isPanel() {
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

// ofCall returns the report to the client of a call; nil if it wants none.
func ofCall(c *tool.Call) progressReport {
	if c.Progress == nil {
		return nil
	}
	last := -1.0
	return func(elapsed time.Duration, note string) {
		last = max(last+1, float64(elapsed.Milliseconds())) // it has to grow
		c.Progress(last, 0, note+", "+plural.Seconds(elapsed))
	}
}

// ofLines returns a report in lines; nil if write is.
func ofLines(write func(string)) progressReport {
	if write == nil {
		return nil
	}
	return func(elapsed time.Duration, note string) { write(note + ", " + plural.Seconds(elapsed)) }
}
