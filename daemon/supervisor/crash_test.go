package supervisor_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/bootclock"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// TestWorkerKilled kills a worker with SIGKILL. Its daemon gets Lost after the whole tree
// of the child is killed.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("kill", stubborn))
	follow(t, w, true, lines(1))
	if err := syscall.Kill(w.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := follow(t, w, true, nil)
	if got.last.Kind != supervisor.Lost || got.last.Fault == nil || got.last.Fault.Fault.Generation != 1 {
		t.Errorf("last event %+v, want Lost", got.last)
	}
	if left := h.carriers("kill"); len(left) > 0 {
		t.Errorf("left after Lost: %v", left)
	}
	if alive, err := finding.Alive(w.Dir()); alive || err != nil {
		t.Errorf("Alive = %v, %v", alive, err)
	}
	wait(t, "the end", w.Done())
}

// TestParentDeathSignal kills a worker that no daemon is attached to. The child gets its
// parent-death signal.
func TestParentDeathSignal(t *testing.T) {
	t.Parallel()
	if !process.Exact {
		t.Skip("no parent-death signal on this system")
	}
	h := newHome(t)
	out := filepath.Join(h.dir, "out")
	spec := shell("child", `trap 'echo bye >`+out+`; exit' TERM; echo up; while :; do sleep 0.05; done`)
	spec.ParentDeathSignal = "SIGTERM"
	w := h.start(h.daemon(), spec)
	follow(t, w, true, lines(1))
	pid := w.Status().PID
	w.Close()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the child to be gone", func() bool { return len(h.carriers("child")) == 0 })
	if b, _ := os.ReadFile(out); string(b) != "bye\n" {
		t.Errorf("the child got no SIGTERM before it was gone: it wrote %q", b)
	}
}

