package supervisor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/process"
)

// TestMain lets the test binary run as the program that workers execute.
func TestMain(m *testing.M) {
	workertest.Dispatch(os.Args[1:], os.Environ(), os.Stderr)
	os.Exit(m.Run())
}

// patience is the limit of every wait.
const patience = time.Minute

// home has the directories that the daemons of a test use one after another.
type home struct {
	t     *testing.T
	dir   string
	epoch int64
	still func() bool // see [supervisor.Options]; nil if the last daemon is the one in its place
	raise func(ctx context.Context, above int64) (int64, error)
	last  atomic.Int32 // number of the last daemon
}

// newHome makes the directories, with a short path for the sockets.
func newHome(t *testing.T) *home {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &home{t: t, dir: dir}
}

// daemon returns the supervisor of the next daemon.
func (h *home) daemon() *supervisor.Supervisor {
	h.t.Helper()
	h.epoch++
	return h.daemonAt(h.epoch)
}

// daemonAt returns a supervisor with this epoch. It is closed at the end of the test.
func (h *home) daemonAt(epoch int64) *supervisor.Supervisor {
	exe, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	still := h.still
	if number := h.last.Add(1); still == nil {
		still = func() bool { return h.last.Load() == number }
	}
	s := supervisor.New(supervisor.Options{
		Exe: exe, RuntimeDir: h.dir, StateDir: h.dir, Epoch: epoch, Program: "test", Still: still, RaiseEpoch: h.raise,
		Log: slog.New(slog.NewTextHandler(h.t.Output(), nil)),
	})
	h.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			h.t.Errorf("Close: %v", err)
			_ = pprof.Lookup("goroutine").WriteTo(h.t.Output(), 1)
		}
	})
	return s
}

func (h *home) path(id string) string { return filepath.Join(h.dir, "w", id) }

// shell returns the spec of a worker that runs a script.
func shell(id, script string) process.Spec {
	return process.Spec{
		ID: id, Kind: process.KindServer, Name: id, Argv: []string{"/bin/sh", "-c", script}, Cwd: "/",
		Orphan: process.Orphan{AfterMS: 60_000},
	}
}

var env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "MARK=x"}

// start starts a worker, which is killed at the end of the test.
func (h *home) start(s *supervisor.Supervisor, spec process.Spec) *supervisor.Worker {
	h.t.Helper()
	w, err := s.Start(h.t.Context(), h.path(spec.ID), spec, env)
	if err != nil {
		h.t.Fatalf("Start: %v", err)
	}
	h.t.Cleanup(func() { h.wipe(spec.ID) })
	return w
}

// wipe kills the worker of an id, if it lives, and its tree.
func (h *home) wipe(id string) {
	if alive, _ := finding.Alive(h.path(id)); alive {
		if pid, start, err := statedir.Holder(filepath.Join(h.path(id), process.FileLock)); err == nil {
			_ = process.Signal(process.Proc{PID: pid, Start: start}, syscall.SIGKILL)
		}
	}
	if all, err := process.Carriers(); err == nil {
		for _, p := range all.Of(h.path(id)) {
			_ = process.Signal(p, syscall.SIGKILL)
		}
	}
}

// until waits until cond is true.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = pprof.Lookup("goroutine").WriteTo(t.Output(), 1)
			t.Fatalf("waited for %s for %v", what, patience)
		}
	}
}

// seen is what was received of a worker's events.
type seen struct {
	stdout, stderr bytes.Buffer
	size           int64 // bytes of stdout
	dropped        int64
	kinds          []supervisor.Kind
	last           supervisor.Event
	old            int
}

// taken has, by worker, the events that next has taken and not returned yet.
var taken sync.Map

// next returns the next event of a worker, or false if none comes since the daemon has
// detached from the worker.
func next(t *testing.T, w *supervisor.Worker) (supervisor.Event, bool) {
	t.Helper()
	timeout := time.After(2 * patience)
	for {
		left, _ := taken.Load(w)
		events, _ := left.([]supervisor.Event)
		over := false
		if len(events) == 0 {
			events, over = w.Take()
		}
		if len(events) > 0 {
			taken.Store(w, events[1:])
			return events[0], true
		}
		if over {
			return supervisor.Event{}, false
		}
		select {
		case <-w.Ready():
		case <-timeout:
			_ = pprof.Lookup("goroutine").WriteTo(t.Output(), 1)
			t.Fatal("no event comes")
		}
	}
}

