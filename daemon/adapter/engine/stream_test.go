package engine_test

import (
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
)

// TestProgramPrintsWordsAndEnds_UserReadsThem checks that what a program prints to stdout besides its
// protocol is in the fault of a run without a result: some say only there why they do not work.
func TestProgramPrintsWordsAndEnds_UserReadsThem(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		want  string
		lacks string
	}{
		"words":        {lines: []string{"Credit balance is too low"}, want: `It printed: "Credit balance is too low"`},
		"many lines":   {lines: []string{"one", "", "two\x1b[1m", "three", "four"}, want: `"one / two [1m / three"`, lacks: "four"},
		"a long line":  {lines: []string{strings.Repeat("x", 4000)}, want: "1 of its lines were not JSON", lacks: "xxx"},
		"its protocol": {lines: []string{`{"type":"x"}`}, want: "without a result", lacks: "printed"},
	} {
		var s engine.Stream
		for _, line := range tt.lines {
			var message struct{}
			s.Decode([]byte(line), &message)
		}
		f := engine.Program{Name: "x"}.Silent(engine.Exit{Known: true, Code: 1}, &s)
		said := f.Fault.Detail
		if !strings.Contains(said, tt.want) || tt.lacks != "" && strings.Contains(said, tt.lacks) {
			t.Errorf("%s: %s", name, said)
		}
	}
}
