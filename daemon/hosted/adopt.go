package hosted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/events"
	"holdline/daemon/hosted/earlier"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/serverlog"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/masked"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/supervisor/near"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Load reads what earlier daemons have left: what servers offered, and the records of all calls.
// When it returns, every call is known, but for those on record where it cannot be read yet: see [unread].
// Goroutines of the manager go on to read that, and to adopt the processes.
//
// Call it once, before the daemon serves any session: a session that came earlier
// could repeat a call whose record is still unread.
func (m *Manager) Load() error {
	m.loading = time.Now()
	for _, dir := range []string{m.o.CatalogDir, m.o.StateDir} {
		if err := statedir.MakeDir(dir); err != nil {
			return fmt.Errorf("files of servers: %w", err)
		}
	}
	for _, s := range m.servers { // no other goroutine knows them yet, so no lock is needed
		s.read()
	}
	dirs, err := m.o.Workers.ServerDirs()
	if err != nil {
		return fmt.Errorf("directories of workers: %w", err)
	}
	var found []*earlier.Process
	var lost []calls.Loss
	for _, dir := range dirs {
		e, l, err := m.look(dir, false)
		switch {
		case err != nil:
			m.postpone(dir, err)
		case e != nil:
			found = append(found, e)
		}
		lost = append(lost, l...)
	}
	gone, err := m.vanished(false)
	if err != nil {
		m.postpone("", err)
	}
	lost = append(lost, gone...)
	slices.SortFunc(found, (*earlier.Process).Compare)
	for _, e := range found {
		lost = append(lost, m.contain(e.Dir, func() []calls.Loss {
			m.hub.Mu.Lock()
			defer m.hub.Mu.Unlock()
			_, lost := m.restoreLocked(e)
			return lost
		})...)
	}
	if err := m.calls.LoadTasks(m.o.TasksDir, m.recall, len(m.unread) == 0); err != nil {
		return err
	}
	m.deserted = earlier.Deserted(found)
	for _, session := range m.deserted {
		m.hub.Mu.Lock()
		m.forsakeLocked(session)
		m.hub.Mu.Unlock()
	}
	m.hub.WG.Go(func() {
		m.readLater()
		m.expect()
	})
	return m.lose(lost)
}

// look reads what an earlier daemon has left in the directory of a worker. It returns nil if there is
// nothing to restore, and what is lost if that cannot be believed. It returns an error if a file cannot
// be read now and may be read later; with last set it does not, and that is lost, too.
func (m *Manager) look(dir string, last bool) (e *earlier.Process, lost []calls.Loss, later error) {
	m.o.Touch(dir)
	lost = m.contain(dir, func() []calls.Loss {
		var err error
		switch e, err = earlier.Read(m.o.Workers, dir, last, m.hub.Log); {
		case err == nil, errors.Is(err, os.ErrNotExist): // the worker may just have left
			return nil
		case !last && ownfile.Passes(err):
			later = err
			return nil
		}
		m.hub.Log.Error("what an earlier daemon left of a server cannot be taken up", "dir", dir, "err", err)
		return m.lost(dir, err)
	})
	return e, lost, later
}

// contain runs read, which reads what an earlier daemon has left in a directory. If it panics, this
// daemon cannot know which calls were made. The directory then stays, and what runs in it is ended.
func (m *Manager) contain(dir string, read func() []calls.Loss) (lost []calls.Loss) {
	defer func() {
		if r := recover(); r != nil {
			f := m.hub.Panicked(filepath.Base(dir), "read the records of a process", r) // it is logged
			lost = m.lost(dir, f)
			m.hub.Mu.Lock()
			defer m.hub.Mu.Unlock()
			m.disownLocked(dir)
		}
	}()
	return read()
}

// lost returns that the records in a directory cannot be read, for why. What runs in it is ended.
func (m *Manager) lost(dir string, why error) []calls.Loss {
	m.broken = append(m.broken, dir)
	m.hub.WG.Go(func() {
		ctx, cancel := context.WithTimeout(m.hub.Life, near.DeathTimeout)
		defer cancel()
		if err := m.o.Workers.Destroy(ctx, dir, false); err != nil && !errors.Is(err, os.ErrNotExist) {
			m.hub.Log.Warn("a worker whose records cannot be read may be left", "dir", dir, "err", err)
		}
	})
	return []calls.Loss{earlier.Loss(m.specOf(dir), why)}
}

