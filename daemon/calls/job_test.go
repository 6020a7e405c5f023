package calls

import (
	"strings"
	"testing"
)

// jobLetters stand for facts: Alive, Spec, sTate, Boot, Job, aNswer, group (P), torn answer (W), Damaged, Left, tOld.
const jobLetters = "ASTBJNPWDLO"

// jobFactsOf returns the facts whose letters has has.
func jobFactsOf(has string) JobFacts {
	var f JobFacts
	for _, l := range has {
		*map[rune]*bool{
			'A': &f.Alive, 'S': &f.Spec, 'T': &f.State, 'B': &f.Boot, 'J': &f.Job, 'N': &f.Answer, 'P': &f.Group,
			'W': &f.Torn, 'D': &f.Damaged, 'L': &f.Left, 'O': &f.Told,
		}[l] = true
	}
	return f
}

// TestDecideJob checks the verdict for the facts of each situation.
func TestDecideJob(t *testing.T) {
	for _, tt := range []struct {
		name, facts string
		want        JobVerdict
	}{
		{"directory made, and nothing more", "", JobUnknown},
		{"spec without its job", "SB", JobLost},
		{"job removed, a worker lives", "ASTB", JobLost},
		{"job removed, a worker comes to its lock", "AB", JobLost},
		{"job damaged, a worker lives", "ASTBD", JobLost},
		{"job damaged, and no worker", "BD", JobLost},
		{"spec damaged, no state yet", "AJBD", JobLost},
		{"job damaged, answered", "ND", JobEnded},
		{"answer damaged, the worker gone", "JSTWBO", JobTorn},
		{"answer damaged, and the job", "STWDB", JobTorn},
		{"answer damaged, the worker lives on and has it", "AJSTWB", JobGoesOn},
		{"answer of a group damaged: its members have theirs", "JPWB", JobGoesOn},
		{"in the queue", "JB", JobWaits},
		{"in the queue when the machine went down", "J", JobNeverBegan},
		{"being started: spec, no worker", "JSB", JobWaits},
		{"the same when the machine went down", "JS", JobNeverBegan},
		{"young worker: lock held, no state", "AJSB", JobGoesOn},
		{"runs: lock held, state", "AJSTB", JobGoesOn},
		{"worker killed before its process was told anything", "JSTB", JobWaits},
		{"the same, and the start had failed for that daemon", "JTB", JobWaits},
		{"the same before a reboot: what was told is not known", "JST", JobGoesOn},
		{"worker killed after its process was told", "JSTBO", JobGoesOn},
		{"the same, and its state is gone", "JSBO", JobGoesOn},
		{"the same, and its spec, too", "JBO", JobLost},
		{"worker gone in order: its process ended", "JSTBOL", JobGoesOn},
		{"worker gone in order: its process ended before it was told anything", "JSTBL", JobGoesOn},
		{"told before a reboot: its spool is on disk", "JSTO", JobGoesOn},
		{"spec removed, and its process was told", "JTBO", JobLost},
		{"spec removed while its worker comes to its lock", "AJB", JobWaits},
		{"a group whose members run", "JPB", JobGoesOn},
		{"a group when the machine went down", "JP", JobGoesOn},
		{"answered, the worker gone", "JSTNBO", JobEnded},
		{"answered before it began", "JNB", JobEnded},
		{"answered long ago", "JSTN", JobEnded},
		{"answered, the worker lives on", "AJSTNB", JobEnded},
		{"answered, job gone", "N", JobEnded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := DecideJob(jobFactsOf(tt.facts)); got != tt.want {
				t.Errorf("DecideJob(%s) = %d, want %d", tt.facts, got, tt.want)
			}
		})
	}
}

// TestDecideJobAlways checks what must be true for all facts.
func TestDecideJobAlways(t *testing.T) {
	for set := range 1 << len(jobLetters) {
		has := strings.Map(func(l rune) rune {
			if set&(1<<strings.IndexRune(jobLetters, l)) == 0 {
				return -1
			}
			return l
		}, jobLetters)
		f := jobFactsOf(has)
		switch got := DecideJob(f); {
		case f.Answer && got != JobEnded:
			t.Errorf("%s: verdict %d loses an answer", has, got)
		case !f.Answer && f.Job && got == JobUnknown:
			t.Errorf("%s: a job whose id may have been told is lost", has)
		case f.Alive && f.Spec && f.Job && !f.Answer && !f.Damaged && got != JobGoesOn:
			t.Errorf("%s: verdict %d on a worker that lives", has, got)
		case (f.Alive || f.Spec || f.State || f.Damaged) && !f.Answer && (got == JobUnknown || f.Damaged && got == JobWaits):
			t.Errorf("%s: verdict %d begins again what may have run", has, got)
		case f.State && got == JobWaits && (f.Alive || f.Left || !f.Boot), f.Told && (got == JobWaits || got == JobNeverBegan):
			t.Errorf("%s: it would run twice, or without end", has)
		}
	}
}
