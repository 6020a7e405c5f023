package hosted

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdline/daemon/config/resolve"
	"holdline/daemon/dialect"
	"holdline/daemon/events"
	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/handshake"
	"holdline/daemon/hosted/relist"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/masked"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// An instanceKey identifies an instance: a server, and the scope that shares its process.
type instanceKey struct {
	server string
	key    string // of the entry
	scope  entry.Scope
	of     string // project's key or session's hash; "" if shared
}

// An instance is a server as one scope uses it. Its processes run one after the
// other. Its fields are guarded by the hub's mutex.
type instance struct {
	m       *Manager
	srv     *server // never nil: a process of a server that is configured no more has one of its own
	key     instanceKey
	root    string // of the project; "" if shared
	project string // its key; "" if shared
	name    string // by which its processes, one after the other, are watched

	up     *upstream.Process // nil while none is up or coming up
	use    stage.Use
	guards dispatch.Guards
	err    error     // of the last start
	begun  time.Time // when the latest start was

	starting chan struct{} // closed when the start under way has ended; nil if there is none
	// closed when an earlier daemon's process was adopted or found dead, or an attempt failed; nil if there is none
	adopting  chan struct{}
	unreached *fault.Record // why the last attempt has failed; nil if none has

	down      *fault.Record // why the last start has not reached the remote server; nil if there is no such start
	downSince time.Time     // the first of these starts in a row was then
	downs     int           // how many there were

	notUntil    time.Time     // the next start waits until then
	skipBackoff chan struct{} // closed to end that wait; nil if no start waits
	// its process ended by itself, and none has served since: the next one needs no call to start
	mustRecover bool
	isDirect    bool           // its latest process was started without its launcher
	quit        bool           // that has ended by itself soon; see [probation]
	abandoned   bool           // its last session left during a start: the process is drained at once
	left        bool           // its process was drained during the start that is under way
	gone        bool           // the last start failed, and its project's directory is not there any more
	inherited   bool           // it has, or had, a process of an earlier daemon
	lists       *relist.Reader // of its process; nil until it has one
	idle        *idling        // nil while a session shares it
}

// errEnded says that Holdline ended a process before it served.
var errEnded = errors.New("it was ended while it started")

// useLocked returns the instance that a caller uses. The server that has the name now
// decides: it may have replaced s.
func (s *server) useLocked(c *tool.Caller) (*instance, error) {
	now := s.m.servers[s.spec.Name]
	if now == nil {
		return nil, startup.NoServer(s.spec.Name)
	}
	return now.instanceLocked(c), nil
}

// instanceLocked returns the instance of the server that a caller uses; it makes a missing one.
func (s *server) instanceLocked(c *tool.Caller) *instance {
	key := s.instanceKey(c)
	inst := s.m.instances[key]
	if inst == nil {
		inst = s.addInstanceLocked(key, c.Project, c.Place())
	}
	return inst
}

// instanceKey returns the key of the instance that a caller uses.
func (s *server) instanceKey(c *tool.Caller) instanceKey {
	return instanceKey{
		server: s.spec.Name, key: s.spec.Key, scope: s.spec.Scope, of: s.spec.Scope.Of(c.Project, c.Session),
	}
}

// maxInstances is the number of instances above which unused ones are evicted.
const maxInstances = 1024

// evictIdleLocked forgets unused instances if there are too many, ejected ones last.
func (m *Manager) evictIdleLocked() {
	for _, all := range []bool{false, true} {
		if len(m.instances) < maxInstances {
			return
		}
		for key, inst := range m.instances {
			if inst.isFreeLocked() && (all || !inst.guards.Restarts.Ejected()) && !inst.usedLocked() {
				delete(m.instances, key)
				inst.srv.offers.Forget(key.of)
			}
		}
	}
}

// newInstance returns an instance that no session finds yet. project and root are the key and the
// root of its project.
func (s *server) newInstance(key instanceKey, project, root string, use stage.Use) *instance {
	if key.scope == entry.Shared {
		project, root = "", ""
	}
	return &instance{
		m: s.m, srv: s, key: key, project: project, root: root, use: use,
		name: startup.WorkerID(key.server), guards: dispatch.NewGuards(s.Entry()),
	}
}

