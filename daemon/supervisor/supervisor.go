// Package supervisor starts workers, stays connected to them, and cleans up after those
// that died. It does not know what is written to their children.
//
// A [Worker] is one worker as this daemon sees it. Its connection may break and come
// back, which its user does not notice: the user gets a stream of events without gaps.
// The stream ends with [Closed] or, if the worker process itself was lost, with [Lost];
// by then nothing of the worker's tree is left. A worker outlives the supervisor:
// [Supervisor.Close] only detaches it.
//
// A goroutine runs for each worker, owned by the supervisor, which waits for all of
// them in Close. On disk the supervisor owns the generation counter in the
// state directory and each worker's spec.json and calls.jsonl.
//
// What a daemon that starts does about a worker that it finds is in package finding.
package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/limits"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/far"
	"holdline/daemon/supervisor/near"
	"holdline/daemon/supervisor/workdirs"
	"holdline/daemon/waiting"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/process"
	"holdline/protocol/socket"
	"holdline/protocol/workerwire"
)

// answerTimeout is the time limit for a worker that lives to take a connection.
const answerTimeout = 5 * time.Second

// ErrClosed is the cause of every refusal after [Supervisor.Close] or
// [Worker.Close].
var ErrClosed = errors.New("supervisor is closed")

// Options of a [Supervisor].
type Options struct {
	Exe        string // the program that has the worker and exec commands
	RuntimeDir string // servers' directories and all sockets are in w/ of it
	StateDir   string // holds the generation counter and consults/
	Epoch      int64  // generation of this daemon, at first
	Program    string // version, for people
	Limits     limits.Placer
	Log        *slog.Logger
	// Still reports whether clients reach this daemon. If not, no write is recorded or made any more.
	// It is called before each record, and must not block. If it is nil they do.
	Still func() bool
	// RaiseEpoch takes a generation above that of a daemon of which a worker knows, and returns it. If
	// it is nil that cannot be done.
	RaiseEpoch func(ctx context.Context, above int64) (int64, error)
	// Environ returns the environment of programs that reach other machines. If it is nil they have
	// none.
	Environ func(context.Context) []string
}

// Supervisor has the workers of one daemon, by id. It is safe for concurrent use. The caller
// must call Close, which waits for its goroutines.
type Supervisor struct {
	*workdirs.Dirs

	o   Options
	log *slog.Logger
	wg  sync.WaitGroup

	mu      lockcheck.Mutex
	closed  bool               // Close was called
	workers map[string]*Worker // by id

	epoch atomic.Int64 // generation of this daemon

	generation sync.Mutex // held while the counter is raised
	last       int64      // the counter, as far as this daemon knows it; guarded by generation
}

// New makes a supervisor. It does no I/O.
func New(o Options) *Supervisor {
	log := o.Log.With("component", "supervisor")
	s := &Supervisor{o: o, log: log, workers: map[string]*Worker{}}
	s.epoch.Store(o.Epoch)
	environ := o.Environ
	if environ == nil {
		environ = func(context.Context) []string { return nil }
	}
	s.Dirs = workdirs.New(workdirs.Options{
		RuntimeDir: o.RuntimeDir, StateDir: o.StateDir, Log: log, Environ: environ,
	})
	return s
}

// Still reports whether clients reach this daemon: see [Options].
func (s *Supervisor) Still() bool { return s.o.Still == nil || s.o.Still() }

// vanishedError marks a fault of a start whose worker was killed, as far as is
// known.
type vanishedError struct{ *fault.Record }

// Unwrap returns the fault.
func (e vanishedError) Unwrap() error { return e.Record }

// Vanished reports whether the err of [Supervisor.Start] means that the worker
// ended before it listened, without a report: it was most likely killed, and another
// start may succeed.
func Vanished(err error) bool {
	_, ok := errors.AsType[vanishedError](err)
	return ok
}

// States of a worker, as [Worker.Status] returns them.
const (
	Starting   = "starting"
	Ready      = "ready"
	Recovering = "recovering"
	Stopping   = "stopping"
)

