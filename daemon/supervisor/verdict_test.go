package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/supervisor"
	"holdline/protocol/process"
)

// facts are written as their letters: Alive, Spec, sTate, Boot, Job, aNswer,
// Handshake, Unconfirmed.
func facts(kind, letters string) supervisor.Facts {
	f := supervisor.Facts{Kind: kind}
	for _, l := range letters {
		*map[rune]*bool{
			'A': &f.Alive, 'S': &f.Spec, 'T': &f.State, 'B': &f.Boot,
			'J': &f.Job, 'N': &f.Answer, 'H': &f.Server, 'U': &f.Unconfirmed,
		}[l] = true
	}
	return f
}

func TestDecide(t *testing.T) {
	const consult, server = process.KindConsult, process.KindServer
	for _, tt := range []struct {
		name, kind, facts string
		want              supervisor.Verdict
	}{
		{"directory made, and nothing more", consult, "", supervisor.Remove},
		{"directory made, under this boot", consult, "B", supervisor.Remove},
		{"spec without a job, which cannot be", consult, "SB", supervisor.Remove},
		{"job written, no spec", consult, "JB", supervisor.Remove},
		{"job written, no spec, before a reboot", consult, "J", supervisor.Remove},
		{"in the queue: spec, never started", consult, "JSB", supervisor.Queue},
		{"in the queue when the machine went down", consult, "JS", supervisor.Unbegun},
		{"young worker: lock held, no state", consult, "AJSB", supervisor.Adopt},
		{"running: lock held, state", consult, "AJSTB", supervisor.Adopt},
		{"worker dead or gone in order: state, lock free", consult, "JSTB", supervisor.Adopt},
		{"the same before a reboot: its spool is on disk", consult, "JST", supervisor.Adopt},
		{"spec taken away since the start failed", consult, "JTB", supervisor.Unknown},
		{"spec taken away while its worker comes to its lock", consult, "AJB", supervisor.Leave},
		{"worker of a job that is nobody's", consult, "ASTB", supervisor.End},
		{"answered, the worker gone", consult, "JSTNB", supervisor.Keep},
		{"answered before it began", consult, "JSNB", supervisor.Keep},
		{"answered long ago", consult, "JSTN", supervisor.Keep},
		{"answered, the worker not let go", consult, "AJSTNB", supervisor.Dismiss},
		{"answered, job gone", consult, "N", supervisor.Keep},

		{"directory made, and nothing more", server, "B", supervisor.Remove},
		{"spec, never started", server, "SB", supervisor.Remove},
		{"spec gone, worker comes to its lock", server, "AB", supervisor.Leave},
		{"young worker: lock held, no state", server, "ASB", supervisor.End},
		{"running, handshake not done", server, "ASTB", supervisor.End},
		{"running, handshake not done, a record", server, "ASTUB", supervisor.End},
		{"running", server, "ASTHB", supervisor.Adopt},
		{"running, calls in flight", server, "ASTHUB", supervisor.Adopt},
		{"dead, calls in flight or answers unconfirmed", server, "STHUB", supervisor.Adopt},
		{"dead before its handshake, a record", server, "STUB", supervisor.Adopt},
		{"dead, nobody waits", server, "STHB", supervisor.Remove},
		{"dead before a reboot: its clients are, too", server, "STHU", supervisor.Remove},
		{"dead, spec gone", server, "THUB", supervisor.Remove},
	} {
		t.Run(tt.kind+": "+tt.name, func(t *testing.T) {
			if got := supervisor.Decide(facts(tt.kind, tt.facts)); got != tt.want {
				t.Errorf("Decide(%s) = %d, want %d", tt.facts, got, tt.want)
			}
		})
	}
}

// TestDecideAlways holds what must be true whatever else is.
func TestDecideAlways(t *testing.T) {
	letters := "ASTBJNHU"
	for set := range 1 << len(letters) {
		has := strings.Map(func(l rune) rune {
			if set&(1<<strings.IndexRune(letters, l)) == 0 {
				return -1
			}
			return l
		}, letters)
		for _, kind := range []string{process.KindConsult, process.KindServer} {
			f := facts(kind, has)
			got := supervisor.Decide(f)
			switch {
			case got < supervisor.Leave || got > supervisor.Unknown:
				t.Errorf("%s %s: no verdict", kind, has)
			case f.Alive && (got == supervisor.Remove || got == supervisor.Queue || got == supervisor.Unknown || got == supervisor.Unbegun):
				t.Errorf("%s %s: verdict %d on a worker that lives", kind, has, got)
			case !f.Alive && (got == supervisor.End || got == supervisor.Dismiss || got == supervisor.Leave):
				t.Errorf("%s %s: verdict %d on a worker that is dead", kind, has, got)
			case kind == process.KindConsult && f.Answer && got != supervisor.Keep && got != supervisor.Dismiss:
				t.Errorf("%s %s: verdict %d loses an answer", kind, has, got)
			case kind == process.KindConsult && f.State && f.Job && got == supervisor.Queue:
				t.Errorf("%s %s: it would run twice", kind, has)
			case kind == process.KindServer && f.Spec && f.State && f.Boot && f.Unconfirmed && got == supervisor.Remove:
				t.Errorf("%s %s: a call that a client may ask for would run again", kind, has)
			}
		}
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := filepath.Join(h.dir, "w", tag("look"))
	if _, err := supervisor.Look(dir, process.KindServer); err == nil {
		t.Error("Look at nothing finds something")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	look := func(want string) {
		t.Helper()
		got, err := supervisor.Look(dir, process.KindServer)
		if err != nil || got != facts(process.KindServer, want) {
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
