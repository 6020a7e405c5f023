package jobdir

import (
	"strings"
	"testing"
)

// letters stand for facts: Alive, Spec, sTate, Boot, Job, aNswer, Panel, torn answer (W), Damaged.
const letters = "ASTBJNPWD"

// factsOf returns the facts whose letters has has.
func factsOf(has string) Facts {
	var f Facts
	for _, l := range has {
		*map[rune]*bool{
			'A': &f.Alive, 'S': &f.Spec, 'T': &f.State, 'B': &f.Boot, 'J': &f.Job, 'N': &f.Answer, 'P': &f.Panel, 'W': &f.Torn, 'D': &f.Damaged,
		}[l] = true
	}
	return f
}

// TestDecide checks the verdict for the facts of each situation.
func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name, facts string
		want        Verdict
	}{
		{"directory made, and nothing more", "", Unknown},
		{"spec without its job", "SB", Lost},
		{"job removed, a worker lives", "ASTB", Lost},
		{"job removed, a worker comes to its lock", "AB", Lost},
		{"job damaged, a worker lives", "ASTBD", Lost},
		{"job damaged, and no worker", "BD", Lost},
		{"spec damaged, no state yet", "AJBD", Lost},
		{"job damaged, answered", "ND", Ended},
		{"answer damaged, the worker gone", "JSTWB", Torn},
		{"answer damaged, and the job", "STWDB", Torn},
		{"answer damaged, the worker lives on and has it", "AJSTWB", GoesOn},
		{"answer of a panel damaged: its members have theirs", "JPWB", GoesOn},
		{"in the queue", "JB", Waits},
		{"in the queue when the machine went down", "J", NeverBegan},
		{"being started: spec, no worker", "JSB", Waits},
		{"the same when the machine went down", "JS", NeverBegan},
		{"young worker: lock held, no state", "AJSB", GoesOn},
		{"runs: lock held, state", "AJSTB", GoesOn},
		{"worker dead or gone in order: state, lock free", "JSTB", GoesOn},
		{"the same before a reboot: its spool is on disk", "JST", GoesOn},
		{"spec removed since the start failed", "JTB", Lost},
		{"spec removed while its worker comes to its lock", "AJB", Waits},
		{"a panel whose members run", "JPB", GoesOn},
		{"a panel when the machine went down", "JP", GoesOn},
		{"answered, the worker gone", "JSTNB", Ended},
		{"answered before it began", "JNB", Ended},
		{"answered long ago", "JSTN", Ended},
		{"answered, the worker lives on", "AJSTNB", Ended},
		{"answered, job gone", "N", Ended},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Decide(factsOf(tt.facts)); got != tt.want {
				t.Errorf("Decide(%s) = %d, want %d", tt.facts, got, tt.want)
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
		switch got := Decide(f); {
		case f.Answer && got != Ended:
			t.Errorf("%s: verdict %d loses an answer", has, got)
		case !f.Answer && f.Job && got == Unknown:
			t.Errorf("%s: a job whose id may have been told is lost", has)
		case f.Alive && f.Spec && f.Job && !f.Answer && !f.Damaged && got != GoesOn:
			t.Errorf("%s: verdict %d on a worker that lives", has, got)
		case (f.Alive || f.Spec || f.State || f.Damaged) && !f.Answer && (got == Unknown || f.Damaged && got == Waits):
			t.Errorf("%s: verdict %d begins again what may have run", has, got)
		case f.State && got == Waits:
			t.Errorf("%s: it would run twice", has)
		}
	}
}