// Workers returns the workers, sorted by id.
func (s *Supervisor) Workers() []control.Worker {
	s.mu.Lock()
	all := make([]*Worker, 0, len(s.workers))
	for _, w := range s.workers {
		all = append(all, w)
	}
	s.mu.Unlock()
	found := make([]control.Worker, 0, len(all))
	for _, w := range all {
		found = append(found, w.Status())
	}
	slices.SortFunc(found, func(a, b control.Worker) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// Start makes dir a worker's directory, which may have files already, and starts the
// worker. env is the child's whole environment; secrets must not be shown where the
// child prints them, see [Worker.Secrets]. Neither is written to a file. The caller sets
// ID, Kind, Name, Argv, Cwd, Owner, Orphan and the limits that are not the defaults;
// Start sets the rest of spec.
//
// An error is a [*fault.Record], see also [Vanished]. Then no process is left, nor a
// spec.json from which one could start. If the program cannot be executed Start
// succeeds, and the worker's events have an [Exited] with a SpawnErrno.
func (s *Supervisor) Start(ctx context.Context, dir string, spec process.Spec, env []string, secrets ...string) (
	*Worker, error,
) {
	var w *Worker
	var err error
	given := workerwire.Environment{Env: env, Secrets: secrets}
	if spec.Far != nil {
		w, err = s.startElsewhere(ctx, dir, spec, given)
	} else {
		w, err = s.startWorker(ctx, dir, spec, given, nil)
	}
	if err != nil {
		f := s.startFault(&spec, err)
		if errors.Is(err, near.ErrVanished) {
			return nil, vanishedError{f}
		}
		return nil, f
	}
	return w, nil
}

// maxLate is how many workers of earlier daemons may come late to one directory: each of those daemons was killed
// while it started its own.
const maxLate = 5

// startProcess starts the process of w and connects to it. On an error no process is
// left. A worker that an earlier daemon was about to start may lock the directory only
// now: its child got no write, so it is killed, and ours is started once more.
func (s *Supervisor) startProcess(ctx context.Context, w *Worker, env workerwire.Environment) error {
	for late := 0; ; late++ {
		err := s.placeOf(w.dir).launch(ctx, w, env)
		faultpoint.At("launch.listening")
		if err == nil {
			err = w.begin(ctx)
		}
		faultpoint.At("launch.attached")
		if err == nil {
			return nil
		}
		// A process that runs by now, or comes late, must not run unattended.
		taken, ok := errors.AsType[*workerwire.Error](err)
		over := late == maxLate || !ok || taken.Code != workerwire.CodeLocked
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), near.DeathTimeout)
		kerr := s.Destroy(kill, w.dir, over)
		cancel()
		if kerr != nil {
			s.log.WarnContext(ctx, "worker may be left", "worker", w.spec.ID, "err", kerr)
		}
		if over || kerr != nil {
			return err
		}
		s.log.InfoContext(ctx, "worker of an earlier daemon came late, and was ended", "worker", w.spec.ID)
	}
}

// startFault returns the fault of a start that ended with err.
func (s *Supervisor) startFault(spec *process.Spec, err error) *fault.Record {
	if r, ok := errors.AsType[*fault.Record](err); ok {
		return r
	}
	operation := "start:" + spec.Name
	if r := far.FaultOf(err, operation); r != nil {
		return r
	}
	if r := fault.Exhausted(operation, err); r != nil {
		return r
	}
	if e, ok := errors.AsType[*workerwire.Error](err); ok && e.Code == workerwire.CodeExhausted {
		return fault.New(fault.ResourceExhausted, fault.Host, operation, "%s", e.Message) // the worker has found out
	}
	code := fault.SpawnFailure
	if errors.Is(err, near.ErrVanished) {
		code = fault.ProcessFailure // nothing is wrong with the installation: another start may succeed
	}
	r := fault.New(code, fault.Worker, operation, "worker for %s: %v", spec.Name, err)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		name := process.ErrnoName(errno)
		r.Cause = &fault.Cause{Errno: &name}
	}
	return r
}

// startWorker is [Supervisor.Start], with an error as it came: it completes spec, makes
// the directories, counts the generation, registers the worker, writes spec.json and
// starts the process. session is that with the machine of the worker; nil if that is this one.
func (s *Supervisor) startWorker(
	ctx context.Context, dir string, spec process.Spec, env workerwire.Environment, session *far.Session,
) (*Worker, error) {
	spec.Version = process.Newest()
	spec.Program = s.o.Program
	spec.Socket = filepath.Join(s.Dir(spec.ID), process.FileSocket)
	spec.SetDefaults()
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if err := socket.CheckPath(spec.Socket); err != nil {
		return nil, err
	}
	own := s.Dir(spec.ID)
	for _, d := range []string{filepath.Dir(own), own, dir, filepath.Join(dir, calls.DirAnswers)} {
		if err := statedir.MakeDir(d); err != nil {
			return nil, err
		}
	}
	faultpoint.At("launch.dirs")
	var err error
	if spec.Generation, err = s.nextGeneration(); err != nil {
		return nil, err
	}
	faultpoint.At("launch.counted")
	spec.Seal()
	if own == dir {
		if err := s.Enter(&spec); err != nil {
			return nil, err
		}
	}
	w, err := s.register(dir, spec)
	if err != nil {
		return nil, err
	}
	w.session = session
	if err := statedir.WriteFile(filepath.Join(dir, process.FileSpec), jsonrpc.Encode(w.spec)); err != nil {
		s.unregister(w)
		return nil, err
	}
	faultpoint.At("launch.spec")
	if err := s.startProcess(ctx, w, env); err != nil {
		s.unregister(w)
		return nil, err
	}
	s.log.InfoContext(ctx, "worker started", "worker", spec.ID, "name", spec.Name, "kind", spec.Kind,
		"generation", w.spec.Generation, "pid", w.Status().PID)
	return w, nil
}