// orphan starts a worker whose child does not end, and kills the worker while no daemon is
// attached to it.
func (h *home) orphan(id string) {
	h.t.Helper()
	s := h.daemon()
	w := h.start(s, shell(id, stubborn))
	follow(h.t, w, true, lines(1))
	pid := w.Status().PID
	if err := s.Close(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	until(h.t, "the worker to be dead", func() bool {
		alive, err := finding.Alive(h.path(id))
		return err == nil && !alive
	})
}

// TestHuntAtStart checks that HuntAll kills what a dead worker of the same directories
// left, and neither what belongs to other directories nor the child of a living worker.
func TestHuntAtStart(t *testing.T) {
	t.Parallel()
	if !process.Exact {
		t.Skip("needs environments of processes")
	}
	h := newHome(t)
	s := h.daemon()
	lives := h.start(s, shell("lives", "echo up; read a"))
	follow(t, lives, true, lines(1))
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.orphan("prey")
	if len(h.carriers("prey")) == 0 {
		t.Fatal("the dead worker left no process")
	}
	if err := newHome(t).daemon().HuntAll(t.Context()); err != nil {
		t.Error(err)
	}
	if len(h.carriers("prey")) == 0 {
		t.Error("a daemon of other directories killed the process")
	}
	next := h.daemon()
	if err := next.HuntAll(t.Context()); err != nil {
		t.Error(err)
	}
	if left := h.carriers("prey"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if len(h.carriers("lives")) == 0 {
		t.Error("the child of a living worker was hunted")
	}
	// Now without the worker's directory: the daemon cannot know the worker.
	again, err := next.Attach(t.Context(), h.path("lives"))
	if err != nil {
		t.Fatal(err)
	}
	pid := again.Status().PID
	again.Close()
	if err := os.RemoveAll(h.path("lives")); err != nil {
		t.Fatal(err)
	}
	if err := next.HuntAll(t.Context()); err != nil {
		t.Error(err)
	}
	if len(h.carriers("lives")) == 0 {
		t.Error("the child of a living worker was hunted after its directory was removed")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	until(t, "the orphan to be gone", func() bool {
		if err := next.HuntAll(t.Context()); err != nil {
			t.Error(err)
		}
		return len(h.carriers("lives")) == 0
	})
}

// TestWorkerThatHangsIsKilled attaches to a worker that is stopped by SIGSTOP. The worker
// is given up as Lost and killed with its tree.
func TestWorkerThatHangsIsKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	w := h.start(s, shell("hang", stubborn))
	follow(t, w, true, lines(1))
	pid := w.Status().PID
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	workertest.Freeze(t, pid)
	w, err := h.daemon().Attach(t.Context(), h.path("hang"))
	if err != nil {
		t.Fatal(err)
	}
	if got := follow(t, w, true, nil); got.last.Kind != supervisor.Lost {
		t.Errorf("last event %+v, want Lost", got.last)
	}
	if left := h.carriers("hang"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestNextDaemonAttaches checks that the next daemon gets all output that was not
// acknowledged, and that its writes continue the numbers. A daemon with a lower epoch
// cannot attach.
func TestNextDaemonAttaches(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.daemon()
	w := h.start(first, shell("adopt", `while read a; do echo "got $a"; echo err >&2; done; echo end`))
	write := func(i int64) {
		t.Helper()
		if _, err := w.Write(t.Context(), calls.Record{N: i}, fmt.Appendf(nil, "line%d\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	write(1)
	// The first daemon acknowledges one line; the others must reach the next daemon.
	e, _ := next(t, w)
	w.Ack(e.Seq)
	write(2) // requests are handled in order: the answer shows that the ack was taken
	until(t, "the output", func() bool {
		b, _ := os.ReadFile(filepath.Join(w.Dir(), process.FileStderr))
		return bytes.Count(b, []byte("\n")) == 3
	})
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if events, over := w.Take(); len(events) > 0 || !over {
		t.Errorf("a worker that was left has %d events, over: %t", len(events), over)
	}

	second := h.daemon()
	w2, err := second.Attach(t.Context(), h.path("adopt"))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := w2.Write(t.Context(), calls.Record{N: 9}, []byte("more\n")); id != 4 || err != nil {
		t.Errorf("Write after the attach = %d, %v, want 4", id, err)
	}
	got := follow(t, w2, true, func(s *seen) bool { return strings.Contains(s.stdout.String(), "more") })
	all := string(e.Data) + got.stdout.String()
	if e.Stream == process.Stderr {
		all = got.stdout.String()
	}
	if want := "got line0\ngot line1\ngot line2\ngot more\n"; all != want || got.old == 0 {
		t.Errorf("output %q (%d old), want %q", all, got.old, want)
	}

	// A daemon with a lower epoch that has lost its place is refused, and kills nothing.
	h.still = func() bool { return false }
	third := h.daemonAt(1)
	if _, err := third.Attach(t.Context(), h.path("adopt")); err == nil {
		t.Error("a lower epoch may attach")
	}
	if _, err := w2.Terminate(t.Context(), time.Minute); err != nil { // stdin is closed, and the child ends by itself
		t.Error(err)
	}
	if got := follow(t, w2, true, nil); got.last.Kind != supervisor.Closed || got.stdout.String() != "end\n" {
		t.Errorf("ended with %+v after %q", got.last, got.stdout.String())
	}
}

// TestTakenAway has a newer daemon attach to a worker. The older daemon loses its
// connection, and gets no event.
func TestTakenAway(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("taken", `echo up; read a`))
	follow(t, w, true, lines(1))
	w2, err := h.daemon().Attach(t.Context(), h.path("taken"))
	if err != nil {
		t.Fatal(err)
	}
	if got := follow(t, w, true, nil); len(got.kinds) > 0 {
		t.Errorf("the older daemon is told %v", got.kinds)
	}
	if _, err := w2.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestConnectionBreaks breaks the connection during large writes. Each line that a write
// reports as not dispatched is sent again, and the child gets each line once.
func TestConnectionBreaks(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	w := h.start(s, shell("break", `echo up; cat`))
	follow(t, w, true, lines(1))
	var want bytes.Buffer
	for i := range 20 {
		line := fmt.Appendf(nil, "%d %s\n", i, strings.Repeat("x", 100_000))
		want.Write(line)
		if i%5 == 4 { // the attach of another connection ends this one
			intrude(t, w, h.epoch)
		}
		for {
			_, err := w.Write(t.Context(), calls.Record{N: int64(i)}, line)
			if err == nil {
				break
			}
			if !supervisor.NotDispatched(err) {
				t.Fatalf("write %d: %v", i, err)
			}
		}
	}
	got := follow(t, w, true, lines(20))
	if !bytes.Equal(got.stdout.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes came back, want %d, or they differ", got.stdout.Len(), want.Len())
	}
	if _, err := w.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// consult returns the spec of a consult's worker that counts as alone after this time.
func consult(id, script string, after time.Duration) process.Spec {
	spec := shell(id, script)
	spec.Kind = process.KindConsult
	spec.Orphan = process.Orphan{AfterMS: after.Milliseconds(), Do: process.OrphanLeave}
	return spec
}

// untilAlone returns a shell command that waits until the worker of dir is alone.
func untilAlone(dir string) string {
	return "until grep -q '\"" + process.PhaseAlone + "\"' " + filepath.Join(dir, process.FileState) +
		"; do sleep 0.05; done"
}

// TestConsultAlone checks that the worker of a consult keeps its child's output and exit in
// files while no daemon is attached, and that the next daemon reads all of it.
func TestConsultAlone(t *testing.T) {
	t.Parallel()
	const size = 20<<20 + int64(len("up\n")+len("end\n"))
	h := newHome(t)
	first := h.daemon()
	dir := filepath.Join(h.dir, "consults", "alone")
	for _, d := range []string{filepath.Dir(dir)} {
		if err := statedir.MakeDir(d); err != nil {
			t.Fatal(err)
		}
	}
	w, err := first.Start(t.Context(), dir,
		consult("alone",
			fmt.Sprintf(`echo up; %s; yes 0123456789 | head -c %d; echo end; exit 4`, untilAlone(dir), 20<<20),
			time.Second), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.wipe("alone") })
	for { // what is acknowledged at the last moment may be in the files or not: nothing is
		if e, ok := next(t, w); !ok || e.Kind == supervisor.Output {
			break
		}
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the worker to leave", func() bool {
		alive, err := finding.Alive(dir)
		return err == nil && !alive
	})
	st, err := process.ReadState(dir)
	if err != nil || st.Phase != process.PhaseExited || st.Exit == nil || *st.Exit.Code != 4 || st.Spool == nil ||
		st.Spool.Bytes != size {
		t.Fatalf("final state %+v (%+v), %v", st, st.Spool, err)
	}
	if _, err := os.Stat(h.path("alone")); err == nil {
		t.Error("the socket's directory is left")
	}
	w, err = h.daemon().Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	got := follow(t, w, true, nil)
	if got.last.Kind != supervisor.Closed || *got.last.Exit.Code != 4 || got.size != size ||
		!strings.HasPrefix(got.stdout.String(), "up\n") || !strings.HasSuffix(got.stdout.String(), "end\n") {
		t.Errorf("from the files: %d bytes, last %+v", got.size, got.last)
	}
	wait(t, "the end", w.Done())
}

// TestAttachWhileSpooling attaches to a worker that has written output to its spool, and
// whose child still runs. No output is lost.
func TestAttachWhileSpooling(t *testing.T) {
	t.Parallel()
	const size = 12 << 20
	h := newHome(t)
	first := h.daemon()
	w := h.start(first,
		consult("spool",
			fmt.Sprintf(`%s; yes 0123456789 | head -c %d; echo end; exec sleep 1000`, untilAlone(h.path("spool")),
				size), time.Second))
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the spool to hold all", func() bool {
		info, err := os.Stat(filepath.Join(w.Dir(), process.FileSpool))
		return err == nil && info.Size() == size+4
	})
	w, err := h.daemon().Attach(t.Context(), w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	got := follow(t, w, true, func(s *seen) bool { return s.size >= size+4 })
	if !strings.HasSuffix(got.stdout.String(), "end\n") || got.old == 0 {
		t.Errorf("read back %d bytes, %d old", got.size, got.old)
	}
	if exit, err := w.Terminate(t.Context(), 50*time.Millisecond); err != nil || exit.Signal != "SIGTERM" {
		t.Errorf("Terminate = %v, %v", exit, err)
	}
}

// TestHardDeadline checks that a worker that is alone ends its child at the hard deadline.
func TestHardDeadline(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.daemon()
	spec := consult("hard", `echo up; exec sleep 1000`, time.Second)
	spec.Orphan.HardDeadlineBootMS = bootclock.AtMS(time.Now().Add(time.Second))
	w := h.start(first, spec)
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the worker to leave", func() bool {
		alive, err := finding.Alive(w.Dir())
		return err == nil && !alive
	})
	if st, err := process.ReadState(w.Dir()); err != nil || st.Exit == nil || st.Exit.Signal != "SIGTERM" {
		t.Errorf("final state %+v, %v", st, err)
	}
}

// TestServerAlone checks that the worker of a server ends its child and removes its
// directory after some time without a daemon.
func TestServerAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.daemon()
	spec := shell("server", `echo up; cat >/dev/null; exit 0`)
	spec.Orphan.AfterMS = 2000 // the daemon attaches before, also on a busy machine
	w := h.start(first, spec)
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the directory to be removed", func() bool {
		_, err := os.Stat(w.Dir())
		return err != nil
	})
}

