package rollout

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/filewatch"
	"holdline/daemon/telemetry"
	"holdline/protocol/fault"
)

// rig is a watcher of a path that exists only in the test.
type rig struct {
	t *testing.T
	*Watcher

	mu       sync.Mutex // guards the fields that follow
	file     filewatch.Stamp
	missing  bool
	verify   error
	handOver error
	during   func() // called while the file is verified

	states   []telemetry.Rollout
	fault    *fault.Record
	verified []time.Duration // since the start
	handed   []uint64        // inodes that took over, or tried to
}

var first = filewatch.Stamp{Inode: 1, Size: 10, MTime: 100, Mode: 0o755}

// watch runs test with a watcher, in a synctest bubble.
func watch(t *testing.T, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, file: first}
		begin := time.Now()
		r.Watcher = New(Options{
			Log: slog.New(slog.DiscardHandler), Path: "/bin/holdline", Running: []filewatch.Stamp{first},
			Verify: func(context.Context, string) (Found, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.verified = append(r.verified, time.Since(begin))
				if r.during != nil {
					r.during()
				}
				return Found{Version: "2"}, r.verify
			},
			HandOver: func(_ context.Context, s filewatch.Stamp, _ Found) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.handed = append(r.handed, s.Inode)
				return r.handOver
			},
			Report: func(s telemetry.Rollout, f *fault.Record) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.states = append(r.states, s)
				r.fault = f
			},
		})
		r.stat = func(string) (filewatch.Stamp, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.missing {
				return filewatch.Stamp{}, fs.ErrNotExist
			}
			return r.file, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		r.mu.Lock() // released while time passes
		test(r)
		r.mu.Unlock()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want its context's end", err)
		}
	})
}

// pass lets the time d pass.
func (r *rig) pass(d time.Duration) {
	r.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
}

// upgrade asks for the hand-over as a command does.
func (r *rig) upgrade(begin func(Found)) error {
	r.mu.Unlock()
	defer r.mu.Lock()
	return r.Upgrade(r.t.Context(), begin)
}

func (r *rig) wantStates(want ...telemetry.Rollout) {
	r.t.Helper()
	if !slices.Equal(r.states, want) {
		r.t.Errorf("states = %v, want %v", r.states, want)
	}
}

// TestNothingChanges checks that the watcher does nothing while the program stays the same.
func TestNothingChanges(t *testing.T) {
	watch(t, func(r *rig) {
		r.pass(time.Hour)
		r.file.Mode = 0o700 // a change that makes it no other program
		r.pass(time.Minute)
		r.wantStates()
		if len(r.verified) > 0 {
			r.t.Errorf("tried at %v, want never", r.verified)
		}
	})
}

// TestSettle writes a file over some seconds. It is tried once, after it has stayed
// unchanged for long enough.
func TestSettle(t *testing.T) {
	watch(t, func(r *rig) {
		r.handOver = errors.New("no exec in tests")
		r.pass(500 * time.Millisecond)
		r.file.Inode = 2
		for range 5 {
			r.pass(time.Second) // to 5.5 s
			r.file.Size++
		}
		r.pass(10 * time.Second)
		// The last change is seen at 6 s, and no further one at 7 s.
		if want := []time.Duration{7 * time.Second}; !slices.Equal(r.verified, want) {
			r.t.Errorf("tried at %v, want %v", r.verified, want)
		}
		if !slices.Equal(r.handed, []uint64{2}) {
			r.t.Errorf("handed over to %v, want to inode 2 once", r.handed)
		}
		r.wantStates(telemetry.Pending, telemetry.Reloading, telemetry.Rejected)
		if r.fault == nil || r.fault.Fault.Code != fault.RolloutFailure || r.fault.Fault.Detail != "no exec in tests" {
			r.t.Errorf("fault = %+v, want a rollout_failure with the reason", r.fault)
		}
	})
}

