package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/daemon/supervisor/finding"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// refuser listens in the place of a worker, and answers each Attach with what answer returns; nil lets
// the worker's own socket come back.
type refuser struct {
	t      *testing.T
	path   string // of the worker's socket
	asked  atomic.Int32
	answer func(n int32) *workerwire.Error
}

// refuse makes a refuser for a worker.
func refuse(t *testing.T, path string, answer func(n int32) *workerwire.Error) *refuser {
	t.Helper()
	r := &refuser{t: t, path: path, answer: answer}
	if err := os.Rename(path, path+".own"); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go r.serve(conn)
		}
	}()
	return r
}

// serve answers on one connection.
func (r *refuser) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		f, err := workerwire.ReadFrame(conn)
		if err != nil {
			return
		}
		out := workerwire.Answer(f.ID, workerwire.InitializeResult{
			Version: process.Version, ID: filepath.Base(filepath.Dir(r.path)),
		})
		if f.Kind == workerwire.Attach {
			no := r.answer(r.asked.Add(1))
			if no == nil {
				_ = os.Rename(r.path+".own", r.path)
				return
			}
			out = workerwire.Frame{Kind: workerwire.Failure, ID: f.ID, Body: jsonrpc.Encode(no)}
		}
		if workerwire.WriteFrames(conn, out) != nil {
			return
		}
	}
}

// TestAttachRefusedForGood_WorkerEndedAndCallsSettled has a worker refuse a daemon with each code that
// there is, and one that there is not. Whatever does not pass ends the worker, and its last event says why;
// what passes is asked again. An older daemon ends nothing.
func TestAttachRefusedForGood_WorkerEndedAndCallsSettled(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		workerwire.CodeInvalid, workerwire.CodeUnknownMethod, workerwire.CodeVersion, workerwire.CodeNotAttached,
		workerwire.CodeStaleEpoch, workerwire.CodeWriteGap, workerwire.CodeLocked, workerwire.CodeExhausted, "of_later",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			var raised atomic.Int32
			h.raise = func(_ context.Context, above int64) (int64, error) {
				raised.Add(1)
				return above + 1, nil
			}
			first := h.daemon()
			w := h.start(first, shell("no", stubborn))
			follow(t, w, true, lines(1))
			if err := first.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := refuse(t, w.Spec().Socket, func(n int32) *workerwire.Error {
				if code == workerwire.CodeExhausted && n > 3 {
					return nil
				}
				no := workerwire.Errorf(code, "no, by test")
				no.Epoch = 100 * int64(n)
				return no
			})
			old := h.daemon()
			now := h.daemon()
			if code != workerwire.CodeExhausted {
				if _, err := old.Attach(t.Context(), h.path("no")); err == nil {
					t.Error("a daemon that has lost its place attaches")
				}
			}
			if alive, err := finding.Alive(h.path("no")); !alive || err != nil {
				t.Fatalf("an older daemon has ended the worker: %v, %v", alive, err)
			}
			r.asked.Store(0)
			begin := time.Now()
			w, err := now.Attach(t.Context(), h.path("no"))
			if err != nil {
				t.Fatal(err)
			}
			if code == workerwire.CodeExhausted {
				if !w.Status().Attached || r.asked.Load() != 4 {
					t.Errorf("attached %v after %d attempts", w.Status().Attached, r.asked.Load())
				}
				return
			}
			got := follow(t, w, true, nil)
			if got.last.Kind != supervisor.Lost || !strings.Contains(got.last.Fault.Fault.Detail, "no, by test") {
				t.Errorf("last event %+v, want it lost for the refusal", got.last)
			}
			if late := time.Since(begin); late > 30*time.Second {
				t.Errorf("it took %v", late)
			}
			if left := h.carriers("no"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			asked, want := r.asked.Load(), int32(1)
			if code == workerwire.CodeStaleEpoch {
				want = 2 // with a higher number, once
			}
			if asked != want || raised.Load() != want-1 {
				t.Errorf("asked %d times, raised %d times, want %d and %d", asked, raised.Load(), want, want-1)
			}
		})
	}
}

