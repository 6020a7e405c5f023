package consult

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/budget"
	"holdline/daemon/consult/failures"
	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/queue"
	"holdline/daemon/consult/shelf"
	"holdline/daemon/events"
	"holdline/daemon/plural"
	"holdline/daemon/tool"
	"holdline/daemon/waiting"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck"
)

// Manager owns the jobs and the kept answers. It is safe for concurrent use. It touches no
// file and calls no worker while it holds mu.
type Manager struct {
	opt    Options
	config atomic.Pointer[config.Config]
	tool   *tool.Prepared // consult, for the command line and for repeated calls
	say    *tool.Prepared // consult_say, for repeated calls

	// The manager stops in steps. First open ends: it takes no more jobs, for the reason
	// that is the cause. If the jobs have not ended in time, or are not to end, their
	// lives end, see [job.Job]; with life all of them do.
	open     context.Context //nolint:containedctx // see above
	refuse   context.CancelCauseFunc
	life     context.Context //nolint:containedctx // see above
	abandon  context.CancelFunc
	begun    time.Time // when the manager was made
	jobs     sync.WaitGroup
	retry    chan struct{} // holds a token when an answer could not be written
	failures failures.Log

	ledgerFile sync.Mutex // orders the writes of the ledger's file, and guards nothing else; taken before mu

	// mu guards the fields that follow, and the claims of jobs and answers.
	mu     lockcheck.Mutex
	live   map[string]*job.Job // queued or running, by id
	queue  *queue.Queue[*job.Job]
	kept   shelf.Shelf   // ended
	ledger budget.Ledger // what those consults have cost whose answers are removed
	window budget.Window // of the subscription
}

// New returns a manager that has adopted what earlier daemons have left: it keeps their
// answers, queues the jobs that never began, and continues those that have, or had, a
// worker. When New returns, all jobs are known and lookups find them; goroutines attach
// to their workers meanwhile. The caller must call [Manager.Close] or [Manager.Detach].
func New(opt Options) (*Manager, error) {
	if opt.Return == 0 {
		opt.Return = protocol.StartWindow
	}
	if opt.Ladder == (engine.Ladder{}) {
		opt.Ladder = engine.DefaultLadder()
	}
	m := &Manager{
		opt: opt, begun: time.Now(), live: map[string]*job.Job{}, kept: shelf.Shelf{},
		queue: queue.New[*job.Job](), retry: make(chan struct{}, 1),
	}
	m.open, m.refuse = context.WithCancelCause(context.Background())
	m.life, m.abandon = context.WithCancel(context.Background())
	if m.opt.Audit == nil {
		m.opt.Audit = func(answer.Audit) {}
	}
	m.config.Store(opt.Config)
	for _, one := range []struct {
		t  tool.Tool
		to **tool.Prepared
	}{{m.consultTool(), &m.tool}, {m.sayTool(), &m.say}} {
		var err error
		if *one.to, err = tool.Prepare(&one.t); err != nil {
			return nil, fmt.Errorf("tool %s: %w", one.t.Name, err)
		}
	}
	return m, m.load()
}

// Configure puts another configuration into force, which must not change any more. It
// holds for jobs that are asked for later, but its budgets hold for all that have not
// started. If more jobs may run at once now, waiting jobs start.
func (m *Manager) Configure(cfg *config.Config) {
	m.config.Store(cfg)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue.Start(cfg.Consult.MaxConcurrent)
}

// refusalLocked returns why the manager takes no job any more, and nil if it takes
// jobs. After [Manager.Detach] that is [tool.ErrStopping]: the client may ask the next
// daemon. The caller must hold m.mu.
func (m *Manager) refusalLocked() error { return context.Cause(m.open) }

// known returns the live job or the kept answer with that id, or neither. With attended
// it counts the caller as attending the job, under the same lock: the job cannot end as
// unattended in between.
func (m *Manager) known(id string, attended bool) (*job.Job, *answer.Answer, error) {
	m.mu.Lock()
	refusal, j, k, unwritten := m.refusalLocked(), m.live[id], m.kept[id], m.kept.UnwrittenOf(id)
	if refusal == nil && j != nil && attended {
		j.Attend()
	}
	m.mu.Unlock()
	switch {
	case refusal != nil:
		return nil, nil, refusal
	case j != nil || k == nil:
		return j, nil, nil
	}
	a, err := m.read(id, unwritten)
	return nil, a, err
}