// vanished returns what is lost with the directories that are gone though no daemon has removed them, and
// has what still runs of their workers ended. It returns an error if the register cannot be read now and
// may be read later; with last set it does not.
func (m *Manager) vanished(last bool) ([]calls.Loss, error) {
	gone, err := m.o.Workers.Vanished()
	if !last && ownfile.Passes(err) {
		return nil, err
	}
	if err != nil {
		m.hub.Log.Warn("the register of workers cannot be read: directories that were removed are not noticed", "err", err)
	}
	var lost []calls.Loss
	for i := range gone {
		spec := &gone[i]
		dir := m.o.Workers.Dir(spec.ID)
		m.hub.Log.Error("the directory of a worker was removed", "dir", dir)
		lost = append(lost, earlier.Loss(spec, fmt.Errorf("%s was removed", dir)))
		m.broken = append(m.broken, dir)
		m.hub.WG.Go(func() {
			if err := m.o.Workers.EndVanished(m.hub.Life, dir); err != nil {
				m.hub.Log.Warn("a worker whose directory was removed may be left", "dir", dir, "err", err)
			}
		})
	}
	return lost, nil
}

// sweepBroken removes what [Manager.Load] could not read.
func (m *Manager) sweepBroken() {
	for _, dir := range m.broken {
		err := m.o.Workers.Reap(dir)
		if err != nil {
			m.hub.Log.Warn("a damaged directory cannot be removed", "dir", dir, "err", err)
		}
	}
}

// lose records, on disk and for sessions, that records cannot be believed: a call that is not on record
// may have been made all the same.
func (m *Manager) lose(lost []calls.Loss) error {
	if m.o.Lose == nil || len(lost) == 0 {
		return nil
	}
	return m.o.Lose(lost)
}

// disownLocked forgets a process that was restored only in part, with its calls and its instance.
func (m *Manager) disownLocked(dir string) {
	for u := range m.hub.Processes {
		if u.Dir != dir {
			continue
		}
		delete(m.hub.Processes, u)
		for _, c := range u.Calls {
			m.hub.RemoveLocked(c)
		}
		if m.instances[instanceOf(u).key] == instanceOf(u) {
			delete(m.instances, instanceOf(u).key)
		}
	}
}

// Deserted returns the sessions whose calls [Manager.Load] has given up, since their
// proxies have ended. Their records are not to be trusted any more.
func (m *Manager) Deserted() []string { return m.deserted }

// restoreLocked makes a process of a directory, and calls of its records. Then a goroutine
// of the manager adopts the worker. Until that has ended, inst.adopting keeps calls
// from starting a second process. It returns what cannot be believed, too.
func (m *Manager) restoreLocked(e *earlier.Process) (u *upstream.Process, lost []calls.Loss) {
	inst := m.ownerLocked(&e.Spec, e.Alive && e.Damage == nil)
	// A dead process does not speak for a scope that has a living one: that is restored first.
	speaks := inst.use != stage.Retired || m.instances[inst.key] == nil
	if s := inst.srv; speaks && e.Lists != nil && e.Lists.Key == s.spec.Key {
		s.offers.Restore(inst.key.of, s.source().Offering(e.Lists.Lists, e.Lists.About, e.Lists.Cut))
	}
	u = m.hub.NewProcess(inst, e.Dir, e.Spec.Name, e.Spec.Owner)
	u.Damage = e.Damage
	u.Tokens = dialect.Tokens(e.Spec.Tokens)
	u.RestoreLocked(e.Spec.Generation, e.Questions, e.Records, e.Answers)
	if u.Damage != nil {
		m.hub.Log.Error("records of a worker cannot be believed: it gets no more calls", "worker", u.ID, "err", e.Damage)
		lost = append(lost, earlier.Loss(&e.Spec, e.Damage))
		u.DoubtLocked(false, lostFault(u, u.Damage))
	} else if e.LostFile != nil {
		m.hub.Log.Error("an answer or a request that was in a file is lost", "worker", u.ID, "err", e.LostFile)
		u.MissLocked(e.LostAsks)
		u.DoubtLocked(false, lostFault(u, e.LostFile))
	}
	if inst.use != stage.Retired {
		inst.adopting = make(chan struct{})
	}
	m.hub.WG.Go(func() {
		defer m.taken(inst)
		if m.o.Careful {
			m.careful.Lock()
			defer m.careful.Unlock()
		}
		if m.adopt(u) {
			u.CatchUp()
		}
	})
	return u, lost
}

// lostFault returns the fault of a call of a process whose record or answer cannot be believed, for why.
func lostFault(u *upstream.Process, why error) *fault.Record {
	f := fault.New(fault.OutcomeUnknown, fault.Host, mcp.ToolsCall, "the daemon ended, and the records of server %s "+
		"cannot be believed: %v: whether the call had its effect is not known", u.Server, why)
	return f
}

