package finding_test

import (
	"strings"
	"testing"

	"holdline/daemon/supervisor/finding"
)

// letters stand for facts: Alive, Spec, sTate, Boot, Handshake, Unconfirmed.
const letters = "ASTBHU"

// facts returns the facts whose letters has has.
func facts(has string) finding.Facts {
	var f finding.Facts
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
		want        finding.Verdict
	}{
		{"directory made, and nothing more", "", finding.Remove},
		{"directory made, under this boot", "B", finding.Remove},
		{"spec of a server that never started", "SB", finding.Remove},
		{"spec gone, worker comes to its lock", "AB", finding.Leave},
		{"server's young worker: lock held, no state", "ASB", finding.End},
		{"running, handshake not done", "ASTB", finding.End},
		{"running, handshake not done, a record", "ASTUB", finding.End},
		{"running", "ASTHB", finding.Adopt},
		{"running, calls in flight", "ASTHUB", finding.Adopt},
		{"dead, calls in flight or answers unconfirmed", "STHUB", finding.Adopt},
		{"dead before its handshake, a record", "STUB", finding.Adopt},
		{"dead, no client waits", "STHB", finding.Remove},
		{"dead before a reboot: its clients are, too", "STHU", finding.Remove},
		{"dead, spec gone", "THUB", finding.Remove},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := finding.Decide(facts(tt.facts)); got != tt.want {
				t.Errorf("Decide(%s) = %d, want %d", tt.facts, got, tt.want)
			}
		})
	}
}

// TestDecideAlways checks what must be true for all facts.
func TestDecideAlways(t *testing.T) {
	const (
		ofLiving = 1<<finding.Leave | 1<<finding.Adopt | 1<<finding.End
		ofDead   = 1<<finding.Remove | 1<<finding.Adopt
	)
	for set := range 1 << len(letters) {
		has := strings.Map(func(l rune) rune {
			if set&(1<<strings.IndexRune(letters, l)) == 0 {
				return -1
			}
			return l
		}, letters)
		f := facts(has)
		got := finding.Decide(f)
		switch {
		case f.Alive && 1<<got&ofLiving == 0:
			t.Errorf("%s: verdict %d on a worker that lives", has, got)
		case !f.Alive && 1<<got&ofDead == 0:
			t.Errorf("%s: verdict %d on a worker that is dead", has, got)
		case f.Spec && f.State && f.Boot && f.Unconfirmed && got == finding.Remove:
			t.Errorf("%s: a call that a client may ask for would run again", has)
		}
	}
}
