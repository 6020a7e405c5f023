package hosted

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/listing"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// probeTimeout is how long a server has to answer server/discover.
const probeTimeout = time.Second

// instanceKey names an instance.
type instanceKey struct {
	server string
	key    string // of the spec
	scope  Scope
	of     string // project's key or session's hash; "" if shared
}

// instance is a server as one scope uses it. Its fields are guarded by the
// manager's mutex.
type instance struct {
	m    *Manager
	srv  *server // never nil: a process of a server that is configured no more has one of its own
	key  instanceKey
	root string // of the project, for one in project scope
	name string // by which its processes, one after the other, are watched

	own        *listing.Offering // what its process lists, or listed last; nil until one has
	up         *upstream         // nil while none is up or coming up
	begun      time.Time         // when the latest start was
	starting   chan struct{}     // closed when the start under way has ended; nil if there is none
	taking     chan struct{}     // closed when the process of an earlier daemon was taken up, or found dead; nil if there is none
	err        error             // of the last start
	notUntil   time.Time         // no start before
	retired    bool              // it is not to be started again
	trial      bool              // its server takes another's place once it is up
	guards     guards
	recovering bool          // its process has ended of itself, and no other has served since
	deserted   bool          // nobody shared it any more while its process was not there yet
	adopted    bool          // it has a process of an earlier daemon
	unused     time.Time     // since when nobody shares it; zero while somebody does
	hurry      chan struct{} // closed when the start under way need not wait any more; nil if none waits
}

// errEnded says that a process was ended by us before it was of any use.
var errEnded = errors.New("it was ended while it started")

// useLocked is the instance that a caller uses of the server, or of the one
// that goes by its name now.
func (s *server) useLocked(c *tool.Caller) (*instance, error) {
	now := s.m.servers[s.spec.Name]
	if now == nil {
		return nil, s.m.errNoServer(s.spec.Name)
	}
	return now.instanceLocked(c), nil
}

// instanceLocked is the instance of a server that a caller uses.
func (s *server) instanceLocked(c *tool.Caller) *instance {
	key := s.instanceKey(c)
	inst := s.m.instances[key]
	if inst == nil {
		inst = s.newInstanceLocked(key)
		if s.spec.Scope != Shared {
			inst.root = cmp.Or(c.Root, c.Cwd)
		}
	}
	return inst
}

// instanceKey names the instance of a server that a caller uses.
func (s *server) instanceKey(c *tool.Caller) instanceKey {
	key := instanceKey{server: s.spec.Name, key: s.spec.Key, scope: s.spec.Scope}
	switch s.spec.Scope {
	case Project:
		key.of = c.Project
	case Session:
		key.of = c.Session
	case Shared:
	}
	return key
}

// maxInstances is how many instances there are before those go that nobody uses.
const maxInstances = 1024

// thinLocked forgets the instances that nobody uses and that have no process, if
// there are too many; at first only those that nothing is held against.
func (m *Manager) thinLocked() {
	for _, all := range []bool{false, true} {
		if len(m.instances) < maxInstances {
			return
		}
		for key, inst := range m.instances {
			rests := inst.up == nil && inst.starting == nil && inst.taking == nil
			if rests && (all || !inst.guards.restarts.Ejected()) && inst.usersLocked() == 0 {
				delete(m.instances, key)
			}
		}
	}
}

// newInstanceLocked makes an instance as it stood in an earlier daemon.
func (s *server) newInstanceLocked(key instanceKey) *instance {
	s.m.thinLocked()
	inst := &instance{m: s.m, srv: s, key: key, name: workerID(key.server), guards: newGuards(s.now())}
	if slices.Contains(s.ejected, key.of) {
		inst.guards.restarts.Eject()
	}
	inst.own = s.bequeathedLocked(key)
	s.m.instances[key] = inst
	return inst
}

// ready is a process of the server that serves the caller: the one there is,
// or a new one.
func (s *server) ready(ctx context.Context, c tool.Caller) (*upstream, error) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	inst, err := s.useLocked(&c)
	if err != nil {
		return nil, err
	}
	return inst.readyLocked(ctx)
}

// readyLocked waits, without the lock, for a process that serves.
func (inst *instance) readyLocked(ctx context.Context) (*upstream, error) {
	m, name := inst.m, inst.key.server
	for tried := false; ; {
		if err := inst.refusalLocked(); err != nil {
			return nil, err
		}
		wait := inst.taking
		switch {
		case wait != nil: // a second process would be another server, and this one may have ended
		case inst.up != nil && inst.up.serving:
			return inst.up, nil
		case inst.guards.restarts.Ejected():
			return nil, inst.ejectedLocked()
		case tried && inst.err != nil && !errors.Is(inst.err, errEnded): // though it may be tried again already
			return nil, inst.err
		case inst.starting != nil:
		case inst.up != nil && inst.up.ending: // its successor starts once it is gone
			wait = inst.up.deadCh
		case !tried || inst.err != nil:
			inst.startLocked()
		default:
			return nil, fault.New(fault.TransportFailure, fault.Server, operation(name), "server %s ended as soon as it was up", name)
		}
		if wait == nil {
			tried, wait = true, inst.starting
		}
		m.mu.Unlock()
		select {
		case <-wait:
			m.mu.Lock()
		case <-ctx.Done():
			m.mu.Lock()
			return nil, context.Cause(ctx)
		}
	}
}