// addInstanceLocked makes an instance with the state that it had in an earlier daemon.
func (s *server) addInstanceLocked(key instanceKey, project, root string) *instance {
	s.m.evictIdleLocked()
	inst := s.newInstance(key, project, root, stage.InUse)
	if slices.Contains(s.verdict.Ejected, key.of) {
		inst.guards.Restarts.Eject()
	}
	s.m.instances[key] = inst
	return inst
}

// Ready returns a serving process for the caller. It starts one if there is none, and
// waits for it until ctx ends, or the context that limit returns unless it is nil.
func (s *server) Ready(ctx context.Context, limit dispatch.Limit, c tool.Caller) (*upstream.Process, error) {
	s.lookBeforeCall()
	s.m.hub.Mu.Lock()
	defer s.m.hub.Mu.Unlock()
	inst, err := s.useLocked(&c)
	if err != nil {
		return nil, err
	}
	return inst.readyLocked(ctx, limit)
}

// readyLocked is [server.Ready] for one instance. It releases the mutex while it waits.
func (inst *instance) readyLocked(ctx context.Context, limit dispatch.Limit) (*upstream.Process, error) {
	m, name := inst.m, inst.key.server
	for tried := false; ; {
		if err := inst.refusalLocked(); err != nil {
			return nil, err
		}
		wait := inst.unreadLocked()
		if inst.adopting != nil {
			wait = inst.adopting
		}
		switch {
		case wait != nil && inst.unreached.Reason() == fault.Unreachable: // its host may be off for days
			return nil, inst.unreached
		case wait != nil: // a second process would be another server, and this one may have ended
		case inst.up != nil && inst.up.State == stage.Serving:
			return inst.up, nil
		case inst.guards.Restarts.Ejected():
			return nil, startup.Ejected(inst.key.server, inst.guards.Restarts, inst.srv.verdict.Fault)
		case tried && inst.err != nil && !errors.Is(inst.err, errEnded): // though it may be tried again already
			return nil, inst.err
		case inst.starting != nil:
			if inst.down != nil { // the call may find it up again
				inst.skipBackoffLocked()
			}
		case inst.up != nil && inst.up.State == stage.Ending: // its successor starts once it is gone
			wait = inst.up.Exited
		case !tried || inst.err != nil:
			inst.startLocked()
		default:
			return nil, fault.New(fault.TransportFailure, fault.Server, startup.Operation(name),
				"server %s ended as soon as it was up", name)
		}
		if wait == nil {
			tried, wait = true, inst.starting
		}
		if err := limit.Wait(ctx, &m.hub.Mu, wait); err != nil {
			return nil, err
		}
	}
}

// refusalLocked returns why the instance may have no process, or nil if it may.
func (inst *instance) refusalLocked() error {
	switch {
	case inst.m.hub.Closed:
		return tool.ErrStopping
	case inst.use == stage.Retired:
		return startup.Unused(inst.key.server)
	case inst.srv.verdict.Stopped:
		return startup.Stopped(inst.srv.spec.Name, inst.srv.verdict.Damaged)
	}
	if f := inst.srv.login.Refusal(); f != nil {
		return f
	}
	return nil
}

// startLocked starts a process in a goroutine of the manager.
func (inst *instance) startLocked() {
	m := inst.m
	inst.starting, inst.skipBackoff, inst.begun = make(chan struct{}), make(chan struct{}), time.Now()
	inst.abandoned, inst.left = false, false // that was said of an earlier start, which has failed
	wait, skip := time.Until(inst.notUntil), inst.skipBackoff
	m.hub.WG.Go(func() {
		err := m.hub.Pause(wait, skip)
		m.hub.Mu.Lock()
		inst.skipBackoff = nil
		m.hub.Mu.Unlock()
		if err == nil {
			err = inst.startContained()
		}
		gone := err != nil && inst.rootIsGone()
		m.hub.Mu.Lock()
		defer m.hub.Mu.Unlock()
		inst.err, inst.gone = err, gone
		if err == nil {
			inst.down, inst.downs = nil, 0
		}
		if err != nil {
			inst.up = nil
			if inst.srv.offers.GiveUp() {
				m.hub.WG.Go(m.Changed)
			}
		}
		if f, ok := errors.AsType[*fault.Record](err); ok && inst.refusalLocked() == nil {
			inst.failedLocked(f)
		}
		close(inst.starting)
		inst.starting = nil
		inst.recoverLocked()
		if inst.left {
			inst.startForNewcomersLocked()
		}
		inst.missedLocked()
	})
}