// enqueue puts a new job into the queue, writes its record, and starts its goroutine. The
// job takes its place in the queue before the write, so that the queue must have room before
// anything is written. It may even get a slot meanwhile, but only its goroutine can use that,
// and the record is on disk before the goroutine starts.
//
// Callers that find the job meanwhile wait for it as for any other. If the record cannot be
// written, they get the fault as its answer, and enqueue returns it.
func (m *Manager) enqueue(cfg *config.Config, j *job.Job, eng engine.Engine) error {
	if err := m.admit(cfg, j, eng); err != nil {
		return err
	}
	m.asked(j)
	return m.launch(j)
}

// asked logs that a consult was asked for. It comes before the consult runs, so that people who
// watch see the question first.
func (m *Manager) asked(j *job.Job) {
	m.opt.Log.Info("consult asked for", "consult", j.Rec.ID, "identity", j.Rec.Identity, "attended", !j.IsDetached(),
		"event", events.New(control.Asked, j.Rec.ID, "%s asks %s: %s", j.Rec.Identity, j.Rec.Engine,
			j.Info(j.Created).Question))
}

// launch writes the record of an admitted job, and starts its goroutine. If the record cannot
// be written, the job ends with a fault, and launch returns it.
func (m *Manager) launch(j *job.Job) error {
	if f := j.Record(); f != nil {
		m.withdraw(j, f)
		return f
	}
	faultpoint.At("consult.queued")
	go func() {
		defer m.jobs.Done()
		m.serve(j)
	}()
	return nil
}

// admit makes a new job known, and puts it into the queue if that has room and the budgets
// have. It counts the goroutine of the job as one that [Manager.drain] waits for. The caller
// must start that goroutine or call [Manager.withdraw].
func (m *Manager) admit(cfg *config.Config, j *job.Job, eng engine.Engine) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refusalLocked(); err != nil {
		return err
	}
	if m.live[j.Rec.ID] != nil {
		return fault.New(fault.InternalFailure, fault.Host, operation, "the request was asked twice at once")
	}
	if err := m.queue.Room(j.Rec.Identity, 1); err != nil {
		return err
	}
	if err := m.reserveLocked(cfg, j, eng); err != nil {
		return err
	}
	m.live[j.Rec.ID] = j
	m.queue.Add(j)
	m.queue.Start(m.config.Load().Consult.MaxConcurrent)
	m.jobs.Add(1)
	return nil
}

// withdraw takes back an admitted job whose record could not be written. Nothing of the job
// is kept.
func (m *Manager) withdraw(j *job.Job, f *fault.Record) {
	defer m.jobs.Done()
	m.mu.Lock()
	delete(m.live, j.Rec.ID)
	if !m.queue.Remove(j) {
		m.queue.Release(j)
	}
	m.queue.Start(m.config.Load().Consult.MaxConcurrent)
	m.mu.Unlock()
	j.Finish(answer.FromOutcome(&j.Rec, &engine.Outcome{Fault: f}, time.Now(), ""))
}

// serve takes a job from the queue, or from its adoption, to its answer. It runs in the
// job's own goroutine. If the next daemon is to go on with the job, serve returns
// without an answer.
func (m *Manager) serve(j *job.Job) {
	switch {
	case j.Rec.Members != nil:
		m.servePanel(j)
	case j.Adopted || m.wait(j):
		m.drive(j)
	}
}

// wait blocks until the job has a slot and returns true. It returns false if the job is
// left to the next daemon, or if the job was cancelled in the queue; it has finished a
// cancelled one.
//
// A job that was cancelled just after it left the queue has its slot. Then wait returns
// true, and the call is not sent.
func (m *Manager) wait(j *job.Job) bool {
	select {
	case <-j.Slot:
	case <-j.Life.Done():
		return false
	case <-j.Stop:
		m.mu.Lock()
		waited := m.queue.Remove(j)
		m.mu.Unlock()
		if waited {
			m.finish(j, engine.Outcome{
				Fault: fault.New(fault.Cancelled, fault.Host, operation, "the consult was cancelled before it began"),
			}, time.Now(), false)
			m.clear(j.Dir) // an earlier daemon may have died when it was about to begin
			return false
		}
	}
	j.Begin()
	return true
}

// finish keeps the answer of a job whose run ended at that time with out, moves the job
// from the live ones to the kept ones, and wakes the callers that wait. ran means that
// the job has a slot to give back. It writes the audit line before it removes the
// temporary directory: see [unaudited]. A claim whose client is not connected gets its
// full time from now.
func (m *Manager) finish(j *job.Job, out engine.Outcome, at time.Time, ran bool) {
	a, entry := m.keepAnswer(j, out, at)
	faultpoint.At("consult.kept")
	m.writeAudit(&j.Rec, a, out.Argv)
	if a.State == answer.Failed && a.Fault != nil {
		m.failures.Failed(at, a.Fault)
	}
	if err := os.RemoveAll(filepath.Join(j.Dir, jobdir.DirTemp)); err != nil {
		m.opt.Log.Warn("temporary directory cannot be removed", "consult", j.Rec.ID, "err", err)
	}
	m.retire(j, a, entry, at, ran)
}

