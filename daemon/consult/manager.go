package consult

import (
	"cmp"
	"context"
	"errors"
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
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
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

// Manager owns the jobs. It is safe for concurrent use. It touches no file and calls no worker while
// it holds mu.
type Manager struct {
	opt    Options
	config atomic.Pointer[config.Config]
	tool   *tool.Prepared // consult, for the command line and for repeated calls
	say    *tool.Prepared // consult_say, for repeated calls

	// The manager stops in steps. First open ends: it takes no more jobs, for the reason
	// that is the cause. If the jobs have not ended in time, or are not to end, their
	// lives end, see [Job]; with life all of them do.
	open    context.Context //nolint:containedctx // see above
	refuse  context.CancelCauseFunc
	life    context.Context //nolint:containedctx // see above
	abandon context.CancelFunc
	begun   time.Time // when the manager was made
	serving sync.WaitGroup
	retry   chan struct{} // holds a token when an answer could not be written

	ledgerFile sync.Mutex // orders the writes of the ledger's file, and guards nothing else; taken before mu

	mu       lockcheck.Mutex // guards what follows, and the jobs
	jobs     map[string]*Job // by id
	queue    queue
	ledger   budget.Ledger // what those consults have cost whose answers are removed
	window   budget.Window // of the subscription
	troubles troubles
	unread   map[string]chan struct{} // ids of jobs that are yet to be read; each is closed once it is
	said     []heard                  // what sessions have said of their jobs while there are such
}

// New makes a manager, reads what earlier daemons have left in opt.Dir, and goes on with their jobs.
func New(opt Options) (*Manager, error) {
	opt.Return = cmp.Or(opt.Return, protocol.StartWindow)
	opt.Ladder = cmp.Or(opt.Ladder, engine.DefaultLadder())
	if opt.Audit == nil {
		opt.Audit = func(answer.Audit) {}
	}
	m := &Manager{
		opt: opt, begun: time.Now(), jobs: map[string]*Job{}, unread: map[string]chan struct{}{}, retry: make(chan struct{}, 1),
		queue: queue{running: map[string]int{}, served: map[string]int64{}},
	}
	m.open, m.refuse = context.WithCancelCause(context.Background())
	m.life, m.abandon = context.WithCancel(context.Background())
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

// Configure puts another configuration into force. Jobs that were asked for keep what they were
// promised.
func (m *Manager) Configure(cfg *config.Config) {
	m.config.Store(cfg)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startLocked()
}

// startLocked gives free slots to jobs that wait.
func (m *Manager) startLocked() { m.queue.start(m.config.Load().Consult.MaxConcurrent) }

// job returns the job with that id, live or ended, or nil.
func (m *Manager) job(id string) *Job {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.jobs[id]
}

// known returns the job that was begun under an id, or its answer if it has ended; nothing if there
// is none. attended says that the caller attends a live one from now on. It fails once the manager
// takes no more jobs.
func (m *Manager) known(id string, attended bool) (*Job, *answer.Answer, error) {
	m.mu.Lock()
	refusal, j := context.Cause(m.open), m.jobs[id]
	if refusal == nil && attended && j != nil && j.kept == nil {
		j.attending++
	}
	m.mu.Unlock()
	if refusal != nil || j == nil || j.kept == nil {
		return j, nil, refusal
	}
	a, err := m.read(j)
	return nil, a, err
}

// admit takes new jobs: they are queued, and what they may cost is reserved. Several are the members
// of the panel p, which is nil for a job of its own.
func (m *Manager) admit(
	cfg *config.Config, p *Job, jobs []*Job, engs []engine.Engine, seats []request.Seat,
) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := jobs
	if p != nil {
		all = append(slices.Clone(jobs), p)
	}
	err := context.Cause(m.open)
	for _, j := range all {
		if err == nil && m.jobs[j.Rec.ID] != nil {
			err = fault.New(fault.InternalFailure, fault.Host, operation, "the request was asked twice at once")
		}
	}
	if err == nil {
		err = m.queue.room(jobs[0].Rec.Identity, len(jobs))
	}
	if err == nil && p != nil {
		m.shareBudgetLocked(cfg, p, jobs, engs, seats)
	}
	for i, j := range jobs {
		if err != nil {
			break
		}
		if err = m.reserveLocked(cfg, j, engs[i]); err == nil { //nolint:gosec // engs has an engine for each job
			m.jobs[j.Rec.ID] = j
		} else if p != nil {
			err = seats[i].Refused(err)
		}
	}
	if err != nil {
		maps.DeleteFunc(m.jobs, func(_ string, j *Job) bool { return slices.Contains(jobs, j) })
		return err
	}
	if p == nil {
		m.enqueueLocked(jobs[0])
		return nil
	}
	m.jobs[p.Rec.ID] = p
	m.seatLocked(p, jobs)
	return nil
}

// enqueueLocked makes a job wait for a slot. Call launch after that.
func (m *Manager) enqueueLocked(j *Job) {
	m.queue.add(j)
	m.serving.Add(1)
	m.startLocked()
}

// enqueue begins a job.
func (m *Manager) enqueue(cfg *config.Config, j *Job, eng engine.Engine) error {
	if err := m.admit(cfg, nil, []*Job{j}, []engine.Engine{eng}, nil); err != nil {
		return err
	}
	m.announce(j)
	return m.launch(j)
}

// announce logs that a job was asked for.
func (m *Manager) announce(j *Job) {
	m.mu.Lock()
	question, attended := j.infoLocked(j.created).Question, j.Rec.Attended
	m.mu.Unlock()
	m.opt.Log.Info("consult asked for", "consult", j.Rec.ID, "identity", j.Rec.Identity, "attended", attended,
		"event", events.New(control.Asked, j.Rec.ID, "%s asks %s: %s", j.Rec.Identity, j.Rec.Engine, question))
}

// launch records a job that is queued, and starts the goroutine that serves it.
func (m *Manager) launch(j *Job) error {
	if f := j.record(); f != nil {
		m.withdraw(j, f)
		return f
	}
	faultpoint.At("consult.queued")
	go func() {
		defer m.serving.Done()
		m.serve(j)
	}()
	return nil
}

// withdraw ends a job that was not recorded, or never asked, with a fault. Its answer is not kept.
func (m *Manager) withdraw(j *Job, f *fault.Record) {
	a := answer.FromOutcome(&j.Rec, &engine.Outcome{Fault: f}, time.Now(), f.Fault.Detail)
	m.mu.Lock()
	delete(m.jobs, j.Rec.ID)
	if j.queued {
		defer m.serving.Done()
		if !m.queue.remove(j) {
			m.queue.release(j)
		}
		m.startLocked()
	}
	m.finishLocked(j, a)
	m.mu.Unlock()
}

// finishLocked gives a job its answer, and wakes all that wait for it.
func (m *Manager) finishLocked(j *Job, a *answer.Answer) {
	j.state, j.answer = a.State, a
	close(j.done)
}

// serve serves a job until it has ended, or is left to the next daemon.
func (m *Manager) serve(j *Job) {
	switch {
	case j.isPanel():
		m.servePanel(j)
	case j.adopted || m.wait(j):
		m.drive(j)
	}
}

// wait waits until a job may run. It returns false if it does not: it was cancelled, or is left.
func (m *Manager) wait(j *Job) bool {
	select {
	case <-j.slot:
	case <-j.life.Done():
		return false
	case <-j.stop:
		m.mu.Lock()
		waited := m.queue.remove(j)
		m.mu.Unlock()
		if waited {
			m.revoke(j.Dir)
			m.end(j, engine.Outcome{
				Fault: fault.New(fault.Cancelled, fault.Host, operation, "the consult was cancelled before it began"),
			}, time.Now(), false)
			m.clear(j.Dir) // an earlier daemon may have died when it was about to begin
			return false
		}
	}
	m.began(j)
	return true
}

// began records that a job runs.
func (m *Manager) began(j *Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j.state, j.began = answer.Running, time.Now()
}

// end ends a job with what came of its run: the answer is written, then the line in the audit log,
// then all who wait are woken. ran says that it had a slot.
func (m *Manager) end(j *Job, out engine.Outcome, at time.Time, ran bool) {
	a, after := m.keepAnswer(j, out, at)
	faultpoint.At("consult.kept")
	m.writeAudit(&j.Rec, a, out.Argv)
	if a.State == answer.Failed {
		m.noteFailure(at, a.Fault)
	}
	if err := os.RemoveAll(filepath.Join(j.Dir, jobdir.DirTemp)); err != nil {
		m.opt.Log.Warn("temporary directory cannot be removed", "consult", j.Rec.ID, "err", err)
	}
	m.retire(j, after, a, ran)
}

// retire puts the job that has ended in the place of the live one.
func (m *Manager) retire(j, after *Job, a *answer.Answer, ran bool) {
	took := time.UnixMilli(a.EndedUnixMS).Sub(j.created)
	note := events.New(control.Answered, j.Rec.ID, "%s after %s", a.State, plural.Seconds(took))
	m.mu.Lock()
	if after.claimed, after.expires = j.claimed, j.expires; !j.expires.IsZero() {
		after.expires = time.Now().Add(m.opt.Return)
	}
	note.Background = !j.Rec.Attended && j.Rec.Task == nil // who has a task asks for it
	m.jobs[j.Rec.ID] = after
	if ran {
		m.queue.release(j)
	}
	m.startLocked()
	m.finishLocked(j, a)
	m.mu.Unlock()
	code := fault.Code("")
	if a.Fault != nil {
		code, note.Bad = a.Fault.Fault.Code, a.State == answer.Failed
		note.Text += ": " + a.Fault.Fault.Detail
	}
	m.opt.Log.Info("consult ended", "consult", j.Rec.ID, "identity", j.Rec.Identity, "state", a.State,
		"code", code, "dur", time.Since(j.created), "event", note)
	m.prune()
}

// Counts returns how many jobs run and wait, and how many answers are kept.
func (m *Manager) Counts() (running, queued, keeps int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if j.kept != nil {
			keeps++
		}
	}
	return m.queue.total, len(m.queue.waiting), keeps
}

