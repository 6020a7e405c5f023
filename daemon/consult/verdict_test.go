package consult

import (
	"strings"
	"testing"
)

// letters stand for facts: Alive, Spec, sTate, Boot, Job, aNswer.
const letters = "ASTBJN"

// factsOf returns the facts whose letters has has.
func factsOf(has string) facts {
	var f facts
	for _, l := range has {
		*map[rune]*bool{'A': &f.Alive, 'S': &f.Spec, 'T': &f.State, 'B': &f.Boot, 'J': &f.job, 'N': &f.answer}[l] = true
	}
	return f
}

// TestDecide checks the verdict for the facts of each situation.
func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name, facts string
		want        verdict
	}{
		{"directory made, and nothing more", "", isNone},
		{"spec without its job", "SB", isNone},
		{"job removed, a worker lives", "ASTB", isNone},
		{"in the queue", "JB", waits},
		{"in the queue when the machine went down", "J", neverBegan},
		{"being started: spec, no worker", "JSB", waits},
		{"the same when the machine went down", "JS", neverBegan},
		{"young worker: lock held, no state", "AJSB", goesOn},
		{"runs: lock held, state", "AJSTB", goesOn},
		{"worker dead or gone in order: state, lock free", "JSTB", goesOn},
		{"the same before a reboot: its spool is on disk", "JST", goesOn},
		{"spec removed since the start failed", "JTB", wasLost},
		{"spec removed while its worker comes to its lock", "AJB", waits},
		{"answered, the worker gone", "JSTNB", hasEnded},
		{"answered before it began", "JNB", hasEnded},
		{"answered long ago", "JSTN", hasEnded},
		{"answered, the worker lives on", "AJSTNB", hasEnded},
		{"answered, job gone", "N", hasEnded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(factsOf(tt.facts)); got != tt.want {
				t.Errorf("decide(%s) = %d, want %d", tt.facts, got, tt.want)
			}
		})
	}
}

// TestDecideAlways checks what must be true for all facts.
func TestDecideAlways(t *testing.T) {
	for set := range 1 << len(letters) {
		has := strings.Map(func(l rune) rune {
			if set&(1<<strings.IndexRune(letters, l)) == 0 {
				return -1
			}
			return l
		}, letters)
		f := factsOf(has)
		switch got := decide(f); {
		case f.answer && got != hasEnded:
			t.Errorf("%s: verdict %d loses an answer", has, got)
		case !f.answer && f.job && got == isNone:
			t.Errorf("%s: a job whose id may have been told is lost", has)
		case f.Alive && f.Spec && f.job && !f.answer && got != goesOn:
			t.Errorf("%s: verdict %d on a worker that lives", has, got)
		case f.State && got == waits:
			t.Errorf("%s: it would run twice", has)
		}
	}
}