// startForNewcomersLocked starts the instance again if sessions use it that have come after its last one had left:
// its process was being ended then.
func (inst *instance) startForNewcomersLocked() {
	if inst.srv.Entry().Lazy || inst.stageLocked() != stage.Idle || inst.refusalLocked() != nil ||
		inst.m.instances[inst.key] != inst || !inst.introducesLocked() {
		return
	}
	for session, c := range inst.m.hub.Clients {
		if inst.Uses(session, c) {
			inst.startLocked()
			return
		}
	}
}

// rootIsGone reports whether the directory of the instance's project was removed, as a git worktree is. The
// caller must not hold the hub's mutex.
func (inst *instance) rootIsGone() bool {
	if inst.root == "" {
		return false
	}
	_, err := os.Stat(inst.root)
	return errors.Is(err, fs.ErrNotExist)
}

// forgetLocked drops an instance without a process whose project was removed, and what is remembered of it.
func (inst *instance) forgetLocked() {
	m, s := inst.m, inst.srv
	if inst.up != nil || inst.starting != nil || inst.adopting != nil || m.instances[inst.key] != inst {
		return
	}
	delete(m.instances, inst.key)
	s.offers.Forget(inst.key.of)
	if i := slices.Index(s.verdict.Ejected, inst.key.of); i >= 0 || inst.guards.Restarts.Ejected() {
		if i >= 0 {
			s.verdict.Ejected = slices.Delete(slices.Clone(s.verdict.Ejected), i, i+1)
		}
		m.hub.WG.Go(s.persist)
	}
}

// missedLocked reports to the watcher an instance without a process and without a start.
func (inst *instance) missedLocked() {
	if inst.up == nil && inst.starting == nil {
		inst.m.o.Watch.WorkerEnded(inst.name)
	}
}

// recoverLocked starts the instance again if its process has ended by itself and a session uses it,
// so that it is back before the next call. An ejected instance is not started.
func (inst *instance) recoverLocked() {
	if !inst.mustRecover || inst.stageLocked() != stage.Idle || inst.refusalLocked() != nil ||
		inst.m.instances[inst.key] != inst {
		return
	}
	if inst.usedLocked() && inst.introducesLocked() {
		inst.startLocked()
	}
}

// failedLocked counts a process that ended by itself or did not start. The next start has to wait,
// or the instance is ejected.
func (inst *instance) failedLocked(f *fault.Record) {
	now := time.Now()
	if inst.gone { // the server is not to blame: it works in other projects, and here nothing can
		inst.notUntil, inst.mustRecover = time.Time{}, false
		inst.m.hub.Log.Info("server not started, since its project was removed", "server", inst.key.server, "dir", inst.root)
		return
	}
	inst.srv.verdict.Blame(f)
	if inst.srv.Entry().Remote && upstream.IsDown(f) { // it may be back at any time, and is not to blame
		inst.notUntil, inst.mustRecover = now.Add(upstream.SeekPause(inst.downs)), true
		if inst.down == nil {
			inst.downSince = now
			inst.m.hub.Log.Warn("server cannot be reached", "server", inst.key.server, "err", f, "event",
				events.NewBad(control.Crashed, inst.key.server, "%s; it is tried again", startup.Words(f)))
		}
		inst.down = f
		inst.downs++
		return
	}
	inst.down, inst.downs = nil, 0
	if startup.IsOurs(f) { // it passes by itself
		inst.notUntil, inst.mustRecover = now.Add(startup.ExhaustedPause), true
		return
	}
	if f.Reason() == fault.SecretCommand { // the server is not to blame; the next call tries again
		inst.notUntil, inst.mustRecover = now.Add(startup.SecretPause), false
		inst.m.hub.Log.Warn("server not started: no secret", "server", inst.key.server, "err", f, "event",
			events.NewBad(control.Crashed, inst.key.server, "%s", startup.Words(f)))
		return
	}
	if f.RetryAfterMS != nil { // such as a login that cannot be renewed now; the next call tries again, and learns why
		inst.notUntil, inst.mustRecover = now.Add(startup.ExhaustedPause), false
		inst.m.hub.Log.Warn("server not started, it may be later", "server", inst.key.server, "err", f, "event",
			events.NewBad(control.Crashed, inst.key.server, "%s", startup.Words(f)))
		return
	}
	before := inst.guards.Restarts.Ejected()
	wait, ok := inst.guards.Restarts.Failed(now)
	inst.notUntil = now.Add(wait)
	log, name, words := inst.m.hub.Log, inst.key.server, startup.Words(f)
	switch {
	case ok:
		log.Warn("server failed", "server", name, "err", f, "pause", wait, "event",
			events.NewBad(control.Crashed, name, "%s; next start in %v", words, wait.Round(time.Millisecond)))
	case !before:
		inst.m.hub.WG.Go(inst.srv.persist)
		log.Error("server ejected: it ended or failed to start too often", "server", name, "err", f, "event",
			events.NewBad(control.Ejected, name, "given up, it failed too often: %s", words))
	}
}