// engine returns the engine of that name.
func (m *Manager) engine(name string) (engine.Engine, error) {
	if eng := m.opt.Engines.Find(name); eng != nil {
		return eng, nil
	}
	return nil, engine.Invalid("engine: %q is not known, there are %s", name,
		strings.Join(engines.Names(&m.config.Load().Consult), ", "))
}

// Check checks the program of an engine, of that of the configuration if name is "".
func (m *Manager) Check(ctx context.Context, name string, logins []string) (engine.Info, error) {
	eng, err := m.engine(cmp.Or(name, m.config.Load().Consult.Engine))
	if err != nil {
		return engine.Info{}, err
	}
	info, err := eng.Check(ctx)
	return info, engine.NameLacking(err, eng, logins)
}

// Detach leaves the jobs to the next daemon, but for those that are ending, for which it waits.
func (m *Manager) Detach(ctx context.Context) error {
	m.mu.Lock()
	m.refuse(tool.ErrStopping)
	for _, j := range m.jobs {
		panel := m.jobs[j.Rec.Panel]
		if j.kept == nil && j.why == "" && (panel == nil || panel.why == "") {
			j.leave()
		}
	}
	m.mu.Unlock()
	return m.drain(ctx)
}

// Close ends all jobs, and waits for that.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.refuse(fault.New(fault.TransportFailure, fault.Host, operation, "the daemon is stopping"))
	for _, j := range m.jobs {
		if j.kept == nil {
			j.endLocked("the daemon stopped")
		}
	}
	m.mu.Unlock()
	return m.drain(ctx)
}