// retire moves a job whose answer is kept from the live ones to the kept ones, and wakes the
// callers that wait.
func (m *Manager) retire(j *job.Job, a *answer.Answer, entry *shelf.Entry, at time.Time, ran bool) {
	m.mu.Lock()
	delete(m.live, j.Rec.ID)
	if entry.Claim = j.Claim; entry.Claim != nil && !entry.Claim.Expires.IsZero() {
		entry.Claim.Expires = time.Now().Add(m.opt.Return)
	}
	m.kept[j.Rec.ID] = entry
	if ran {
		m.queue.Release(j)
	}
	m.queue.Start(m.config.Load().Consult.MaxConcurrent)
	m.mu.Unlock()
	j.Finish(a)
	code := fault.Code("")
	note := events.New(control.Answered, j.Rec.ID, "%s after %s", a.State, plural.Seconds(at.Sub(j.Created)))
	note.Background = j.IsDetached() && j.Rec.Task == nil // who has a task asks for it
	if a.Fault != nil {
		code, note.Bad = a.Fault.Fault.Code, a.State == answer.Failed
		note.Text += ": " + a.Fault.Fault.Detail
	}
	m.opt.Log.Info("consult ended", "consult", j.Rec.ID, "identity", j.Rec.Identity, "state", a.State,
		"code", code,
		"dur", time.Since(j.Created), "event", note)
	m.prune()
}

// Counts returns how many jobs run, how many wait and how many answers are kept.
func (m *Manager) Counts() (running, queued, keeps int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	running, queued = m.queue.Counts()
	return running, queued, len(m.kept)
}

// engine returns the engine with that name, or an invalid_input fault that lists the
// names.
func (m *Manager) engine(name string) (engine.Engine, error) {
	if eng := m.opt.Engines.Find(name); eng != nil {
		return eng, nil
	}
	return nil, engine.Invalid("engine: %q is not known, there are %s", name,
		strings.Join(engines.Names(&m.config.Load().Consult), ", "))
}

// Check returns what is known of an engine's program, or a fault if a consult of it
// could not run now. With name "" it checks the engine of the configuration. logins are as
// in [tool.Caller]: the fault names those which the daemon lacks. Check may take
// seconds.
func (m *Manager) Check(ctx context.Context, name string, logins []string) (engine.Info, error) {
	eng, err := m.engine(cmp.Or(name, m.config.Load().Consult.Engine))
	if err != nil {
		return engine.Info{}, err
	}
	info, err := eng.Check(ctx)
	return info, engine.NameLacking(err, eng, logins)
}

// Detach stops the manager and leaves its jobs to the next daemon: queued jobs are on
// disk, and running ones go on in their workers. It waits for jobs that are already
// being ended, until ctx is done. It returns the cause of ctx if some have not ended.
func (m *Manager) Detach(ctx context.Context) error {
	m.mu.Lock()
	m.refuse(tool.ErrStopping)
	for _, j := range m.live {
		// A panel that is being ended ends its members first.
		panel := m.live[j.Rec.Panel]
		if !j.Ending() && (panel == nil || !panel.Ending()) {
			j.Leave()
		}
	}
	m.mu.Unlock()
	return m.drain(ctx)
}

// Close stops the manager and ends all jobs as if each was cancelled: what their
// programs have said and cost is kept. It returns when all have ended. If ctx is done
// first, it gives up the rest and returns the cause of ctx.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.refuse(fault.New(fault.TransportFailure, fault.Host, operation, "the daemon is stopping"))
	jobs := slices.Collect(maps.Values(m.live))
	m.mu.Unlock()
	for _, j := range jobs {
		j.End("the daemon stopped")
	}
	return m.drain(ctx)
}

// drain waits until no goroutine serves a job any more. If ctx is done first, it ends
// life, which makes those goroutines return, waits for that, and returns the cause of
// ctx. Answers that are only in memory get a last chance to be written.
func (m *Manager) drain(ctx context.Context) error {
	err := waiting.For(ctx, &m.jobs)
	if err != nil {
		m.abandon()
		m.jobs.Wait()
	}
	m.writeAgain()
	return err
}