// ejectedLocked is what callers of an ejected instance are told, with what was
// wrong the last time.
func (inst *instance) ejectedLocked() *fault.Record {
	name := inst.key.server
	f := inst.guards.restarts.Fault(name, "")
	f.Operation = operation(name)
	if inst.srv.fault != nil {
		f.Fault.Detail += "; the last time: " + inst.srv.fault.Fault.Detail
		f.Cause = inst.srv.fault.Cause
	}
	return f
}

// refusalLocked is why the instance is to have no process; nil if it may.
func (inst *instance) refusalLocked() error {
	switch {
	case inst.m.closed:
		return tool.ErrStopping
	case inst.retired:
		return unused(inst.key.server)
	case inst.srv.stopped:
		return inst.srv.stoppedFault()
	}
	return nil
}

// startLocked begins to start a process.
func (inst *instance) startLocked() {
	m := inst.m
	inst.starting, inst.hurry, inst.begun = make(chan struct{}), make(chan struct{}), time.Now()
	wait, hurry := time.Until(inst.notUntil), inst.hurry
	m.wg.Go(func() {
		err := pause(m.life, wait, hurry)
		if err == nil {
			err = inst.startContained()
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		inst.err = err
		if err != nil {
			inst.up = nil
		}
		if f, ok := errors.AsType[*fault.Record](err); ok && inst.refusalLocked() == nil {
			inst.failedLocked(f)
		}
		close(inst.starting)
		inst.starting = nil
		inst.recoverLocked()
		inst.missedLocked()
	})
}

// missedLocked says, of an instance without a process, that nobody is about to
// start one.
func (inst *instance) missedLocked() {
	if inst.up == nil && inst.starting == nil {
		inst.m.o.Watch.WorkerEnded(inst.name)
	}
}

// recoverLocked starts the instance again if its process has ended of itself,
// so that it is back before the next call, until it is, or is ejected.
func (inst *instance) recoverLocked() {
	if !inst.recovering || inst.up != nil || inst.starting != nil || inst.taking != nil || inst.refusalLocked() != nil || inst.m.instances[inst.key] != inst {
		return
	}
	if inst.usersLocked() > 0 && !inst.guards.restarts.Ejected() && inst.introducesLocked() {
		inst.startLocked()
	}
}

// exhaustedPause is the pause between starts that fail because this machine has
// no room for them.
const exhaustedPause = time.Second

// isOurs reports whether a fault says that holdline itself has no disk space,
// files, processes or memory left: no server is to blame for that.
func isOurs(f *fault.Record) bool {
	return f != nil && f.Fault.Code == fault.ResourceExhausted && f.Stage == fault.Host
}

// failedLocked counts a process that ended by itself, or did not start: the
// next one has to wait, or there is none.
func (inst *instance) failedLocked(f *fault.Record) {
	now := time.Now()
	inst.srv.fault, inst.srv.faultAt = f, now
	if isOurs(f) { // it passes by itself
		inst.notUntil, inst.recovering = now.Add(exhaustedPause), true
		return
	}
	before := inst.guards.restarts.Ejected()
	wait, ok := inst.guards.restarts.Failed(now)
	inst.notUntil = now.Add(wait)
	if !ok && !before {
		inst.m.wg.Go(inst.srv.persist)
		inst.m.log.Error("server ejected: it ended or failed to start too often", "server", inst.key.server)
	}
}

// startContained is start; a panic of it is the error.
func (inst *instance) startContained() (err error) {
	m := inst.m
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		f := m.panicked(inst.key.server, "started a process", r)
		err = f
		m.lockOrPanic(r)
		defer m.mu.Unlock()
		if inst.up != nil {
			inst.up.condemnLocked(f)
			err = errEnded // its end will count against it
		}
	}()
	return inst.start()
}

