package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/supervisor"
	"holdline/protocol/process"
)

// letters stand for facts: Alive, Spec, sTate, Boot, Handshake, Unconfirmed, Job, aNswer.
const letters = "ASTBHUJN"

// facts returns the facts whose letters has has.
func facts(has string) supervisor.Facts {
	var f supervisor.Facts
	for _, l := range has {
		*map[rune]*bool{
			'A': &f.Alive, 'S': &f.Spec, 'T': &f.State, 'B': &f.Boot,
			'H': &f.Server, 'U': &f.Unconfirmed, 'J': &f.Job, 'N': &f.Answer,
		}[l] = true
	}
	return f
}

// TestDecide checks the verdict for the facts of each situation.
func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name, facts string
		want        supervisor.Verdict
	}{
		{"directory made, and nothing more", "", supervisor.Remove},
		{"directory made, under this boot", "B", supervisor.Remove},
		{"spec of a server that never started, or without its job", "SB", supervisor.Remove},
		{"spec gone, worker comes to its lock", "AB", supervisor.Leave},
		{"server's young worker: lock held, no state", "ASB", supervisor.End},
		{"running, handshake not done", "ASTB", supervisor.End},
		{"running, handshake not done, a record", "ASTUB", supervisor.End},
		{"running", "ASTHB", supervisor.Adopt},
		{"running, calls in flight", "ASTHUB", supervisor.Adopt},
		{"dead, calls in flight or answers unconfirmed", "STHUB", supervisor.Adopt},
		{"dead before its handshake, a record", "STUB", supervisor.Adopt},
		{"dead, no client waits", "STHB", supervisor.Remove},
		{"dead before a reboot: its clients are, too", "STHU", supervisor.Remove},
		{"dead, spec gone", "THUB", supervisor.Remove},

		{"job written, no spec", "JB", supervisor.Remove},
		{"job written, no spec, before a reboot", "J", supervisor.Remove},
		{"job in the queue: spec, never started", "JSB", supervisor.Queue},
		{"job in the queue when the machine went down", "JS", supervisor.Unbegun},
		{"job's young worker: lock held, no state", "AJSB", supervisor.Adopt},
		{"job runs: lock held, state", "AJSTB", supervisor.Adopt},
		{"job's worker dead or gone in order: state, lock free", "JSTB", supervisor.Adopt},
		{"the same before a reboot: its spool is on disk", "JST", supervisor.Adopt},
		{"job's spec removed since the start failed", "JTB", supervisor.Unknown},
		{"job's spec removed while its worker comes to its lock", "AJB", supervisor.Leave},
		{"answered, the worker gone", "JSTNB", supervisor.Keep},
		{"answered before it began", "JSNB", supervisor.Keep},
		{"answered long ago", "JSTN", supervisor.Keep},
		{"answered, the worker lives on", "AJSTNB", supervisor.Dismiss},
		{"answered, job gone", "N", supervisor.Keep},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := supervisor.Decide(facts(tt.facts)); got != tt.want {
				t.Errorf("Decide(%s) = %d, want %d", tt.facts, got, tt.want)
			}
		})
	}
}

// TestDecideAlways checks what must be true for all facts.
func TestDecideAlways(t *testing.T) {
	const (
		ofLiving = 1<<supervisor.Leave | 1<<supervisor.Adopt | 1<<supervisor.End | 1<<supervisor.Dismiss
		ofJobs   = 1<<supervisor.Queue | 1<<supervisor.Unbegun | 1<<supervisor.Unknown
		ofDead   = 1<<supervisor.Remove | 1<<supervisor.Adopt | 1<<supervisor.Keep | ofJobs
	)
	for set := range 1 << len(letters) {
		has := strings.Map(func(l rune) rune {
			if set&(1<<strings.IndexRune(letters, l)) == 0 {
				return -1
			}
			return l
		}, letters)
		f := facts(has)
		got := supervisor.Decide(f)
		switch {
		case f.Alive && 1<<got&ofLiving == 0:
			t.Errorf("%s: verdict %d on a worker that lives", has, got)
		case !f.Alive && 1<<got&ofDead == 0:
			t.Errorf("%s: verdict %d on a worker that is dead", has, got)
		case !f.Job && 1<<got&ofJobs != 0:
			t.Errorf("%s: verdict %d on a server", has, got)
		case f.Answer && got != supervisor.Keep && got != supervisor.Dismiss:
			t.Errorf("%s: verdict %d loses an answer", has, got)
		case f.State && f.Job && got == supervisor.Queue:
			t.Errorf("%s: it would run twice", has)
		case f.Spec && f.Job && got == supervisor.Remove:
			t.Errorf("%s: a job whose id may have been told is lost", has)
		case f.Spec && f.State && f.Boot && f.Unconfirmed && got == supervisor.Remove:
			t.Errorf("%s: a call that a client may ask for would run again", has)
		}
	}
}

// TestLook checks which facts Look finds during the life of a worker.
func TestLook(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := filepath.Join(h.dir, "w", "look")
	if _, err := supervisor.Look(dir); err == nil {
		t.Error("Look at nothing finds something")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	look := func(want string) {
		t.Helper()
		got, err := supervisor.Look(dir)
		if err != nil || got != facts(want) {
			t.Errorf("Look = %+v, %v, want %q", got, err, want)
		}
	}
	look("")
	s := h.daemon()
	w := h.start(s, shell("look", "read a"))
	look("AST")
	if err := os.WriteFile(filepath.Join(dir, process.FileServer), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	look("ASTH")
	if _, err := w.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
	follow(t, w, true, nil)
	wait(t, "the end", w.Done())
	look("STH")
}