// follow receives and acknowledges events until they end or stop returns true.
func follow(t *testing.T, w *supervisor.Worker, keep bool, stop func(*seen) bool) *seen {
	t.Helper()
	s := &seen{}
	for {
		e, ok := next(t, w)
		if !ok {
			return s
		}
		s.last = e
		if e.Old {
			s.old++
		}
		s.dropped += e.Dropped
		switch {
		case e.Kind != supervisor.Output:
			s.kinds = append(s.kinds, e.Kind)
		case e.Stream == process.Stderr:
			s.stderr.Write(e.Data)
		default:
			s.size += int64(len(e.Data)) + e.Span.Size
			if keep {
				s.stdout.Write(e.Data)
			}
		}
		w.Ack(e.Seq)
		if e.Kind == supervisor.Closed || e.Kind == supervisor.Lost || stop != nil && stop(s) {
			return s
		}
	}
}

func lines(n int) func(*seen) bool {
	return func(s *seen) bool { return bytes.Count(s.stdout.Bytes(), []byte("\n")) >= n }
}

// wait waits until ch is closed.
func wait(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		_ = pprof.Lookup("goroutine").WriteTo(t.Output(), 1)
		t.Fatalf("waited for %s for %v", what, patience)
	}
}

// carriers returns the processes that carry the id of this worker.
func (h *home) carriers(id string) []process.Proc {
	h.t.Helper()
	all, err := process.Carriers()
	if err != nil {
		h.t.Fatal(err)
	}
	return all.Of(h.path(id))
}

