package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/supervisor"
	"holdline/protocol/process"
)

// letters stand for facts: Alive, Spec, sTate, Boot, Handshake, Unconfirmed.
const letters = "ASTBHU"

// facts returns the facts whose letters has has.
func facts(has string) supervisor.Facts {
	var f supervisor.Facts
	for _, l := range has {
		*map[rune]*bool{
			'A': &f.Alive, 'S': &f.Spec, 'T': &f.State, 'B': &f.Boot,
			'H': &f.Server, 'U': &f.Unconfirmed,
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
		{"spec of a server that never started", "SB", supervisor.Remove},
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
		ofLiving = 1<<supervisor.Leave | 1<<supervisor.Adopt | 1<<supervisor.End
		ofDead   = 1<<supervisor.Remove | 1<<supervisor.Adopt
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