// TestEpochWentBack_WorkerTaken checks that a daemon whose number is too low, and which is the one in its
// place, attaches with a higher one, at its start and while it runs, and that the worker goes on.
func TestEpochWentBack_WorkerTaken(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var raised atomic.Int64
	h.raise = func(_ context.Context, above int64) (int64, error) {
		raised.Store(above + 1)
		return above + 1, nil
	}
	h.epoch = 153
	first := h.daemon()
	w := h.start(first, shell("back", `echo up; read a; echo "got $a"; read b`))
	other := h.start(first, shell("also", `echo up; read a`))
	follow(t, w, true, lines(1))
	follow(t, other, true, lines(1))
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := h.daemonAt(16)
	for _, id := range []string{"back", "also"} {
		w, err := next.Attach(t.Context(), h.path(id))
		if err != nil || !w.Status().Attached || raised.Load() != 155 {
			t.Fatalf("Attach: %+v, %v, raised to %d", w.Status(), err, raised.Load())
		}
		if id == "back" {
			intrude(t, w, 400) // a later daemon was there, and is gone
			until(t, "a higher number", func() bool { return raised.Load() == 401 && w.Status().Attached })
			if _, err := w.Write(t.Context(), calls.Record{N: 1}, []byte("x\n")); err != nil {
				t.Error(err)
			}
			if got := follow(t, w, true, lines(1)); got.stdout.String() != "got x\n" {
				t.Errorf("output %q", got.stdout.String())
			}
			raised.Store(155)
		}
	}
}

// specDamages are what may happen to the spec.json of a worker, beside that of the worker other.
func specDamages(h *home) map[string]func(path string) error {
	return map[string]func(path string) error{
		"torn":      func(path string) error { return os.Truncate(path, 20) },
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"object":    func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
		"list":      func(path string) error { return os.WriteFile(path, []byte("[1]"), 0o600) },
		"null":      func(path string) error { return os.WriteFile(path, []byte("null"), 0o600) },
		"missing":   os.Remove,
		"directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"link":      func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
		"swapped": func(path string) error {
			b, err := os.ReadFile(filepath.Join(h.path("other"), process.FileSpec))
			return errors.Join(err, os.WriteFile(path, b, 0o600))
		},
		"byte": func(path string) error { return replaceIn(path, `"cwd":"/"`, `"cwd":"."`) },
	}
}

// replaceIn replaces what must be in a file.
func replaceIn(path, old, with string) error {
	b, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(b), old) {
		err = errors.New(path + " has no " + old)
	}
	return errors.Join(err, os.WriteFile(path, []byte(strings.Replace(string(b), old, with, 1)), 0o600))
}