// taken wakes the callers that wait for the adoption of an instance's process, and
// restarts the instance if that process has ended. If no session shares the instance any
// more, its idle time begins.
func (m *Manager) taken(inst *instance) {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if inst.adopting != nil {
		close(inst.adopting)
		inst.adopting, inst.unreached = nil, nil
		inst.recoverLocked()
		m.idleLocked() // its sessions may have been given up long ago
	}
}

// ownerLocked returns the instance that owns a process of an earlier daemon. If the
// server is configured as it was, and the process lives and is the first one of its
// instance, that instance goes on with it. In all other cases the process gets a
// retired instance of its own, which only ends the calls that the process has.
func (m *Manager) ownerLocked(spec *process.Spec, alive bool) *instance {
	o := &spec.Owner
	scope := entry.Scope(o.Scope)
	key := instanceKey{server: spec.Name, key: o.Key, scope: scope, of: scope.Of(o.Project, o.Session)}
	s := m.servers[spec.Name]
	configured := s != nil && s.spec.Key == key.key && s.spec.Scope == key.scope
	if inst := m.instances[key]; configured && alive && (inst == nil || inst.isFreeLocked()) {
		if inst == nil {
			inst = s.addInstanceLocked(key, o.Project, o.Root)
		}
		inst.inherited = true
		return inst
	}
	if !configured {
		s = m.goneServerLocked(key)
	}
	return s.newInstance(key, o.Project, o.Root, stage.Retired)
}

// isFreeLocked reports whether the instance has no process, and none is coming up: a session has come
// before the directory of its process was read.
func (inst *instance) isFreeLocked() bool {
	return inst.up == nil && inst.starting == nil && inst.adopting == nil
}

// goneServerLocked returns a server for a process whose entry was edited or removed. The limits of
// the process's calls come from the entry that has the name now, or else from [Options.Gone].
func (m *Manager) goneServerLocked(key instanceKey) *server {
	spec := m.o.Gone
	if s := m.servers[key.server]; s != nil {
		spec = *s.Entry()
	}
	spec.Name, spec.Key, spec.Scope, spec.Offers = key.server, key.key, key.scope, nil
	return m.newServer(&spec)
}

// notTaken records why an attempt to adopt a process failed, and wakes the calls that wait for it.
func (inst *instance) notTaken(why *fault.Record) {
	inst.m.hub.Mu.Lock()
	defer inst.m.hub.Mu.Unlock()
	inst.unreached = why
	if inst.adopting != nil {
		close(inst.adopting)
		inst.adopting = make(chan struct{})
	}
}

// adopt attaches to the worker of a process, or finds it dead. It reports whether goroutines of
// this daemon read the worker's events now. They do not if the manager closes.
func (m *Manager) adopt(u *upstream.Process) bool {
	m.o.Touch(u.Dir)
	w := earlier.Attach(m.hub.Group, m.o.Workers, u.Dir, u.Log, instanceOf(u).notTaken)
	if w == nil {
		return false
	}
	taken := false
	if u.Contain("took up a process", func() { taken = m.takeUp(u, w) }) {
		return taken
	}
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	return u.AttachCondemnedLocked(w)
}

