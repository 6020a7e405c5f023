package consult

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// next returns the house after its daemon has died: another manager with another
// supervisor, over the same directories. The earlier daemon must have detached.
func (h *house) next(epoch int64, edit ...func(*Options)) *house {
	h.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	opt := h.opt
	run := filepath.Dir(opt.SocketDir)
	sup := supervisor.New(supervisor.Options{
		Exe: exe, RuntimeDir: run, StateDir: h.dirs.Root, Epoch: epoch, Program: "test", Log: opt.Log,
	})
	opt.Host = hostOf(sup, opt.Log)
	for _, f := range edit {
		f(&opt)
	}
	n := &house{t: h.t, dirs: h.dirs, project: h.project, session: h.session, workers: sup}
	if n.Manager, err = New(opt); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.t.Context()), patience)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			h.t.Errorf("close: %v", err)
		}
		if err := sup.Close(ctx); err != nil {
			h.t.Errorf("close the supervisor: %v", err)
		}
	})
	return n
}

// detach closes the manager, which leaves the jobs to their workers.
func (h *house) detach() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	if err := h.Detach(ctx); err != nil {
		h.t.Fatalf("detach: %v", err)
	}
}

// patience is how long a test waits for what has to come: under the race detector, on a busy
// machine, megabytes take a minute.
const patience = 5 * time.Minute

// beginIn starts a consult in line n, and returns when its program has printed
// something.
func (h *house) beginIn(ctx context.Context, n int64, args map[string]any) <-chan error {
	h.t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := h.run(ctx, n, args)
		done <- err
	}()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if a, err := h.Show(jobdir.ID(h.session, n)); err == nil && a.State == answer.Running && len(a.Models) > 0 {
			return done
		}
		if time.Now().After(deadline) {
			h.t.Fatal("the consult does not begin")
		}
	}
}

// untilEnded polls job n until it has ended, and returns its answer.
func (h *house) untilEnded(n int64) *answer.Answer {
	h.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		a, err := h.Show(jobdir.ID(h.session, n))
		if err != nil {
			h.t.Fatal(err)
		}
		if a.State != answer.Queued && a.State != answer.Running {
			return a
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("the consult has not ended: %+v", a)
		}
	}
}

// hold returns a step in which the program waits until open is called.
func (h *house) hold() (wait claudetest.Step, open func()) {
	h.t.Helper()
	path := filepath.Join(claudetest.Writable(h.opt.Home, h.project), "held")
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = syscall.Mkfifo(path, 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return claudetest.Step{Do: "ledger", Message: path}, func() {
		h.t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0) // the program opens the pipe once it has a reader
		if err != nil {
			h.t.Fatal(err)
		}
		h.t.Cleanup(func() { _ = f.Close() })
	}
}

// TestAdopted detaches from a running consult and adopts it in the next daemon. The program
// runs once, and the repeated call gets the answer.
func TestAdopted(t *testing.T) {
	h := newHouse(t, "")
	wait, open := h.hold()
	args := map[string]any{"prompt": claudetest.Prompt("x", wait, claudetest.Say("the answer"))}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := h.beginIn(ctx, 1, args)
	cancel(tool.ErrStopping)
	if err := <-done; err == nil {
		t.Fatal("the call ended with an answer")
	}
	h.detach()
	if res, err := h.run(t.Context(), 2, args); code(res, err) != fault.Code(tool.ErrStopping.Error()) {
		t.Errorf("a call that came too late: %v", err)
	}
	n := h.next(2)
	if !n.Recorded(h.session, 1) || n.Recorded(h.session, 2) {
		t.Error("the consult is not known")
	}
	open()
	n.Resumed(h.session, map[int64]struct{}{1: {}})
	res, err := n.run(t.Context(), 1, args)
	if err != nil || res.Fault != nil || !strings.HasPrefix(res.Text, "the answer\n") {
		t.Errorf("%v %+v", err, res)
	}
}

// TestForsaken checks that after an adoption a job ends if its client cancelled it or does
// not come back, and that a job in the background continues.
func TestForsaken(t *testing.T) {
	for _, how := range []string{"cancelled", "not back"} {
		h := newHouse(t, "")
		args := map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "hang"})}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := h.beginIn(ctx, 1, args)
		background := map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "hang"}), "wait_s": 0}
		<-h.beginIn(t.Context(), 2, background)
		cancel(tool.ErrStopping)
		<-done
		h.detach()
		n := h.next(2, func(o *Options) {
			if how == "not back" {
				o.Return = 50 * time.Millisecond
			}
		})
		if how == "cancelled" {
			n.Resumed(h.session, nil)
		}
		// Do not use Wait here: the job continues as long as a caller waits for it.
		if a := n.untilEnded(1); a.State != answer.Cancelled || !strings.Contains(a.Why, "its client") {
			t.Errorf("%s: %+v", how, a)
		}
		if a, err := n.Show(jobdir.ID(h.session, 2)); err != nil || a.State != answer.Running {
			t.Errorf("%s: the one in the background: %v %+v", how, err, a)
		}
	}
}

