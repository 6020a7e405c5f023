package consult

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/calls"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// damages are what can become of a file of a consult.
var damages = map[string]func(path string, whole []byte) error{
	"missing": func(path string, _ []byte) error { return os.Remove(path) },
	"emptied": func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
	"half":    func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
	"one bit": func(path string, b []byte) error {
		b = bytes.Clone(b)
		b[bytes.LastIndex(b, []byte(`":"`))+len(`":"`)] ^= 1 // it stays JSON
		return os.WriteFile(path, b, 0o600)
	},
	"NULs": func(path string, b []byte) error { return os.WriteFile(path, make([]byte, len(b)), 0o600) },
	"other JSON": func(path string, _ []byte) error {
		return os.WriteFile(path, []byte(`{"version":1}`), 0o600)
	},
	"another consult's": func(path string, b []byte) error {
		id := filepath.Base(filepath.Dir(path))
		return os.WriteFile(path, bytes.ReplaceAll(b, []byte(id), []byte("0123456789ab")), 0o600)
	},
	"a directory": func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
}

// TestDamagedFiles_EndedConsult damages each file of a consult that has ended, between two daemons. Its
// answer is the one that it had as long as another file has it; else it is a fault that names the file. The
// consult is never run again, and no consult gets another's answer.
func TestDamagedFiles_EndedConsult(t *testing.T) {
	for name, damage := range damages {
		for _, file := range []string{jobdir.FileJob, jobdir.FileAnswer, engine.FileOutcome} {
			t.Run(file+" "+name, func(t *testing.T) {
				h := newHouse(t, "")
				args := map[string]any{"prompt": claudetest.Prompt("x", claudetest.Say("the answer"))}
				if res, err := h.run(t.Context(), 1, args); err != nil || res.Fault != nil {
					t.Fatalf("%v, %+v", err, res)
				}
				h.detach()
				dir := filepath.Join(h.dirs.Consults, jobdir.ID(h.session, 1))
				path := filepath.Join(dir, file)
				whole, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := damage(path, whole); err != nil {
					t.Fatal(err)
				}
				n := h.next(2)
				a, err := n.Wait(t.Context(), filepath.Base(dir), nil)
				if err != nil || a.State != answer.Done || a.Text != "the answer" || a.ID != filepath.Base(dir) {
					t.Errorf("the answer: %v, %+v", err, a)
				}
			})
		}
	}
}

// liveConsult begins a consult whose program hangs, and leaves it to the next daemon. It returns the
// directory of the consult, its arguments, and the engine process.
func (h *house) liveConsult(t *testing.T) (dir string, args map[string]any, child int) {
	t.Helper()
	args = map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{Do: "hang"})}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := h.beginIn(ctx, 1, args)
	cancel(tool.ErrStopping)
	<-ended
	dir = filepath.Join(h.dirs.Consults, jobdir.ID(h.session, 1))
	state, err := process.ReadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	h.detach()
	return dir, args, state.ChildPID
}

// TestDamagedJob_LiveConsult damages job.json of a consult whose process lives, between two daemons. The
// process is ended, and the consult's outcome is unknown, by a fault that names the file. The client that
// asks for it again gets that, and no second run.
func TestDamagedJob_LiveConsult(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, "")
			dir, args, child := h.liveConsult(t)
			path := filepath.Join(dir, jobdir.FileJob)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path, whole); err != nil {
				t.Fatal(err)
			}
			n := h.next(2)
			if _, err := process.Lookup(child); !errors.Is(err, process.ErrGone) {
				t.Errorf("the engine process %d: %v, want it gone", child, err)
			}
			res, err := n.run(t.Context(), 1, args)
			if code(res, err) != fault.OutcomeUnknown || !strings.Contains(res.Fault.Fault.Detail, path) {
				t.Errorf("asked again: %v, %+v, want %s that names %s", err, res, fault.OutcomeUnknown, path)
			}
		})
	}
}

// TestJobUnreadableForAMoment_DaemonServesMeanwhile has a file of a consult that lives unreadable when the
// next daemon starts, for an error that passes. The daemon serves meanwhile; what asks for that consult
// waits, and its client, which wants it no more, says so before the daemon knows of it. Then the consult
// goes on, or ends as its client wants, and does not run again.
func TestJobUnreadableForAMoment_DaemonServesMeanwhile(t *testing.T) {
	for _, file := range []string{jobdir.FileJob, process.FileSpec, jobdir.FileAnswer} {
		for _, wanted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, wanted %t", file, wanted), func(t *testing.T) {
				h := newHouse(t, "")
				dir, _, child := h.liveConsult(t)
				path := filepath.Join(dir, file)
				unreadable.Store(&path)
				defer unreadable.Store(nil)
				n := h.next(2) // which returns at once: what is not read later than in five seconds is damage
				if n.Unread("", "", h.session, 1) == nil {
					t.Error("nothing waits for the consult")
				}
				if n.Unread("", "", h.session, 2) != nil || n.Unread("hosted", "", h.session, 1) != nil {
					t.Error("another call waits for the consult")
				}
				pending := map[int64]struct{}{1: {}}
				if !wanted {
					pending = nil
				}
				n.Resumed(h.session, pending)
				unreadable.Store(nil)
				if !wanted {
					if a := n.untilEnded(1); a.State != answer.Cancelled {
						t.Errorf("the consult that nobody wants: %+v", a)
					}
					return
				}
				if _, err := n.Show(filepath.Base(dir)); err != nil {
					t.Errorf("the consult: %v", err)
				}
				if _, err := process.Lookup(child); err != nil {
					t.Errorf("the engine process %d: %v, want it alive", child, err)
				}
				if a, err := n.Cancel(t.Context(), filepath.Base(dir)); err != nil || a.State != answer.Cancelled {
					t.Errorf("cancelled: %v, %+v", err, a)
				}
			})
		}
	}
}

// TestDamagedJournal_LiveConsult damages the journal of a consult's worker that lives, between two daemons. The
// next one ends the consult as its client wants, and its process with it.
func TestDamagedJournal_LiveConsult(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"emptied":  func([]byte) []byte { return nil },
		"half":     func(b []byte) []byte { return b[:len(b)/2] },
		"NULs":     func(b []byte) []byte { return make([]byte, len(b)) },
		"one byte": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, "")
			dir, _, child := h.liveConsult(t)
			path := filepath.Join(dir, calls.File)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, change(whole), 0o600); err != nil {
				t.Fatal(err)
			}
			n := h.next(2)
			n.Resumed(h.session, nil) // its client wants it no more
			if a := n.untilEnded(1); a.State == answer.Done {
				t.Errorf("the answer: %+v", a)
			}
			if _, err := process.Lookup(child); !errors.Is(err, process.ErrGone) {
				t.Errorf("the engine process %d: %v, want it gone", child, err)
			}
		})
	}
}
