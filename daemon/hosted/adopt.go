package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/listing"
	"holdline/daemon/masked"
	"holdline/daemon/standing"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/faultpoint"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Load reads what earlier daemons have left: what servers offered, and the records of
// all calls. When it returns, every call is known. Goroutines of the manager go on to
// adopt the processes.
//
// Call it once, before the daemon serves any session: a session that came earlier
// could repeat a call whose record is still unread.
func (m *Manager) Load(ctx context.Context) error {
	for _, dir := range []string{m.o.CatalogDir, m.o.StateDir} {
		if err := statedir.MakeDir(dir); err != nil {
			return fmt.Errorf("files of servers: %w", err)
		}
	}
	for _, s := range m.servers { // no other goroutine knows them yet, so no lock is needed
		if err := errors.Join(s.remember(), s.recall()); err != nil {
			m.log.WarnContext(ctx, "what was known of a server is forgotten", "server", s.spec.Name, "err", err)
		}
	}
	dirs, err := m.o.Workers.ServerDirs()
	if err != nil {
		return fmt.Errorf("directories of workers: %w", err)
	}
	var found []*earlier
	for _, dir := range dirs {
		var e *earlier
		m.load(dir, func() (err error) {
			e, err = m.look(dir)
			return err
		})
		if e != nil {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, (*earlier).before)
	for _, e := range found {
		m.load(e.dir, func() error { return m.restore(e) })
	}
	m.forsakeDeserted(found)
	m.wg.Go(m.expect)
	return nil
}

// load runs read, which reads what an earlier daemon has left in a directory. If that
// fails or panics, load leaves the directory alone. Then this daemon cannot know
// which calls were made: see [Manager.Unread]. A directory that is already gone is no
// failure.
func (m *Manager) load(dir string, read func() error) {
	defer func() {
		if r := recover(); r != nil {
			m.unreadable = true
			_ = m.panicked(filepath.Base(dir), "read the records of a process", r) // it is logged
			m.mu.Lock()
			defer m.mu.Unlock()
			m.disownLocked(dir)
		}
	}()
	m.touch(dir)
	if err := read(); err != nil {
		m.unreadable = m.unreadable || !errors.Is(err, os.ErrNotExist) // the worker may just have left
		m.log.Error("what an earlier daemon left of a server cannot be taken up", "dir", dir, "err", err)
		if errors.Is(err, ownfile.ErrRefused) { // of a dead worker; one that lives removes it itself
			_ = m.o.Workers.Reap(dir)
		}
	}
}

// touch announces to [Options.Touch] that this daemon is about to read what a worker
// has left in its directory, or what its child writes.
func (m *Manager) touch(dir string) {
	if m.o.Touch != nil {
		m.o.Touch(dir)
	}
}

// disownLocked forgets a process that was restored only in part, with its calls and
// its instance.
func (m *Manager) disownLocked(dir string) {
	for u := range m.processes {
		if u.dir != dir {
			continue
		}
		delete(m.processes, u)
		for _, c := range u.calls {
			delete(m.calls, c.Key)
		}
		if m.instances[u.inst.key] == u.inst {
			delete(m.instances, u.inst.key)
		}
	}
}

// Unread reports whether [Manager.Load] has left out records that it could not
// read: a call that is not on record may have been made all the same.
func (m *Manager) Unread() bool { return m.unreadable }

// earlier is the directory of a worker that an earlier daemon has started.
type earlier struct {
	dir     string
	spec    process.Spec
	records []calls.Record
	lists   *listing.Memory // what it has listed; nil if that is not known
	alive   bool
}

// before orders processes for restoring: living ones first, and of these the youngest
// first. The first living process of an instance is the one that goes on serving.
func (e *earlier) before(other *earlier) int {
	switch {
	case e.alive && !other.alive:
		return -1
	case !e.alive && other.alive:
		return 1
	}
	return cmp.Compare(other.spec.Generation, e.spec.Generation)
}

// look decides about the directory of an earlier daemon's server. It removes a
// directory that no client needs. It returns what is to be restored, or nil if there
// is nothing to restore.
func (m *Manager) look(dir string) (*earlier, error) {
	f, records, err := supervisor.LookServer(dir)
	if err != nil {
		return nil, err
	}
	switch supervisor.Decide(f) {
	case supervisor.Remove:
		if err := m.o.Workers.Reap(dir); err != nil {
			m.log.Warn("directory of a dead worker cannot be removed", "dir", dir, "err", err)
		}
		return nil, nil //nolint:nilnil // nobody needs it
	case supervisor.Adopt, supervisor.End: // one without its handshake is ended once it is attached
		spec, err := process.ReadSpec(dir)
		if err != nil {
			return nil, err
		}
		lists, err := listing.ReadMemory(filepath.Join(dir, process.FileLists))
		if err != nil {
			m.log.Warn("what a process has listed is forgotten", "dir", dir, "err", err)
		}
		return &earlier{dir, spec, records, lists, f.Alive}, nil
	default: // Leave: it sees to itself
		return nil, nil //nolint:nilnil // and nothing is wrong with it
	}
}

// restore makes a process of a directory, and calls of its records. Then a goroutine
// of the manager adopts the worker. Until that has ended, inst.adopting keeps calls
// from starting a second process.
func (m *Manager) restore(e *earlier) error {
	answers, err := calls.AnswersIn(e.dir)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	inst := m.ownerLocked(&e.spec, e.alive)
	if s := inst.srv; e.lists != nil && e.lists.Key == s.spec.Key {
		inst.own = s.source().Offering(e.lists.Lists, e.lists.About, e.lists.Cut)
		s.latest = cmp.Or(s.latest, inst.own)
	}
	u := newUpstream(inst, e.dir, e.spec.Owner)
	u.restored, u.generation, u.unsure = true, e.spec.Generation, make(chan struct{})
	u.told = map[string]struct{}{}
	u.kept = u.readAsks()
	m.processes[u] = struct{}{}
	for _, r := range e.records {
		u.recordLocked(r, &e.spec)
	}
	for write, size := range answers {
		if c := u.calls[write]; c != nil {
			c.RestoreAnswer(size)
			m.spooledLocked(c.Key.Session, size)
		}
	}
	if inst.use != retired {
		inst.adopting = make(chan struct{})
	}
	m.wg.Go(func() {
		defer m.taken(inst)
		if m.o.Careful {
			m.careful.Lock()
			defer m.careful.Unlock()
		}
		if m.adopt(u) {
			u.catchUp()
		}
	})
	return nil
}

// catchUp waits until this daemon has read everything that the server wrote before
// the attach. The server may have ended meanwhile, and then must get no writes: a
// call that is lost in its stdin is one of which the next daemon does not know
// whether it was made. The wait has no limit of its own; each call's own time bounds
// it.
func (u *upstream) catchUp() {
	select {
	case <-u.caughtUp:
	case <-u.readEnded:
	case <-u.m.life.Done():
	}
}

// taken wakes the callers that wait for the adoption of an instance's process, and
// restarts the instance if that process has ended.
func (m *Manager) taken(inst *instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if inst.adopting != nil {
		close(inst.adopting)
		inst.adopting = nil
		inst.recoverLocked()
	}
}

// ownerLocked returns the instance that owns a process of an earlier daemon. If the
// server is configured as it was, and the process lives and is the first one of its
// instance, that instance goes on with it. In all other cases the process gets a
// retired instance of its own, which only ends the calls that the process has.
func (m *Manager) ownerLocked(spec *process.Spec, alive bool) *instance {
	o := &spec.Owner
	key := instanceKey{server: spec.Name, key: o.Key, scope: Scope(o.Scope)}
	switch key.scope {
	case Project:
		key.of = o.Project
	case Session:
		key.of = o.Session
	case Shared:
	}
	s := m.servers[spec.Name]
	configured := s != nil && s.spec.Key == key.key && s.spec.Scope == key.scope
	if configured && alive && m.instances[key] == nil {
		inst := s.newInstanceLocked(key)
		inst.root, inst.inherited = o.Root, true
		return inst
	}
	if !configured {
		s = m.goneServerLocked(key)
	}
	return &instance{
		m: m, srv: s, key: key, root: o.Root, name: workerID(key.server), guards: newGuards(s.now()),
		use: retired,
	}
}

// goneServerLocked returns a server for a process whose entry was edited or removed.
// The limits of the process's calls come from the entry that has the name now, or
// else from [Options.Gone].
func (m *Manager) goneServerLocked(key instanceKey) *server {
	spec := m.o.Gone
	if s := m.servers[key.server]; s != nil {
		spec = *s.now()
	}
	spec.Name, spec.Key, spec.Scope, spec.Offers = key.server, key.key, key.scope, nil
	return m.newServer(&spec)
}

// recordLocked restores one record of an earlier daemon. Records of answers,
// cancellations and subscriptions wait in u.responds until [Manager.takeUp] knows
// which of these writes were made.
//
// Two processes may have a record of the same call: the daemon made the call again
// after the first process died. Then the younger process has the call, and the write
// to the older one is kept in call.earlier.
func (u *upstream) recordLocked(r calls.Record, spec *process.Spec) {
	m := u.m
	switch r.Kind {
	case calls.KindRespond:
		u.responds = append(u.responds, r)
		if c := u.calls[r.Call]; c != nil && c.Key.Session == r.Session { // that line continues it
			delete(m.calls, c.Key)
			c.Key.N = r.N
			m.calls[c.Key] = c
		}
	case calls.KindCancel, calls.KindNote, calls.KindSetLevel, calls.KindSubscribe,
		calls.KindUnsubscribe, calls.KindListen:
		u.responds = append(u.responds, r)
	case calls.KindCall:
		c := newCall(calls.Restore(&r, tool.Contract(r.Contract) == tool.Convergent))
		c.up, c.write = u, r.Write
		u.calls[r.Write] = c
		if before := m.calls[c.Key]; before != nil { // it was made again after its process died
			if before.up != u && before.up.generation > spec.Generation {
				before.earlier = append(before.earlier, place{u, r.Write})
				before.Replays = 1
				return // the later process has it
			}
			c.earlier = append(before.earlier, place{before.up, before.write})
			c.Replays = len(c.earlier)
		}
		m.calls[c.Key] = c
	}
}

// adoptTimeout bounds one attempt to attach to a worker.
const adoptTimeout = time.Minute

// adoptRetry is the pause between attempts to attach to a worker that lives and can
// be neither reached nor killed.
const adoptRetry = time.Second

// adopt attaches to the worker of a process, or finds it dead. It retries until that
// succeeds or the manager closes. It reports whether goroutines of this daemon read
// the worker's events now.
func (m *Manager) adopt(u *upstream) bool {
	m.touch(u.dir)
	var w *supervisor.Worker
	for {
		ctx, cancel := context.WithTimeout(m.life, adoptTimeout)
		var err error
		w, err = m.o.Workers.Attach(ctx, u.dir, 0)
		cancel()
		if err == nil {
			break
		}
		// While it lives its calls may still run: no outcome may be reported.
		u.log.Warn("worker of an earlier daemon cannot be taken up", "err", err)
		if pause(m.life, adoptRetry, nil) != nil {
			return false
		}
	}
	taken := false
	if u.contain("took up a process", func() { taken = m.takeUp(u, w) }) {
		return taken
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.w == nil && !m.closed { // it was condemned before this daemon was attached to its worker
		u.attachLocked(w)
		u.terminateLocked()
	}
	return u.w != nil
}

// takeUp continues a process whose worker is attached. It learns from the worker
// which writes of the earlier daemon were made, and resets calls that were certainly
// not made. Then it decides whether the process serves, is drained, or is ended. It
// reports whether the goroutines of the process run; they do not if the manager is
// closed.
func (m *Manager) takeUp(u *upstream, w *supervisor.Worker) bool {
	server, err := readServer(u.dir)
	faultpoint.At("hosted.adopted")
	if words, known := w.Secrets(); known {
		u.secrets.Store(masked.New(words))
	} else {
		u.secrets.Store(u.inst.secrets())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		w.Close()
		return false
	}
	u.attachLocked(w) // its goroutines wait for the lock
	m.o.Watch.WorkerStarting(u.inst.name, w.Generation())
	m.o.Watch.WorkerReady(u.inst.name)
	last := w.LastWrite()
	alive := w.Status().State == supervisor.Ready
	for write, c := range u.calls {
		f := c.factsLocked(true)
		f.Alive, f.Taken, f.Convergent = alive, write <= last, false
		if c.Phase() == calls.Open && alive && calls.Decide(f) == calls.Dispatch {
			c.forgetVoidLocked()
			c.Apply(calls.Unsent)
		}
	}
	close(u.unsure)
	u.unsure = nil
	u.forget = append(u.forget, u.standing.Restore(u.responds, last)...)
	for _, r := range u.responds {
		switch {
		case r.Write > last:
		case r.Kind == calls.KindRespond && r.Name != "":
			u.told[r.Name] = struct{}{}
			u.ranLocked(r.Kind, r.Write)
		case r.Kind == calls.KindRespond, r.Kind == calls.KindCancel, r.Kind == calls.KindNote:
			u.ranLocked(r.Kind, r.Write)
		}
	}
	u.responds = nil
	inst := u.inst
	switch {
	case u.state == ending:
		u.terminateLocked() // it could not be so far
	case inst.srv.stopped:
		u.endLocked()
	case err != nil, inst.use == retired, inst.up != nil || inst.starting != nil:
		// A server without a finished handshake has no calls, so it is ended.
		// One that no session uses any more first finishes its calls.
		if err != nil || !u.hasWantedCallLocked() {
			u.endLocked()
		} else {
			u.drainLocked()
		}
	case !alive: // its reader will handle the event of its death
	default:
		u.introducedLocked(server.Era, server.Result)
		inst.up, inst.relisting = u, &relisting{up: u}
		u.standing.Wake()
		if dialect.AcceptsRootsChanged(server.Offered) { // its client may have said so while there was no daemon
			u.noteLocked(mcp.RootsChanged, nil)
		}
		if inst.srv.era == "" {
			inst.srv.era = server.Era
		}
		switch {
		case inst.srv.latest == nil: // callers that list tools wait, as for a server that starts
			inst.starting, inst.begun = make(chan struct{}), time.Now()
			m.wg.Go(func() { inst.listFirst(u) })
			return true
		case inst.own == nil, len(standing.ListsTold(server.Result)) > 0:
			// it may have said meanwhile that they have changed
			inst.relistLocked()
		}
		u.state = u.state.after(ready)
	}
	u.log.Info("adopted a process of an earlier daemon", "calls", len(u.calls), "state", u.state)
	return true
}

// listFirst asks an adopted server for its lists, then lets calls to it. It is for a
// server whose lists are not known at all. Callers wait for inst.starting meanwhile,
// which listFirst closes.
func (inst *instance) listFirst(u *upstream) {
	u.contain("listed what a process offers", func() {
		inst.readLists(u)
		_ = inst.m.serve(u) // it may have died since
	})
	inst.m.mu.Lock()
	defer inst.m.mu.Unlock()
	close(inst.starting)
	inst.starting = nil
}

// readServer reads the result of the handshake that an earlier daemon has written to
// a worker's directory.
func readServer(dir string) (process.Server, error) {
	var s process.Server
	b, err := ownfile.Read(filepath.Join(dir, process.FileServer), ownfile.MaxDocument)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// serve lets calls to a process whose handshake is over. It returns [errDied] if the
// process is not starting any more: it has ended, or is being drained or ended.
func (m *Manager) serve(u *upstream) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.state != starting {
		return errDied
	}
	u.state, u.inst.mustRecover = u.state.after(ready), false
	if isOurs(u.inst.srv.fault) { // it has passed
		u.inst.srv.fault = nil
	}
	u.standing.Wake()
	if r := u.inst.relisting; r != nil && r.up == u && r.unheard {
		u.inst.relistLocked()
	}
	m.o.Watch.WorkerReady(u.inst.name)
	return nil
}