// startContained calls start, and turns a panic into an error.
func (inst *instance) startContained() (err error) {
	m := inst.m
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		f := m.hub.Panicked(inst.key.server, "started a process", r)
		err = f
		m.hub.LockOrPanic(r)
		defer m.hub.Mu.Unlock()
		if inst.up != nil {
			inst.up.CondemnLocked(f)
			err = errEnded // its end will count against it
		}
	}()
	return inst.start()
}

// start starts a process and performs its handshake. It starts a second one if a
// legacy server left on server/discover, or if another program killed the first:
// neither says that the server does not work.
func (inst *instance) start() error {
	if err := inst.ready(); err != nil {
		return err
	}
	inst.srv.lookBeforeStart()
	begun := time.Now()
	ctx, clock, cancel := startup.NewClock(inst.m.hub.Life, inst.srv.Entry().StartTimeout)
	defer func() { cancel() }()
	// A second process of the same start gets the same secrets: commands may ask a person.
	way := launching{inst: inst, prepare: sync.OnceValues(func() (resolve.Process, error) {
		return inst.srv.spec.Process(ctx, inst.owner())
	})}
	for spare := true; ; {
		u, err := inst.spawn(ctx, clock, func() (resolve.Process, error) { return way.process(clock) })
		if spare && supervisor.Vanished(err) {
			spare = false
			continue
		}
		if err != nil {
			return err
		}
		probing := inst.era() == ""
		heard := func(lists handshake.Lists) error { return way.heard(u, lists) }
		if err = inst.handshake(ctx, u, heard); err == nil {
			err = inst.m.serve(u)
		}
		u.OnStderr.Store(nil)
		if err == nil {
			way.served(u)
			inst.srv.lookAfterStart()
			return nil
		}
		state, by := u.Status()
		ended := state == stage.Draining || state >= stage.Ending && by == upstream.EndedByHoldline
		slow := errors.Is(context.Cause(ctx), startup.ErrSlow) && by == upstream.EndedByHoldline
		took := time.Since(begun)
		failure := startup.Failure{Server: inst.key.server}
		if w := u.Worker(); slow && w != nil {
			failure.Stopped = process.AnyStopped(w.Status().PID)
		}
		u.Finish()
		inst.m.hub.Mu.Lock()
		failure.Generation, failure.Death, failure.Ended = u.Generation, u.Death, u.EndedBy == upstream.EndedByHoldline
		failure.Printed = u.PrintedLocked()
		inst.m.hub.Mu.Unlock()
		switch {
		case ended:
			return errEnded
		case slow && inst.m.hub.Life.Err() == nil && way.failed(err): // the other way has its own time
			cancel()
			//nolint:fatcontext // it comes from Life; the one before has ended
			ctx, clock, cancel = startup.NewClock(inst.m.hub.Life, inst.srv.Entry().StartTimeout)
		case slow && inst.m.hub.Life.Err() == nil:
			inst.m.hub.Mu.Lock()
			inst.mustRecover = true // it may come up the next time: what it downloads is there then
			again := inst.use != stage.OnTrial
			inst.m.hub.Mu.Unlock()
			return failure.Slow(took, again)
		case by == upstream.EndedByOthers && spare:
			spare = false
		case by == upstream.EndedByItself && probing && inst.era() != "":
		case inst.m.hub.Life.Err() == nil && way.failed(err): // as the entry says, then
		default:
			return inst.startFault(u, &failure, err)
		}
	}
}