// TestRejectedIsRemembered checks that a file that was refused is not tried again until it
// changes, if only in its mode.
func TestRejectedIsRemembered(t *testing.T) {
	watch(t, func(r *rig) {
		r.verify = errors.New("garbage")
		r.file = filewatch.Stamp{Inode: 2, Size: 5, MTime: 200, Mode: 0o644}
		r.pass(time.Hour)
		if len(r.verified) != 1 {
			r.t.Fatalf("tried %d times, want once", len(r.verified))
		}
		r.wantStates(telemetry.Pending, telemetry.Rejected)

		r.file.Mode = 0o755
		r.pass(time.Minute)
		if len(r.verified) != 2 {
			r.t.Errorf("tried %d times after chmod, want twice", len(r.verified))
		}
		r.Forget()
		r.pass(time.Minute)
		if len(r.verified) != 3 {
			r.t.Errorf("tried %d times after Forget, want three times", len(r.verified))
		}

		// The old file is put back: the state is stable again.
		r.states = nil
		r.file = first
		r.pass(time.Minute)
		r.wantStates(telemetry.Stable)
		if r.fault != nil || len(r.handed) > 0 {
			r.t.Errorf("fault %v, handed over to %v, want neither", r.fault, r.handed)
		}
	})
}

// TestMissingFile checks that a missing file is no new program: the watcher ignores it, and
// the command refuses it.
func TestMissingFile(t *testing.T) {
	watch(t, func(r *rig) {
		r.missing = true
		r.pass(time.Minute)
		r.wantStates()
		if err := r.upgrade(nil); !isRolloutFailure(err) {
			r.t.Errorf("Upgrade = %v, want a rollout_failure", err)
		}
		r.missing = false
		r.pass(time.Minute)
		r.wantStates()
	})
}

// TestChangesWhileVerified checks that only the verified file takes over: one that changes
// meanwhile does not.
func TestChangesWhileVerified(t *testing.T) {
	watch(t, func(r *rig) {
		r.handOver = errors.New("no exec in tests")
		r.during = func() { r.file.Inode++; r.during = nil }
		r.file.Inode = 2
		r.pass(time.Minute)
		if !slices.Equal(r.handed, []uint64{3}) || len(r.verified) != 2 {
			r.t.Errorf("handed over to %v after %d trials, want to inode 3 after 2", r.handed, len(r.verified))
		}
	})
}

// TestUpgrade checks that the command tries a new file at once, also one that the watcher
// has given up.
func TestUpgrade(t *testing.T) {
	watch(t, func(r *rig) {
		if err := r.upgrade(nil); !errors.Is(err, ErrCurrent) {
			r.t.Errorf("Upgrade = %v, want ErrCurrent", err)
		}
		// A command does not wait for the file to settle.
		r.file.Inode = 2
		r.handOver = errors.New("no exec in tests")
		var begun Found
		if err := r.upgrade(func(f Found) { begun = f }); !isRolloutFailure(err) {
			r.t.Errorf("Upgrade = %v, want a rollout_failure", err)
		}
		if begun.Version != "2" || len(r.handed) != 1 {
			r.t.Errorf("begun with %+v, handed over to %v; want version 2, inode 2", begun, r.handed)
		}
		// The watcher does not try this file again, but a command does.
		r.pass(time.Minute)
		r.verify = errors.New("garbage")
		err := r.upgrade(func(Found) { r.t.Error("begun with garbage") })
		if !isRolloutFailure(err) || len(r.verified) != 2 || len(r.handed) != 1 {
			r.t.Errorf("Upgrade = %v, tried %d times, handed over to %v", err, len(r.verified), r.handed)
		}
	})
}

// TestStopWhileVerified checks that a verification that the daemon's end interrupts does
// not count against the file.
func TestStopWhileVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := New(Options{
			Log: slog.New(slog.DiscardHandler),
			Verify: func(ctx context.Context, _ string) (Found, error) {
				cancel()
				<-ctx.Done()
				return Found{}, ctx.Err()
			},
			Report: func(s telemetry.Rollout, _ *fault.Record) {
				if s != telemetry.Pending {
					t.Errorf("state = %s", s)
				}
			},
		})
		w.stat = func(string) (filewatch.Stamp, error) { return filewatch.Stamp{Inode: 2}, nil }
		if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
		if err := w.Upgrade(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Upgrade without Run = %v", err)
		}
	})
}

func isRolloutFailure(err error) bool {
	f, ok := errors.AsType[*fault.Record](err)
	return ok && f.Fault.Code == fault.RolloutFailure
}