// TestWorkersWhileStarting checks that Workers lists a worker that is being started with
// all its fields set.
func TestWorkersWhileStarting(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	over, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		for {
			for _, st := range s.Workers() {
				if st.Generation == 0 {
					t.Errorf("a worker without a generation: %+v", st)
				}
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	for n := range 3 {
		h.start(s, shell(fmt.Sprintf("seen%d", n), stubborn))
	}
	close(over)
	<-looked
}

// TestCloseWhileBeginning closes a supervisor while it starts a worker, which must not be
// left behind unknown, and while it attaches to one, which must live on.
func TestCloseWhileBeginning(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	spec := shell("amid", stubborn)
	t.Cleanup(func() { h.wipe("amid") })
	begin := func(s *supervisor.Supervisor, act func() error) error {
		t.Helper()
		begun := make(chan error, 1)
		go func() { begun <- act() }()
		until(t, "it to have begun", func() bool { return len(s.Workers()) == 1 })
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return <-begun
	}
	err := begin(s, func() error {
		_, err := s.Start(t.Context(), h.path("amid"), spec, env)
		return err
	})
	if left := h.carriers("amid"); err != nil && len(left) > 0 {
		t.Errorf("Start: %v, and left %v", err, left)
	}
	s = h.daemon()
	w := h.start(s, shell("lives", stubborn))
	follow(t, w, true, lines(1))
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for range 5 {
		s := h.daemon()
		err := begin(s, func() error {
			_, err := s.Attach(t.Context(), h.path("lives"))
			return err
		})
		if alive, aerr := finding.Alive(h.path("lives")); !alive || aerr != nil {
			t.Fatalf("Alive = %v, %v, after an Attach that got %v", alive, aerr, err)
		}
	}
}

// TestLife follows a worker from its start over a write to its end: output, status, records
// and final state.
func TestLife(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	w := h.start(s, shell("life", `read a; echo "got $a $MARK $HOLDLINE_WORKER"; echo oops >&2; read b || exit 7`))
	id, err := w.Write(t.Context(), calls.Record{N: 1, Session: "s", Kind: calls.KindCall}, []byte("one\n"))
	if id != 1 || err != nil {
		t.Fatalf("Write = %d, %v", id, err)
	}
	got := follow(t, w, true, func(s *seen) bool { return s.stdout.Len() > 0 && s.stderr.Len() > 0 })
	if got.stdout.String() != "got one x "+h.path("life")+"\n" || got.stderr.String() != "oops\n" {
		t.Errorf("stdout %q, stderr %q", got.stdout.String(), got.stderr.String())
	}
	st := s.Workers()
	if len(st) != 1 || !st[0].Attached || st[0].State != supervisor.Ready || st[0].Generation != 1 ||
		st[0].PID == os.Getpid() {
		t.Errorf("Workers = %+v", st)
	}
	if p, err := process.Lookup(st[0].PID); err != nil || p.PPID == os.Getpid() {
		t.Errorf("worker %+v, %v is this process's child", p, err)
	}
	if _, err := w.Terminate(t.Context(), time.Minute); err != nil { // stdin is closed, and the child ends by itself
		t.Error(err)
	}
	got = follow(t, w, true, nil)
	if got.last.Kind != supervisor.Closed || got.last.Exit.Code == nil || *got.last.Exit.Code != 7 {
		t.Errorf("ended with %+v, want closed with exit code 7", got.last)
	}
	wait(t, "the worker to leave", w.Done())
	b, err := os.ReadFile(filepath.Join(w.Dir(), calls.File))
	if err != nil {
		t.Fatal(err)
	}
	if recs, err := calls.ParseRecords(w.Dir(), b); err != nil || len(recs) != 1 || recs[0].Write != 1 {
		t.Errorf("records %+v, %v", recs, err)
	}
	if got := w.StderrTail(); len(got) != 1 || got[0] != "oops" {
		t.Errorf("StderrTail = %q", got)
	}
	final, err := process.ReadState(w.Dir())
	if err != nil || final.Phase != process.PhaseExited || final.LastWrite != 1 || final.Spool != nil {
		t.Errorf("final state %+v, %v", final, err)
	}
	if words, _ := os.ReadFile(filepath.Join(w.Dir(), process.FileWorkerLog)); len(words) > 0 {
		t.Errorf("the worker's last words: %s", words)
	}
	for _, name := range []string{process.FileSpec, process.FileState, calls.File} {
		b, _ := os.ReadFile(filepath.Join(w.Dir(), name))
		if bytes.Contains(b, []byte("MARK=x")) {
			t.Errorf("the environment stands in %s", name)
		}
	}
	if _, err := w.Write(t.Context(), calls.Record{}, []byte("x")); !supervisor.NotDispatched(err) {
		t.Errorf("Write to the dead = %v, want it not dispatched", err)
	}
	if err := s.Reap(w.Dir()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Reap: %v", err)
	}
}

// TestSpawnFailure checks the fault of a child that cannot be started.
func TestSpawnFailure(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	for name, tt := range map[string]struct {
		spoil       func(*process.Spec)
		op, errno   string
		description string
	}{
		"none": {
			func(p *process.Spec) { p.Argv = []string{"/no/such/program"} },
			"exec",
			"ENOENT",
			"`/no/such/program` was not found, or the program that its first line names",
		},
		"nopath": {
			func(p *process.Spec) { p.Argv = []string{"no-such-program"} },
			"exec",
			"ENOENT",
			"`no-such-program` was not found on its PATH",
		},
		"noexec": {func(p *process.Spec) { p.Argv = []string{"/etc/passwd"} }, "exec", "EACCES", "`/etc/passwd` " +
			"may not be run: "},
		"nocwd": {
			func(p *process.Spec) { p.Cwd = "/no/such/dir" },
			"chdir",
			"ENOENT",
			"cannot be started in /no/such/dir: there is no such directory",
		},
		"filecwd": {func(p *process.Spec) { p.Cwd = "/etc/passwd" }, "chdir", "ENOTDIR", "(chdir: ENOTDIR)"},
	} {
		spec := shell(name, "exit 0")
		tt.spoil(&spec)
		w := h.start(s, spec)
		got := follow(t, w, true, nil)
		if e := got.last.Exit; got.last.Kind != supervisor.Closed || e.SpawnErrno != tt.errno || e.SpawnOp != tt.op {
			t.Errorf("%s: ended with %+v, want %s", name, got.last, tt.description)
		}
		if r := w.ExitFault("x", got.last.Exit); r.Fault.Code != "spawn_failure" || *r.Cause.Errno != tt.errno ||
			!strings.Contains(r.Error(), tt.description) {
			t.Errorf("%s: fault %+v", name, r)
		}
		wait(t, name, w.Done())
	}
}

// TestReapUnderWrites checks that Reap removes a directory even while another process
// writes to it.
func TestReapUnderWrites(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	for i := range 20 {
		dir := h.path(fmt.Sprintf("late%d", i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		begun, gone := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(gone)
			for n := 0; statedir.WriteFile(filepath.Join(dir, process.FileServer), []byte("{}")) == nil; n++ {
				if n == 0 {
					close(begun)
				}
				_, _ = finding.Alive(dir)
			}
		}()
		wait(t, "the first write", begun)
		if err := s.Reap(dir); err != nil {
			t.Fatalf("Reap: %v", err)
		}
		wait(t, "the last write", gone)
	}
}

// TestStartRefused checks that Start refuses a bad spec, an id that is in use, and a
// cancelled context, and leaves no process.
func TestStartRefused(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	if _, err := s.Start(t.Context(), h.path("bad"), process.Spec{ID: "../bad"}, nil); err == nil {
		t.Error("a bad spec is started")
	}
	w := h.start(s, shell("twice", "read a"))
	if _, err := s.Start(t.Context(), h.path("twice"), shell("twice", ""), env); err == nil ||
		!strings.Contains(err.Error(), "already") {
		t.Errorf("second Start of an id: %v", err)
	}
	if err := s.Reap(w.Dir()); !errors.Is(err, statedir.ErrLocked) {
		t.Errorf("Reap of a living worker = %v, want ErrLocked", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Start(ctx, h.path("late"), shell("late", "read a"), env); err == nil {
		t.Error("Start succeeds under a cancelled context")
	}
	if left := h.carriers("late"); len(left) > 0 {
		t.Errorf("a cancelled Start leaves %v", left)
	}
	if _, err := w.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
	follow(t, w, true, nil)
}

// stubborn is a child that ignores SIGTERM and has a grandchild in a session of its own,
// which holds its stdout open.
const stubborn = `trap '' TERM INT; setsid sh -c 'trap "" TERM; echo up; while :; do sleep 100; done' & while :;` +
	` do sleep 100; done`

// TestTerminateStubborn checks that Terminate kills a child that ignores SIGTERM, with all
// that it started.
func TestTerminateStubborn(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("stub", stubborn))
	follow(t, w, true, lines(1))
	if n := len(h.carriers("stub")); n < 2 {
		t.Fatalf("%d processes run, want at least 2", n)
	}
	begin := time.Now()
	exit, err := w.Terminate(t.Context(), 50*time.Millisecond)
	if err != nil || exit.Signal != "SIGKILL" {
		t.Errorf("Terminate = %+v, %v, want SIGKILL", exit, err)
	}
	if left := h.carriers("stub"); len(left) > 0 {
		t.Errorf("after Terminate (%v) these are left: %v", time.Since(begin), left)
	}
	if got := follow(t, w, true, nil); got.last.Kind != supervisor.Closed {
		t.Errorf("last event %+v", got.last)
	}
}

// TestTerminateGivesRealExit checks that a child that ends on SIGTERM is reported with its
// own exit code.
func TestTerminateGivesRealExit(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("real", `trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done`))
	follow(t, w, true, lines(1))
	if exit, err := w.Terminate(t.Context(), 5*time.Second); err != nil || exit.Code == nil || *exit.Code != 5 {
		t.Errorf("Terminate = %v, %v, want exit code 5", exit, err)
	}
}

// TestExitKillsWhatIsLeft checks that when a child exits, all that it started is killed.
func TestExitKillsWhatIsLeft(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(),
		shell("left", `setsid sh -c 'trap "" TERM; while :; do sleep 100; done' & echo $!; exit 3`))
	got := follow(t, w, true, nil)
	if got.last.Kind != supervisor.Closed || *got.last.Exit.Code != 3 || len(got.kinds) != 2 {
		t.Errorf("ended with %+v, kinds %v", got.last, got.kinds)
	}
	if left := h.carriers("left"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTerminateChildThatDoesNotRead checks that a child that does not read its stdin can be
// terminated, and that a write that was half made does not count as not dispatched.
func TestTerminateChildThatDoesNotRead(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(),
		shell("deaf", `trap '' TERM; echo up; head -c 1 >/dev/null; echo begun; while :; do sleep 100; done`))
	follow(t, w, true, lines(1))
	wrote := make(chan error, 1)
	go func() {
		_, err := w.Write(t.Context(), calls.Record{N: 1}, make([]byte, 20<<20))
		wrote <- err
	}()
	follow(t, w, true, lines(1)) // the child has read part of it
	if exit, err := w.Terminate(t.Context(), 50*time.Millisecond); err != nil || exit.Signal != "SIGKILL" {
		t.Errorf("Terminate = %v, %v, want SIGKILL", exit, err)
	}
	if err := <-wrote; err == nil || supervisor.NotDispatched(err) {
		t.Errorf("the write that was half made = %v", err)
	}
	follow(t, w, true, nil)
}

// TestTerminateWhileNobodyReceives checks that a child can be terminated while no event is
// received.
func TestTerminateWhileNobodyReceives(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(),
		shell("flood", `trap '' TERM; while :; do head -c 1000000 /dev/zero | tr '\0' 'x'; echo; done`))
	next(t, w)
	if exit, err := w.Terminate(t.Context(), 50*time.Millisecond); err != nil || exit.Signal != "SIGKILL" {
		t.Errorf("Terminate = %v, %v, want SIGKILL", exit, err)
	}
	if got := follow(t, w, false, nil); got.last.Kind != supervisor.Closed {
		t.Errorf("last event %+v", got.last)
	}
}

// TestBigOutput checks that all of a large output arrives, in one line or in many.
func TestBigOutput(t *testing.T) {
	t.Parallel()
	const size = 100 << 20
	h := newHome(t)
	s := h.daemon()
	for name, script := range map[string]string{
		"long":  fmt.Sprintf(`head -c %d /dev/zero`, size),
		"lines": fmt.Sprintf(`yes 0123456789 | head -c %d`, size),
	} {
		w := h.start(s, shell(name, script))
		got := follow(t, w, false, nil)
		if got.size != size || got.dropped != 0 || got.last.Kind != supervisor.Closed {
			t.Errorf("%s: %d bytes, %d dropped, last %+v, want all %d", name, got.size, got.dropped, got.last, size)
		}
	}
}

// TestStderrFlood checks that stderr beyond its limit is dropped and counted, and does not
// delay stdout.
func TestStderrFlood(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	h := newHome(t)
	w := h.start(h.daemon(), shell("noise", fmt.Sprintf(`yes warning | head -c %d >&2; echo done`, size)))
	wait(t, "the end", exitOf(t, w))
	got := follow(t, w, true, nil)
	if total := int64(got.stderr.Len()) + got.dropped; total != size || got.stdout.String() != "done\n" {
		t.Errorf("stderr %d kept + %d dropped, want %d in all; stdout %q", got.stderr.Len(), got.dropped, size,
			got.stdout.String())
	}
	for _, name := range []string{process.FileStderr, process.FileStderr + ".1"} {
		if info, err := os.Stat(filepath.Join(w.Dir(), name)); err != nil || info.Size() > 1<<20 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// exitOf returns a channel that is closed when the worker's child has ended. It receives no
// events.
func exitOf(t *testing.T, w *supervisor.Worker) <-chan struct{} {
	t.Helper()
	ch := make(chan struct{})
	go func() {
		defer close(ch)
		for range 2000 {
			st, err := process.ReadState(w.Dir())
			if err == nil && st.ChildPID > 0 {
				if _, err := process.Lookup(st.ChildPID); err != nil {
					return
				}
			}
			<-time.After(5 * time.Millisecond)
		}
	}()
	return ch
}
