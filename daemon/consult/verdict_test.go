package consult

import (
	"strings"
	"testing"
)

// factsOf are written as their letters: Alive, Spec, sTate, Boot, Job, aNswer.
func factsOf(letters string) facts {
	var f facts
	for _, l := range letters {
		*map[rune]*bool{'A': &f.Alive, 'S': &f.Spec, 'T': &f.State, 'B': &f.Boot, 'J': &f.Job, 'N': &f.Answer}[l] = true
	}
	return f
}

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name, facts string
		want        verdict
	}{
		{"directory made, and nothing more", "", verdictRemove},
		{"directory made, under this boot", "B", verdictRemove},
		{"spec without a job, which cannot be", "SB", verdictRemove},
		{"job written, no spec", "JB", verdictRemove},
		{"job written, no spec, before a reboot", "J", verdictRemove},
		{"in the queue: spec, never started", "JSB", verdictQueue},
		{"in the queue when the machine went down", "JS", verdictUnbegun},
		{"young worker: lock held, no state", "AJSB", verdictAdopt},
		{"running: lock held, state", "AJSTB", verdictAdopt},
		{"worker dead or gone in order: state, lock free", "JSTB", verdictAdopt},
		{"the same before a reboot: its spool is on disk", "JST", verdictAdopt},
		{"spec taken away since the start failed", "JTB", verdictUnknown},
		{"spec taken away while its worker comes to its lock", "AJB", verdictLeave},
		{"worker of a job that is nobody's", "ASTB", verdictEnd},
		{"answered, the worker gone", "JSTNB", verdictKeep},
		{"answered before it began", "JSNB", verdictKeep},
		{"answered long ago", "JSTN", verdictKeep},
		{"answered, the worker not let go", "AJSTNB", verdictDismiss},
		{"answered, job gone", "N", verdictKeep},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(factsOf(tt.facts)); got != tt.want {
				t.Errorf("decide(%s) = %d, want %d", tt.facts, got, tt.want)
			}
		})
	}
}

// TestDecideAlways holds what must be true of a job's directory whatever else
// is.
func TestDecideAlways(t *testing.T) {
	letters := "ASTBJN"
	for set := range 1 << len(letters) {
		has := strings.Map(func(l rune) rune {
			if set&(1<<strings.IndexRune(letters, l)) == 0 {
				return -1
			}
			return l
		}, letters)
		f := factsOf(has)
		got := decide(f)
		switch {
		case got < verdictLeave || got > verdictUnknown:
			t.Errorf("%s: no verdict", has)
		case f.Alive && (got == verdictRemove || got == verdictQueue || got == verdictUnknown || got == verdictUnbegun):
			t.Errorf("%s: verdict %d on a worker that lives", has, got)
		case !f.Alive && (got == verdictEnd || got == verdictDismiss || got == verdictLeave):
			t.Errorf("%s: verdict %d on a worker that is dead", has, got)
		case f.Answer && got != verdictKeep && got != verdictDismiss:
			t.Errorf("%s: verdict %d loses an answer", has, got)
		case f.State && f.Job && got == verdictQueue:
			t.Errorf("%s: it would run twice", has)
		}
	}
}