// takeUp continues a process whose worker is attached. It learns from the worker which writes of
// the earlier daemon were made, and resets calls that were certainly not made. Then it decides
// whether the process serves, is drained, or is ended. It reports whether the goroutines of the
// process run; they do not if the manager is closed.
func (m *Manager) takeUp(u *upstream.Process, w *supervisor.Worker) bool {
	server, err := process.ReadServer(u.Dir)
	faultpoint.At("hosted.adopted")
	if words, known := w.Secrets(); known {
		u.Secrets.Store(masked.New(words))
	} else {
		u.Secrets.Store(instanceOf(u).secrets())
	}
	found := w.Damage()
	if found != nil && u.Damage == nil {
		// It is on disk before anything is written to a process of that server.
		spec := w.Spec()
		if err := m.lose([]calls.Loss{earlier.Loss(&spec, found)}); err != nil {
			u.Log.Error("it cannot be written down that records are damaged", "err", err)
		}
	}
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	if m.hub.Closed {
		w.Close()
		return false
	}
	alive := u.ResumeLocked(w)
	if found != nil && u.Damage == nil {
		u.Log.Error("records of a worker cannot be believed: it gets no more calls", "err", found)
		u.Damage = found
		u.DoubtLocked(true, lostFault(u, u.Damage))
	}
	inst := instanceOf(u)
	m.o.Watch.WorkerStarting(inst.name, w.Generation())
	m.o.Watch.WorkerReady(inst.name)
	switch {
	case u.State == stage.Ending:
		u.TerminateLocked() // it could not be so far
	case inst.srv.verdict.Stopped:
		u.EndLocked()
	case alive && (u.Damage != nil || err != nil && u.HasWantedCallLocked()):
		// It takes no more writes, or how it was introduced is lost. It first finishes its calls.
		if u.HasWantedCallLocked() {
			u.DrainLocked()
		} else {
			u.EndLocked()
		}
		inst.mustRecover = inst.use != stage.Retired && inst.up == nil && !inst.srv.Entry().Lazy
	case err != nil:
		// A server without a finished handshake has no calls, so it is ended. It had been
		// started for a reason, so another process follows once it is gone.
		if inst.use != stage.Retired && inst.up == nil && inst.starting == nil {
			inst.runLocked(u)
			inst.mustRecover = !inst.srv.Entry().Lazy
		}
		u.EndLocked()
	case inst.use == stage.Retired, inst.up != nil || inst.starting != nil:
		// One that no session uses any more first finishes its calls.
		if u.HasWantedCallLocked() {
			u.DrainLocked()
		} else {
			u.EndLocked()
		}
	case !alive: // its reader handles the event of its death, for which it was only starting
		inst.mustRecover = !inst.srv.Entry().Lazy
	default:
		inst.runLocked(u)
		u.AdoptedLocked(&server)
		if inst.srv.era == "" {
			inst.srv.era = server.Era
		}
		switch {
		case inst.srv.offers.Latest() == nil: // callers that list tools wait, as for a server that starts
			inst.starting, inst.begun = make(chan struct{}), time.Now()
			m.hub.WG.Go(func() { inst.listFirst(u) })
			return true
		case inst.srv.offers.Own(inst.key.of) == nil, len(upstream.NotifiedLists(server.Result)) > 0:
			// it may have said meanwhile that they have changed
			inst.ListsChanged()
		}
		u.ChangeLocked(stage.Ready)
		inst.lists.RetryLocked()
	}
	u.Log.Info("adopted a process of an earlier daemon", "calls", len(u.Calls), "state", u.State)
	return true
}

// listFirst asks an adopted server for its lists, then lets calls to it. It is for a server whose
// lists are not known at all. Callers wait for inst.starting meanwhile, which listFirst closes.
func (inst *instance) listFirst(u *upstream.Process) {
	serves := false
	u.Contain("listed what a process offers", func() {
		inst.lists.ReadAgain()
		serves = inst.m.serve(u) == nil // it may have died since
	})
	inst.m.hub.Mu.Lock()
	defer inst.m.hub.Mu.Unlock()
	inst.mustRecover = inst.mustRecover || !serves
	close(inst.starting)
	inst.starting = nil
	inst.recoverLocked() // if it died, [instance.Died] has done neither: it took this for a start
	inst.missedLocked()
}

// serve lets calls to a process whose handshake is over. It returns [upstream.ErrExited] if the
// process is not starting any more: it has ended, or is being drained or ended.
func (m *Manager) serve(u *upstream.Process) error {
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	inst := instanceOf(u)
	if u.State != stage.Starting {
		return upstream.ErrExited
	}
	u.ChangeLocked(stage.Ready)
	inst.mustRecover = false
	inst.srv.verdict.Over = true
	if startup.IsOurs(inst.srv.verdict.Fault) { // it has passed
		inst.srv.verdict.Fault = nil
	}
	u.Wake()
	inst.lists.RetryLocked()
	m.o.Watch.WorkerReady(inst.name)
	how := "started"
	if inst.guards.Restarts.Count(time.Now()) > 0 {
		how = "up again"
	}
	if inst.root != "" {
		how += " in " + inst.root
	}
	u.Log.Info("server serves", "event", events.New(control.Served, inst.key.server, "%s", how))
	return nil
}

// secrets returns the secrets of a process of an earlier daemon, as the present
// configuration has them. They are unknown if the process belongs to another entry.
func (inst *instance) secrets() *masked.Secrets {
	s := inst.srv
	s.m.hub.Mu.Lock()
	configured := s.m.servers[s.spec.Name] == s
	s.m.hub.Mu.Unlock()
	if !configured {
		return masked.Unknown()
	}
	return s.spec.Secrets(s.m.hub.Life, inst.owner())
}

// Remask looks again for unknown secrets. Call it when the user's environment is known.
func (m *Manager) Remask() {
	serverlog.Remask(m.hub, func(u *upstream.Process) *masked.Secrets { return instanceOf(u).secrets() })
}