// startFault returns the fault of a start of u that failed with err.
func (inst *instance) startFault(u *upstream.Process, f *startup.Failure, err error) error {
	if errors.Is(err, tool.ErrStopping) || supervisor.Disowned(err) || inst.m.hub.Life.Err() != nil {
		return tool.ErrStopping
	}
	if refusal, refused := errors.AsType[*dialect.RefusalError](err); refused {
		if own := dispatch.Proxied(inst.srv, refusal.Raw); own != nil {
			own.Operation, own.Fault.Generation = startup.Operation(f.Server), f.Generation
			if own.Reason() == fault.NotLoggedIn {
				inst.srv.NotLoggedIn(u, own)
			}
			return own
		}
	}
	return f.Fault(err)
}

// owner returns for whom the processes of the instance run.
func (inst *instance) owner() *process.Owner {
	o := inst.key.scope.Owner(inst.key.of, inst.project, inst.root)
	return &o
}

// ready waits until Process of the entry can know all it needs, which is no start time.
func (inst *instance) ready() error {
	m, spec := inst.m, inst.srv.spec
	if spec.Ready == nil {
		return nil
	}
	err := spec.Ready(m.hub.Life, inst.owner())
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if m.hub.Closed { // the wait has ended for that
		return tool.ErrStopping
	}
	if err == nil {
		return nil
	}
	return cmp.Or(inst.refusalLocked(), error(startup.CannotStart(spec.Name, err)))
}

// spawn starts a worker with the server in it, as prepare says.
func (inst *instance) spawn(
	ctx context.Context, clock *startup.Clock, prepare func() (resolve.Process, error),
) (*upstream.Process, error) {
	m, spec := inst.m, inst.srv.spec
	m.hub.Mu.Lock()
	err, login := inst.refusalLocked(), inst.srv.login.Last()
	var client tool.Caller // whose session has the process, if that is so
	if c := m.hub.Clients[inst.key.of]; c != nil && inst.key.scope == entry.Session {
		client = c.Caller()
	}
	m.hub.Mu.Unlock()
	if err != nil {
		return nil, err
	}
	p, err := prepare()
	if err != nil && m.hub.Life.Err() != nil {
		return nil, tool.ErrStopping
	}
	if err != nil {
		return nil, startup.CannotStart(spec.Name, err)
	}
	if !m.o.Workers.Still() { // the directory may be another daemon's
		return nil, tool.ErrStopping
	}
	owner := *inst.owner()
	owner.Key, owner.Login, owner.ProxyPID, owner.ProxyStart = inst.key.key, login.Who, client.PID, client.Start
	ws := startup.Spec(spec.Name, &p, owner)
	dir := filepath.Join(m.o.WorkersDir, ws.ID)
	w, err := m.o.Workers.Start(ctx, dir, ws, p.Env, p.Secrets...)
	if err != nil {
		_ = m.o.Workers.Reap(dir)
		return nil, err
	}
	faultpoint.At("hosted.spawned")
	if p.Host != "" { // its settings were expanded there
		p.Secrets, _ = w.Secrets()
	}
	m.o.Watch.WorkerStarting(inst.name, w.Generation())
	u := m.hub.NewProcess(inst, dir, spec.Name, ws.Owner)
	u.Login, u.Tokens = login.Stamp, dialect.Tokens(ws.Tokens)
	progress := clock.Progress
	u.OnStderr.Store(&progress)
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if m.hub.Closed && !m.hub.Ending {
		w.Close()
		return nil, tool.ErrStopping
	}
	u.Secrets.Store(masked.New(p.Secrets))
	m.hub.Processes[u] = struct{}{}
	u.AttachLocked(w)
	if m.hub.Ending { // EndAll waits for this start
		u.ChangeLocked(stage.Terminate)
		m.hub.Mu.Unlock()
		err := u.End(ctx)
		m.hub.Mu.Lock()
		return nil, cmp.Or(err, tool.ErrStopping)
	}
	if err := inst.refusalLocked(); err != nil {
		u.EndLocked()
		return nil, err
	}
	inst.runLocked(u)
	if inst.abandoned && !inst.usedLocked() {
		inst.leaveLocked()
	}
	inst.abandoned = false
	return u, nil
}

// retireLocked ends the instance and its process. It never starts again. A process with a
// detached call first carries that to its end.
func (inst *instance) retireLocked() {
	inst.use = stage.Retired
	delete(inst.m.instances, inst.key)
	switch u := inst.up; {
	case u == nil || u.State == stage.Exited:
	case u.HasDetachedLocked():
		u.DrainLocked()
	default:
		u.EndLocked()
	}
}