// start makes a process and goes through its handshake. If the server leaves
// when it is asked which era it is of, it is started once more; so it is if it
// is killed before it serves, which says nothing of the installation.
func (inst *instance) start() error {
	if err := inst.ready(); err != nil {
		return err
	}
	begun := time.Now()
	ctx, clock, cancel := newStartClock(inst.m.life, inst.srv.now().StartTimeout)
	defer cancel()
	for spare := true; ; {
		u, err := inst.spawn(ctx, clock)
		if spare && supervisor.Vanished(err) {
			spare = false
			continue
		}
		if err != nil {
			return err
		}
		probing := u.probes()
		if err = u.handshake(ctx); err == nil {
			err = inst.m.serve(u)
		}
		u.clock.Store(nil)
		if err == nil {
			return nil
		}
		left, felled := u.hasEnded()
		ended, slow := u.isEnding(), errors.Is(context.Cause(ctx), errSlow) && !left && !felled
		took := time.Since(begun)
		u.finish()
		switch {
		case ended:
			return errEnded
		case slow && inst.m.life.Err() == nil:
			inst.m.mu.Lock()
			inst.recovering = true // it may come up the next time: what it downloads is there then
			inst.m.mu.Unlock()
			return u.slowFault(took)
		case felled && spare:
			spare = false
		case left && probing && !u.probes():
		default:
			return u.startFault(err)
		}
	}
}

// ready waits until what a process needs is known. That is no part of the time
// that the process has to come up.
func (inst *instance) ready() error {
	m, spec := inst.m, inst.srv.spec
	if spec.Ready == nil {
		return nil
	}
	err := spec.Ready(m.life, inst.root)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed { // the wait has ended for that
		return tool.ErrStopping
	}
	if err == nil {
		return nil
	}
	return cmp.Or(inst.refusalLocked(), error(cannotStart(spec.Name, err)))
}

func cannotStart(name string, err error) *fault.Record {
	if f := fault.Exhausted(operation(name), err); f != nil {
		return f
	}
	return fault.New(fault.SpawnFailure, fault.Server, operation(name), "server %s cannot be started: %v", name, err)
}

// spawn starts a worker with the server in it.
func (inst *instance) spawn(ctx context.Context, clock *startClock) (*upstream, error) {
	m, spec := inst.m, inst.srv.spec
	m.mu.Lock()
	err := inst.refusalLocked()
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p, err := spec.Process(inst.root)
	if err != nil {
		return nil, cannotStart(spec.Name, err)
	}
	id := workerID(spec.Name)
	ws := process.Spec{
		ID: id, Kind: process.KindServer, Name: spec.Name, Argv: append([]string{p.Command}, p.Args...), Cwd: p.Dir,
		Owner: process.Owner{Key: inst.key.key, Scope: string(inst.key.scope)},
	}
	switch inst.key.scope {
	case Project:
		ws.Owner.Project, ws.Owner.Root = inst.key.of, inst.root
	case Session:
		ws.Owner.Session = inst.key.of
	case Shared:
	}
	dir := filepath.Join(m.o.WorkersDir, id)
	w, err := m.o.Workers.Start(ctx, dir, ws, p.Env, p.Secrets...)
	if err != nil {
		_ = m.o.Workers.Reap(dir)
		return nil, err
	}
	faultpoint.At("hosted.spawned")
	m.o.Watch.WorkerStarting(inst.name, w.Generation())
	u := newUpstream(inst, dir, ws.Owner)
	u.clock.Store(clock)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed && !m.ending {
		w.Close()
		return nil, tool.ErrStopping
	}
	u.w, u.generation, u.secrets = w, w.Generation(), p.Secrets
	m.processes[u] = struct{}{}
	u.goLocked()
	if m.ending { // whoever wants that waits for this start
		u.ending = true
		m.mu.Unlock()
		err := u.end(ctx)
		m.mu.Lock()
		return nil, cmp.Or(err, tool.ErrStopping)
	}
	if err := inst.refusalLocked(); err != nil {
		u.endLocked()
		return nil, err
	}
	inst.up = u
	if inst.deserted && inst.usersLocked() == 0 {
		inst.leaveLocked()
	}
	inst.deserted = false
	return u, nil
}

func unused(name string) *fault.Record {
	return fault.New(fault.TransportFailure, fault.Server, operation(name), "server %s is not used any more", name)
}

// workerID is a new id that begins with the server's name.
func workerID(name string) string {
	const most = 12
	safe := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "s" + safe[:min(len(safe), most)] + "-" + hex.EncodeToString(b[:])
}

// retireLocked ends the instance: it is not started again, and its process is
// ended.
func (inst *instance) retireLocked() {
	inst.retired = true
	delete(inst.m.instances, inst.key)
	if u := inst.up; u != nil && !u.dead {
		u.endLocked()
	}
}

// pause waits for d, or until ctx is done. Whoever closes hurry, which may be
// nil, ends the wait.
func pause(ctx context.Context, d time.Duration, hurry <-chan struct{}) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-hurry:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return tool.ErrStopping
	}
	return nil
}

func operation(server string) string { return "start:" + server }

// rootURI is the file URI of the instance's root.
func fileURI(path string) string {
	var b strings.Builder
	b.WriteString("file://")
	for _, c := range []byte(path) {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', strings.IndexByte("/-_.~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
