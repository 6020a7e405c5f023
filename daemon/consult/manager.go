package consult

import (
	"cmp"
	"context"
	"crypto/rand"
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
	"holdline/daemon/statedir"
	"holdline/daemon/tool"
	"holdline/protocol"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// Manager owns the jobs. It is safe for concurrent use.
type Manager struct {
	opt      Options
	settings atomic.Pointer[Settings]
	tool     *tool.Prepared // consult, for the command line

	// The manager stops in steps. Each closes its channel, with mu held: first
	// closing, then detached unless the jobs are to end, then abandoned if they
	// did not end in time.
	closing   chan struct{} // no more jobs are taken
	detached  chan struct{} // the jobs are left to the next daemon
	abandoned chan struct{} // the jobs are waited for no more
	begun     time.Time     // when it was made
	jobs      sync.WaitGroup

	mu     sync.Mutex
	live   map[string]*job // queued or running, by id
	queue  queue
	kept   map[string]*kept // ended, by id
	ledger ledger
	window *engine.Window // that was last heard of; nil if none
}

// isClosed reports whether a channel on which nothing is sent is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// closeOnce closes a channel unless that was done before. The caller must hold a
// lock.
func closeOnce(c chan struct{}) {
	if !isClosed(c) {
		close(c)
	}
}

// New makes a manager and adopts what earlier daemons have left: it reads the
// answers that are kept, queues again the jobs that never began, and continues
// those that have a worker, or had one. When it returns all jobs are known; their
// workers are attached to meanwhile.
func New(opt Options) (*Manager, error) {
	if opt.Return == 0 {
		opt.Return = protocol.StartWindow
	}
	if opt.Ladder == (engine.Ladder{}) {
		opt.Ladder = engine.DefaultLadder()
	}
	m := &Manager{
		opt: opt, closing: make(chan struct{}), detached: make(chan struct{}), abandoned: make(chan struct{}),
		begun: time.Now(),
		live:  map[string]*job{}, kept: map[string]*kept{},
		queue: queue{running: map[string]int{}, served: map[string]int64{}},
	}
	if m.opt.Audit == nil {
		m.opt.Audit = func(Audit) {}
	}
	m.Configure(opt.Settings)
	t := m.consultTool()
	var err error
	if m.tool, err = tool.Prepare(&t); err != nil {
		return nil, fmt.Errorf("tool consult: %w", err)
	}
	return m, m.load()
}

// Configure takes new settings. Zero values that make no sense are those of
// [DefaultSettings].
func (m *Manager) Configure(s Settings) {
	def := DefaultSettings()
	s.Engine = cmp.Or(s.Engine, def.Engine)
	if s.MaxConcurrent <= 0 {
		s.MaxConcurrent = def.MaxConcurrent
	}
	if s.Timeout <= 0 {
		s.Timeout = def.Timeout
	}
	if s.Level == "" {
		s.Level = def.Level
	}
	if s.Wait < 0 {
		s.Wait = def.Wait
	}
	if s.KeepCount <= 0 {
		s.KeepCount = def.KeepCount
	}
	if s.KeepAge < 0 {
		s.KeepAge = def.KeepAge
	}
	m.settings.Store(&s)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue.start(s.MaxConcurrent)
}

// asking is how a consult is asked for.
type asking struct {
	n        int64 // number of the client's line
	attended bool
	confirms bool // it will be told when the client holds the answer, or is gone
}

// begin finds the job of a call, or makes it. Of the two results one is set.
func (m *Manager) begin(ctx context.Context, c tool.Caller, how asking, a *arguments) (*job, *Answer, error) {
	session, n := c.Session, how.n
	if session == "" || n == 0 {
		session, n = rand.Text(), 1 // a caller without lines: each call is its own
	}
	id := ID(session, n)
	if j, answer, err := m.known(id, how.attended); j != nil || answer != nil || err != nil {
		return j, answer, err
	}
	set := m.settings.Load()
	name := cmp.Or(a.Engine, set.Engine)
	eng, err := m.engine(name)
	if err != nil {
		return nil, nil, err
	}
	req, timeout, err := m.resolve(set, c, a, eng)
	if err != nil {
		return nil, nil, err
	}
	if _, err := m.afford(set, c.Identity, session, eng, req, nil); err != nil {
		return nil, nil, err
	}
	info, err := eng.Check(ctx)
	if err != nil {
		return nil, nil, without(err, eng, c.Logins)
	}
	if err := permit(&req, &info); err != nil {
		return nil, nil, err
	}
	given, err := m.gather(ctx, set, c, a, &req)
	if err == nil {
		err = eng.Fits(req) // the context counts
	}
	if err != nil {
		return nil, nil, err
	}
	cmd := eng.Command(req, info)
	now := time.Now()
	j := &job{
		dir: filepath.Join(m.opt.Dir, id), timeout: timeout, created: now, state: Queued, note: "queued",
		slot: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		rec: record{
			Version: formatVersion, ID: id, Session: session, N: n, Identity: c.Identity, Project: c.Project,
			Client:   c.Client,
			Attended: how.attended, Contract: contractWord, Engine: name, CreatedUnixMS: now.UnixMilli(),
			CreatedBootMS: bootclock.AtMS(now),
			TimeoutMS:     timeout.Milliseconds(), WaitMS: a.wait(set).Milliseconds(), Request: req,
			EngineVersion: info.Version, Level: cmd.Level,
			EnforcedBy: cmd.EnforcedBy, Notes: cmd.Notes, BootID: bootclock.ID(),
			ClientPID: c.PID, ClientStart: c.Start, Context: given,
		},
	}
	j.claim = &claim{key: j.rec.key()}
	if how.attended {
		j.attending = 1
	}
	if !how.confirms {
		j.claim.expires = now.Add(m.opt.Return)
	}
	if err := m.enqueue(ctx, j); err != nil {
		return nil, nil, err
	}
	m.opt.Log.InfoContext(ctx, "consult asked for", "consult", id, "identity", c.Identity, "attended", how.attended)
	return j, nil, nil
}

// refusalLocked returns why no job is taken any more; nil if jobs are taken. A
// client may ask the next daemon for those that were left to it.
func (m *Manager) refusalLocked() error {
	switch {
	case isClosed(m.detached):
		return tool.ErrStopping
	case isClosed(m.closing):
		return fault.New(fault.TransportFailure, fault.Host, operation, "the daemon is stopping")
	}
	return nil
}

// known returns the job or the answer of an id, if there is one.
func (m *Manager) known(id string, attended bool) (*job, *Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refusalLocked(); err != nil {
		return nil, nil, err
	}
	if j := m.live[id]; j != nil {
		if attended {
			j.attend()
		}
		return j, nil, nil
	}
	if k := m.kept[id]; k != nil {
		a, err := m.read(id, k.answer)
		return nil, a, err
	}
	return nil, nil, nil
}

// enqueue writes the job's files and puts it in the queue. Its place is taken
// before anything is written, and its files lie there before it can begin.
func (m *Manager) enqueue(ctx context.Context, j *job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refusalLocked(); err != nil {
		return err
	}
	if m.live[j.rec.ID] != nil {
		return fault.New(fault.InternalFailure, fault.Host, operation, "the request was asked twice at once")
	}
	if err := m.queue.room(j.rec.Identity); err != nil {
		return err
	}
	hard := j.created.Add(j.timeout + m.opt.Ladder.Whole() + spareTime)
	err := os.Mkdir(j.dir, 0o700)
	faultpoint.At("consult.dir")
	if err == nil {
		err = j.write()
	}
	if err == nil {
		faultpoint.At("consult.job")
		spec := j.spec(m.opt.Exe, m.opt.SocketDir, hard)
		err = statedir.WriteFile(filepath.Join(j.dir, process.FileSpec), append(process.Encode(spec), '\n'))
	}
	if errors.Is(err, os.ErrExist) {
		return fault.New(fault.OutcomeUnknown, fault.Host, operation,
			"consult %s was begun by an earlier daemon, and what became of it is not known here", j.rec.ID)
	}
	if err != nil {
		_ = os.RemoveAll(j.dir)
		return fault.New(fault.ResourceExhausted, fault.Host, operation, "the consult cannot be written down: %v", err)
	}
	faultpoint.At("consult.queued")
	m.live[j.rec.ID] = j
	m.queue.waiting = append(m.queue.waiting, j)
	m.queue.start(m.settings.Load().MaxConcurrent)
	// The job outlives the call: what ends it is its stop channel.
	ctx = context.WithoutCancel(ctx)
	m.jobs.Go(func() { m.serve(ctx, j) })
	return nil
}

// serve is a job's life from the queue, or from its adoption, to its answer.
func (m *Manager) serve(ctx context.Context, j *job) {
	if !j.adopted && !m.wait(ctx, j) {
		return
	}
	res, done := m.drive(ctx, j)
	if res.left {
		done()
		return // the next daemon goes on
	}
	m.finish(ctx, j, res, true)
	faultpoint.At("consult.told")
	done()
	faultpoint.At("consult.released")
	m.removeSpool(j.dir)
	_ = os.RemoveAll(filepath.Join(m.opt.SocketDir, j.rec.ID))
}

// wait is a job's time in the queue; it reports whether the job may run.
func (m *Manager) wait(ctx context.Context, j *job) bool {
	select {
	case <-j.slot:
	case <-m.detached:
		return false
	case <-j.stop:
		m.mu.Lock()
		waited := m.queue.remove(j)
		m.mu.Unlock()
		if waited {
			m.finish(ctx, j, result{out: engine.Outcome{
				Fault: fault.New(fault.Cancelled, fault.Host, operation, "the consult was cancelled before it began"),
			}}, false)
			return false
		}
	}
	j.mu.Lock()
	j.state, j.began = Running, time.Now()
	j.mu.Unlock()
	return true
}

// finish keeps the answer, frees the slot and wakes the callers that wait.
func (m *Manager) finish(ctx context.Context, j *job, res result, ran bool) {
	a := m.keep(j, res)
	faultpoint.At("consult.kept")
	m.audit(&j.rec, a, res.out.Argv)
	entry := keptOf(a, nil)
	if err := os.RemoveAll(filepath.Join(j.dir, dirTemp)); err != nil {
		m.opt.Log.WarnContext(ctx, "temporary directory cannot be removed", "consult", j.rec.ID, "err", err)
	}
	if _, err := os.Stat(filepath.Join(j.dir, fileAnswer)); err != nil {
		entry.answer = a // on a full disk it is kept in memory, which is better than not at all
	}
	m.mu.Lock()
	delete(m.live, j.rec.ID)
	if entry.claim = j.claim; entry.claim != nil && !entry.claim.expires.IsZero() {
		entry.claim.expires = time.Now().Add(m.opt.Return)
	}
	m.kept[j.rec.ID] = entry
	if ran {
		m.queue.release(j)
	}
	m.queue.start(m.settings.Load().MaxConcurrent)
	m.mu.Unlock()
	j.mu.Lock()
	j.state, j.answer = a.State, a
	j.mu.Unlock()
	close(j.done)
	code := fault.Code("")
	if f := a.Failure(); f != nil {
		code = f.Fault.Code
	}
	m.opt.Log.InfoContext(ctx, "consult ended", "consult", j.rec.ID, "identity", j.rec.Identity, "state", a.State,
		"code", code,
		"dur", time.Since(j.created))
	m.prune()
}

// Counts returns how many jobs run, wait, and are kept.
func (m *Manager) Counts() (running, queued, keeps int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queue.total, len(m.queue.waiting), len(m.kept)
}

// engine returns the engine of that name.
func (m *Manager) engine(name string) (engine.Engine, error) {
	if eng := m.opt.Engines[name]; eng != nil {
		return eng, nil
	}
	return nil, invalid("engine: %q is not known, there are %s", name,
		strings.Join(slices.Sorted(maps.Keys(m.opt.Engines)), ", "))
}

// Check finds out whether a consult of an engine could run now; "" is the engine
// that answers if a call names none. logins are as in [tool.Caller].
func (m *Manager) Check(ctx context.Context, name string, logins []string) (engine.Info, error) {
	eng, err := m.engine(cmp.Or(name, m.settings.Load().Engine))
	if err != nil {
		return engine.Info{}, err
	}
	info, err := eng.Check(ctx)
	return info, without(err, eng, logins)
}

// Detach takes no more jobs and leaves those there are to the next daemon:
// those in the queue on disk, those that run to their workers. Jobs that are
// being ended are waited for, until ctx is done.
func (m *Manager) Detach(ctx context.Context) error {
	m.mu.Lock()
	closeOnce(m.closing)
	closeOnce(m.detached)
	m.mu.Unlock()
	return m.drain(ctx)
}

// Close takes no more jobs and ends those there are, as if each had been
// cancelled: what they have said and cost is kept. It returns when all have
// ended, or gives up what is left when ctx is done.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	closeOnce(m.closing)
	jobs := slices.Collect(maps.Values(m.live))
	m.mu.Unlock()
	for _, j := range jobs {
		j.end("the daemon stopped")
	}
	return m.drain(ctx)
}

// drain waits until no goroutine serves a job any more. When ctx is done it gives
// up what is left.
func (m *Manager) drain(ctx context.Context) error {
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		m.jobs.Wait()
		close(done)
	})
	defer wait.Wait()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		closeOnce(m.abandoned)
		return context.Cause(ctx)
	}
}
