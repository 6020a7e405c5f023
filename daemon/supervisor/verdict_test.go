package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/supervisor"
	"holdline/protocol/process"
)

// facts are written as their letters: Alive, Spec, sTate, Boot, Handshake,
// Unconfirmed.
func facts(letters string) supervisor.Facts {
	var f supervisor.Facts
	for _, l := range letters {
		*map[rune]*bool{
			'A': &f.Alive, 'S': &f.Spec, 'T': &f.State, 'B': &f.Boot,
			'H': &f.Server, 'U': &f.Unconfirmed,
		}[l] = true
	}
	return f
}

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name, facts string
		want        supervisor.Verdict
	}{
		{"directory made, and nothing more", "B", supervisor.Remove},
		{"spec, never started", "SB", supervisor.Remove},
		{"spec gone, worker comes to its lock", "AB", supervisor.Leave},
		{"young worker: lock held, no state", "ASB", supervisor.End},
		{"running, handshake not done", "ASTB", supervisor.End},
		{"running, handshake not done, a record", "ASTUB", supervisor.End},
		{"running", "ASTHB", supervisor.Adopt},
		{"running, calls in flight", "ASTHUB", supervisor.Adopt},
		{"dead, calls in flight or answers unconfirmed", "STHUB", supervisor.Adopt},
		{"dead before its handshake, a record", "STUB", supervisor.Adopt},
		{"dead, nobody waits", "STHB", supervisor.Remove},
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

// TestDecideAlways holds what must be true whatever else is.
func TestDecideAlways(t *testing.T) {
	letters := "ASTBHU"
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
		case got < supervisor.Leave || got > supervisor.End:
			t.Errorf("%s: no verdict", has)
		case f.Alive && got == supervisor.Remove:
			t.Errorf("%s: verdict %d on a worker that lives", has, got)
		case !f.Alive && (got == supervisor.End || got == supervisor.Leave):
			t.Errorf("%s: verdict %d on a worker that is dead", has, got)
		case f.Spec && f.State && f.Boot && f.Unconfirmed && got == supervisor.Remove:
			t.Errorf("%s: a call that a client may ask for would run again", has)
		}
	}
}

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