// TestSpecDamaged_RegisterRestoresIt attaches to workers whose spec.json is not what their daemon has
// written. The register has it: the worker goes on.
func TestSpecDamaged_RegisterRestoresIt(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.daemon()
	h.start(first, shell("other", stubborn))
	damages := specDamages(h)
	damages["version"] = func(path string) error {
		return replaceIn(path, fmt.Sprintf(`"version":%d`, process.Version), fmt.Sprintf(`"version":%d`, process.Version+1))
	}
	for name, damage := range damages {
		w := h.start(first, shell(name, `while read a; do echo "got $a"; done`))
		w.Close()
		wait(t, "the detachment", w.Done())
		if err := damage(filepath.Join(h.path(name), process.FileSpec)); err != nil {
			t.Fatal(err)
		}
		w, err := first.Attach(t.Context(), h.path(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := w.Write(t.Context(), calls.Record{N: 1}, []byte("x\n")); err != nil {
			t.Error(err)
		}
		if got := follow(t, w, true, lines(1)); got.stdout.String() != "got x\n" {
			t.Errorf("%s: output %q", name, got.stdout.String())
		}
		if spec, err := process.ReadSpec(h.path(name)); name != "directory" && (err != nil || spec.ID != name) {
			t.Errorf("%s: the spec is %+v, %v", name, spec, err)
		}
		if _, err := w.Terminate(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
}

// TestSpecDamaged_WorkerEnded attaches to workers whose spec.json is not what their daemon has written, and
// that are not in the register. No other worker is ended, and the last event says why the worker was.
func TestSpecDamaged_WorkerEnded(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.daemon()
	h.start(first, shell("other", stubborn))
	for name, damage := range specDamages(h) {
		w := h.start(first, shell(name, stubborn))
		follow(t, w, true, lines(1))
		w.Close()
		wait(t, "the detachment", w.Done())
		path := h.path(name)
		if err := errors.Join(damage(filepath.Join(path, process.FileSpec)), os.Remove(process.RegisterFile(path))); err != nil {
			t.Fatal(err)
		}
		w, err := first.Attach(t.Context(), h.path(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := follow(t, w, true, nil)
		if got.last.Kind != supervisor.Lost || !strings.Contains(got.last.Fault.Fault.Detail, process.FileSpec) {
			t.Errorf("%s: last event %+v, want it lost, with the name of the file", name, got.last)
		}
		if left := h.carriers(name); len(left) > 0 {
			t.Errorf("%s: left: %v", name, left)
		}
		wait(t, "the end", w.Done())
	}
	if alive, err := finding.Alive(h.path("other")); !alive || err != nil {
		t.Errorf("another worker: alive %v, %v", alive, err)
	}
}

// TestWorkerWithoutSoundLock_AliveAndEnded damages the lock's file of a worker. It still counts for alive,
// and can be attached to and ended.
func TestWorkerWithoutSoundLock_AliveAndEnded(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"another": func(path string) error { return os.WriteFile(path, []byte("1 1\n"), 0o600) },
		"old copy": func(path string) error {
			b, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			s := h.daemon()
			w := h.start(s, shell("lock", `echo up; read a; echo "got $a"; sleep 60`))
			follow(t, w, true, lines(1))
			pid := w.Status().PID
			w.Close()
			if err := damage(filepath.Join(h.path("lock"), process.FileLock)); err != nil {
				t.Fatal(err)
			}
			if alive, err := finding.Alive(h.path("lock")); !alive || err != nil {
				t.Fatalf("Alive = %v, %v", alive, err)
			}
			if err := h.daemon().HuntAll(t.Context()); err != nil {
				t.Error(err)
			}
			w, err := h.daemon().Attach(t.Context(), h.path("lock"))
			if err != nil || !w.Status().Attached {
				t.Fatalf("Attach: %v", err)
			}
			if _, err := w.Write(t.Context(), calls.Record{N: 1}, []byte("x\n")); err != nil {
				t.Error(err)
			}
			if got := follow(t, w, true, lines(1)); got.stdout.String() != "got x\n" {
				t.Errorf("output %q", got.stdout.String())
			}
			if err := h.daemon().Destroy(t.Context(), h.path("lock"), false); err != nil {
				t.Errorf("Destroy: %v", err)
			}
			if _, err := process.Lookup(pid); !errors.Is(err, process.ErrGone) {
				t.Errorf("the worker: %v", err)
			}
			if left := h.carriers("lock"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestLockHeldByAnotherProgram_DeadWorkerIsDead has a program hold the lock of a worker that was killed, as
// a child that the worker has left can. The worker counts for dead, and its directory can be removed.
func TestLockHeldByAnotherProgram_DeadWorkerIsDead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"named", "unnamed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			s := h.daemon()
			w := h.start(s, shell("held", stubborn))
			follow(t, w, true, lines(1))
			path := filepath.Join(h.path("held"), process.FileLock)
			squatter, err := os.Open(path) // reading suffices
			if err != nil {
				t.Fatal(err)
			}
			defer squatter.Close()
			got := make(chan error, 1)
			go func() { got <- syscall.Flock(int(squatter.Fd()), syscall.LOCK_EX) }() // it waits for the worker's end
			w.Close()
			if name == "unnamed" {
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := syscall.Kill(w.Status().PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			w, err = h.daemon().Attach(t.Context(), h.path("held"))
			if err != nil {
				t.Fatal(err)
			}
			if got := follow(t, w, true, nil); got.last.Kind != supervisor.Lost {
				t.Errorf("last event %+v", got.last)
			}
			wait(t, "the end", w.Done())
			if err := s.Reap(h.path("held")); err != nil {
				t.Errorf("Reap: %v", err)
			}
			if _, err := os.Stat(h.path("held")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("after Reap: %v", err)
			}
		})
	}
}

// TestEndAll_DamagedDirectories checks that all workers are ended, also those whose directory is damaged or
// gone: nothing of them runs on.
func TestEndAll_DamagedDirectories(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	pids := map[string]int{}
	damages := map[string]func(dir string) error{
		"sound":    func(string) error { return nil },
		"no-state": func(dir string) error { return os.Remove(filepath.Join(dir, process.FileState)) },
		"bad-state": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, process.FileState), []byte("{}"), 0o600)
		},
		"no-spec": func(dir string) error { return os.Remove(filepath.Join(dir, process.FileSpec)) },
		"no-lock": func(dir string) error { return os.Remove(filepath.Join(dir, process.FileLock)) },
		"lock-directory": func(dir string) error {
			path := filepath.Join(dir, process.FileLock)
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"neither": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, process.FileLock)), os.Remove(filepath.Join(dir, process.FileState)))
		},
		"gone": func(dir string) error { return os.Rename(dir, filepath.Join(h.dir, "gone")) }, // also while it writes there
	}
	for name, damage := range damages {
		w := h.start(s, shell(name, stubborn))
		follow(t, w, true, lines(1))
		pids[name] = w.Status().PID
		w.Close()
		wait(t, "the detachment", w.Done())
		if err := damage(h.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.EndAll(t.Context()); err != nil || n != len(damages) {
		t.Errorf("EndAll = %d, %v, want %d", n, err, len(damages))
	}
	for name, pid := range pids {
		if _, err := process.Lookup(pid); !errors.Is(err, process.ErrGone) {
			t.Errorf("%s: the worker: %v", name, err)
		}
		if left := h.carriers(name); len(left) > 0 {
			t.Errorf("%s: left: %v", name, left)
		}
	}
}