// Attach adopts the worker of an existing directory, which another daemon may have
// started. Its events follow from the first that was not acknowledged. If the worker has left in
// order (it was alone and its child ended) they come from its files. If it died its tree
// is killed, and the only event is a [Lost]. A worker that no daemon can use is killed: its protocol
// is not known here, its spec is damaged, or it refuses this daemon.
//
// An error is a [*fault.Record], and may pass: the machine lacks something, or another machine cannot
// be reached.
func (s *Supervisor) Attach(ctx context.Context, dir string) (*Worker, error) {
	spec, unusable := s.readSpecSoon(ctx, dir)
	if unusable != nil {
		if judge(unusable) != permanent {
			return nil, s.attachFault(&spec, unusable)
		}
		s.log.ErrorContext(ctx, "worker ended, since no daemon can use it", "worker", filepath.Base(dir),
			"version", spec.Version, "program", spec.Program, "err", unusable)
		if err := s.endUnusable(ctx, dir, &spec); err != nil {
			return nil, s.attachFault(&spec, err)
		}
	}
	w, err := s.register(dir, spec)
	if err != nil {
		return nil, s.attachFault(&spec, err)
	}
	w.mu.Lock()
	w.killedBy = unusable
	w.mu.Unlock()
	if err := w.begin(ctx); err != nil {
		s.unregister(w)
		return nil, s.attachFault(&spec, err)
	}
	return w, nil
}

// endUnusable kills the worker of a directory that no daemon can use.
func (s *Supervisor) endUnusable(ctx context.Context, dir string, spec *process.Spec) error {
	if !s.Still() {
		return errDisowned
	}
	if !process.ValidID(spec.ID) {
		spec.ID = filepath.Base(dir)
	}
	ctx, cancel := context.WithTimeout(ctx, near.DeathTimeout)
	defer cancel()
	if err := s.Destroy(ctx, dir, false); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// attachFault returns the fault of an Attach that ended with err.
func (s *Supervisor) attachFault(spec *process.Spec, err error) *fault.Record {
	r := fault.New(fault.TransportFailure, fault.Worker, "attach:"+spec.Name, "worker %s: %v", spec.ID, err)
	if own := far.FaultOf(err, "attach:"+spec.Name); own != nil {
		r = own
	}
	r.Fault.Generation = spec.Generation
	return r
}

// register adds a worker, so that its id is taken.
func (s *Supervisor) register(dir string, spec process.Spec) (*Worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.workers[spec.ID] != nil {
		return nil, fmt.Errorf("worker %s is there already", spec.ID)
	}
	w := newWorker(s, dir, spec)
	s.workers[spec.ID] = w
	return w, nil
}

// unregister removes a worker, whose id may be used again.
func (s *Supervisor) unregister(w *Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers[w.spec.ID] == w {
		delete(s.workers, w.spec.ID)
	}
}

// generationFile returns the path of the generation counter.
func (s *Supervisor) generationFile() string { return filepath.Join(s.o.StateDir, "generation") }

// Generation returns how many workers were started since the state directory was made, as far as
// that is known.
func (s *Supervisor) Generation() int64 {
	s.generation.Lock()
	defer s.generation.Unlock()
	return s.lastGeneration()
}

// lastGeneration returns the counter. A file that was damaged, or is an older one, does not make it go
// back behind what workers of this daemon's directories have. The caller must hold s.generation.
func (s *Supervisor) lastGeneration() int64 {
	n, err := statedir.ReadCount(s.generationFile())
	if err != nil {
		s.log.Warn("the count of workers cannot be read", "err", err)
	}
	if s.last == 0 {
		s.last = s.HighestGeneration()
		if err != nil {
			s.last = max(s.last, time.Now().Unix())
		}
	}
	s.last = max(s.last, n)
	return s.last
}

// nextGeneration raises the counter on disk and returns it. No two workers of a state
// directory have the same generation, even if the daemon crashes in between.
func (s *Supervisor) nextGeneration() (int64, error) {
	s.generation.Lock()
	defer s.generation.Unlock()
	n := s.lastGeneration() + 1
	err := statedir.WriteFile(s.generationFile(), fmt.Appendf(nil, "%d\n", n))
	if err != nil && fault.Exhausted("", err) != nil {
		return 0, fmt.Errorf("generation counter: %w", err)
	} else if err != nil {
		s.log.Warn("the count of workers cannot be written", "err", err)
	}
	s.last = n
	return n, nil
}

// Close detaches all workers; their processes live on. It blocks until no goroutine of the
// supervisor runs, or until ctx is done: then it returns an error. Later starts and attaches
// return [ErrClosed].
func (s *Supervisor) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	all := make([]*Worker, 0, len(s.workers))
	for _, w := range s.workers {
		all = append(all, w)
	}
	s.mu.Unlock()
	for _, w := range all {
		w.Close()
	}
	err := waiting.For(ctx, &s.wg)
	if err == nil {
		err = s.CloseHosts(ctx)
	}
	if err != nil {
		return fmt.Errorf("detach workers: %w", err)
	}
	return nil
}