// newQueue returns the house of a daemon that has detached from the consult of line 1, which runs,
// while that of line 2 still waited for it. The first one goes on to its end once open is called.
func newQueue(t *testing.T) (h *house, open func()) {
	t.Helper()
	h = newHouse(t, "", func(o *Options) { o.Config.Consult.MaxConcurrent = 1 })
	wait, open := h.hold()
	<-h.beginIn(t.Context(), 1,
		map[string]any{"prompt": claudetest.Prompt("x", wait, claudetest.Say("first")), "wait_s": 0})
	if _, err := h.run(t.Context(), 2,
		map[string]any{"prompt": claudetest.Prompt("x", claudetest.Say("second")), "wait_s": 0}); err != nil {
		t.Fatal(err)
	}
	h.detach()
	return h, open
}

// TestQueuedAgain checks that a job that was still queued is started by the next daemon.
func TestQueuedAgain(t *testing.T) {
	h, open := newQueue(t)
	// A temporary file that the program before an upgrade, with the same pid, left half
	// written.
	me := process.Self()
	half := filepath.Join(h.opt.Dir, jobdir.ID(h.session, 2),
		fmt.Sprintf(".%s.%d.%d-7", process.FileSpec, me.PID, me.Start))
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := h.next(2)
	if running, queued, _ := n.Counts(); running != 1 || queued != 1 {
		t.Errorf("%d running, %d queued", running, queued)
	}
	open()
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a file of the image before is left: %v", err)
	}
	for i, want := range []string{"first", "second"} {
		if a, err := n.Wait(t.Context(), jobdir.ID(h.session, int64(i+1)), nil); err != nil || a.Text != want {
			t.Errorf("%v %+v", err, a)
		}
	}
}

// TestCancelledAgain cancels a job in the queue that an earlier daemon was about to start when it
// died: what that has made for it goes.
func TestCancelledAgain(t *testing.T) {
	h, open := newQueue(t)
	id := jobdir.ID(h.session, 2)
	left := filepath.Join(h.opt.SocketDir, id)
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	n := h.next(2)
	a, err := n.Cancel(t.Context(), id)
	open()
	if err != nil || a.State != answer.Cancelled {
		t.Fatalf("%v %+v", err, a)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(left); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("its directory is left")
		}
	}
}

// TestMuchOutput has a program write more than a worker retains before the daemon detaches.
// The next daemon gets the whole answer.
func TestMuchOutput(t *testing.T) {
	h := newHouse(t, "")
	long := strings.Repeat("word ", 50_000)
	steps := make([]claudetest.Step, 0, 32)
	for range 34 {
		steps = append(steps,
			claudetest.Step{Text: &long, Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "x"}}})
	}
	wait, open := h.hold()
	steps = append(steps, wait, claudetest.Say("the end"))
	dir := filepath.Join(h.opt.Dir, jobdir.ID(h.session, 1))
	<-h.beginIn(t.Context(), 1, map[string]any{"prompt": claudetest.Prompt("x", steps...), "wait_s": 0})
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if info, err := os.Stat(filepath.Join(dir, engine.FileTranscript)); err == nil && info.Size() > 8<<20 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the program says too little: %v", err)
		}
	}
	h.detach()
	n := h.next(2)
	open()
	a, err := n.Wait(t.Context(), jobdir.ID(h.session, 1), nil)
	if err != nil || a.State != answer.Done || a.Text != "the end" || a.NumTurns < 35 {
		t.Errorf("%v state %s, %d turns, %.100q", err, a.State, a.NumTurns, a.Text)
	}
}

// TestWorkerKilledBeforeItWasTold_NextDaemonBeginsAgain kills the worker of a consult before its process was told
// anything, while no daemon runs. The next one begins the consult again, and it gets its answer.
func TestWorkerKilledBeforeItWasTold_NextDaemonBeginsAgain(t *testing.T) {
	h, open := newQueue(t)
	dir := filepath.Join(h.opt.Dir, jobdir.ID(h.session, 2))
	w, err := h.workers.Start(t.Context(), dir, process.Spec{
		ID: filepath.Base(dir), Kind: process.KindConsult, Name: Claude, Argv: []string{h.opt.Exe, "engine", Claude}, Cwd: dir,
		Owner:  process.Owner{Session: h.session, N: 2, Identity: "a"},
		Orphan: process.Orphan{Do: process.OrphanLeave, HardDeadlineBootMS: bootclock.AtMS(time.Now().Add(patience))},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(w.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-w.Done()
	n := h.next(2)
	open()
	for i, want := range []string{"first", "second"} {
		if a, err := n.Wait(t.Context(), jobdir.ID(h.session, int64(i+1)), nil); err != nil || a.Text != want {
			t.Errorf("%v %+v", err, a)
		}
	}
}