// TestWorkerTerminated checks that SIGTERM to a worker, as at the end of a login session,
// ends its tree and keeps the output.
func TestWorkerTerminated(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	w := h.start(h.daemon(), shell("term", `echo one; trap 'echo two; exit 6' TERM; while :; do sleep 0.05; done`))
	e, _ := next(t, w)
	if err := syscall.Kill(w.Status().PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	got := follow(t, w, true, nil)
	if all := string(e.Data) + got.stdout.String(); got.last.Kind != supervisor.Closed || all != "one\ntwo\n" ||
		*got.last.Exit.Code != 6 {
		t.Errorf("%q, then %+v", all, got.last)
	}
	wait(t, "the end", w.Done())
}

// intrude attaches to a worker and disconnects.
func intrude(t *testing.T, w *supervisor.Worker, epoch int64) {
	t.Helper()
	c := rawDial(t, w.Spec().Socket)
	c.ask(workerwire.Initialize, workerwire.InitializeParams{Version: process.Version})
	c.send(workerwire.Attach, workerwire.AttachParams{Epoch: epoch}, 0, nil)
	_, _ = workerwire.ReadFrame(c.nc) // the answer, or an error: the connection may be closed before the answer
	_ = c.nc.Close()
}

// TestLateWorkerOfEarlierDaemon has a worker that an earlier daemon was starting take its
// lock after this daemon has found the lock free. The worker gives way.
func TestLateWorkerOfEarlierDaemon(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	earlier := h.daemon()
	late := h.start(earlier, shell("late", stubborn))
	follow(t, late, true, lines(1))
	if err := earlier.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := h.start(h.daemon(), shell("late", `echo mine; cat`))
	if w.Generation() != late.Generation()+1 || w.Status().PID == late.Status().PID {
		t.Errorf("generation %d and pid %d, after %d and %d", w.Generation(), w.Status().PID, late.Generation(),
			late.Status().PID)
	}
	if got := follow(t, w, true, lines(1)); got.stdout.String() != "mine\n" {
		t.Errorf("output %q", got.stdout.String())
	}
}