// drain waits until no job is served any more; when ctx ends the others are left.
func (m *Manager) drain(ctx context.Context) error {
	err := waiting.For(ctx, &m.serving)
	if err != nil {
		m.abandon()
		m.serving.Wait()
	}
	m.writeAgain()
	return err
}

// maxTroubles bounds each list of troubles.
const maxTroubles = 100

// troubles are what has lately gone wrong, oldest first.
type troubles struct {
	failures  []failure
	unwritten []control.Unwritten // files; InMemory is not filled in
	unread    []string            // why directories of earlier daemons were left alone
}

// failure is the fault of a consult that failed.
type failure struct {
	at   time.Time
	what string // for people
}

// noteFailure records that a consult has failed, unless the user has it so.
func (m *Manager) noteFailure(at time.Time, err error) {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f == nil || f.IsOwn() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.troubles
	t.failures = append(t.failures, failure{at, f.Fault.Detail})
	slices.SortStableFunc(t.failures, func(a, b failure) int { return a.at.Compare(b.at) })
	t.failures = slices.Delete(t.failures, 0, max(0, len(t.failures)-maxTroubles))
}

// noteUnwritten records that a file of a job's directory could not be written.
func (m *Manager) noteUnwritten(dir, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.troubles
	t.unwritten = append(t.unwritten, control.Unwritten{
		Path: filepath.Join(dir, filepath.Base(name)), UnixMS: time.Now().UnixMilli(),
	})
	t.unwritten = slices.Delete(t.unwritten, 0, max(0, len(t.unwritten)-maxTroubles))
}

// Failures returns how many consults have failed within that time, and why the last one did.
func (m *Manager) Failures(within time.Duration) (n int, last string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.troubles.failures {
		if time.Since(f.at) < within {
			n, last = n+1, f.what
		}
	}
	return n, last
}

// BadFiles returns the files that could not be written within that time, or whose content is in
// memory alone, and why directories of earlier daemons were left alone.
func (m *Manager) BadFiles(within time.Duration) (unwritten []control.Unwritten, unread []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.troubles.unwritten {
		if filepath.Base(u.Path) == jobdir.FileAnswer {
			j := m.jobs[filepath.Base(filepath.Dir(u.Path))]
			u.InMemory = j != nil && (j.kept == nil || j.kept.unwritten != nil)
			if !u.InMemory { // it is written by now, or no client wants it any more
				continue
			}
		}
		if u.InMemory || time.Since(time.UnixMilli(u.UnixMS)) < within {
			unwritten = append(unwritten, u)
		}
	}
	return unwritten, slices.Clone(m.troubles.unread)
}
