package hosted

import "testing"

// TestProcessStates checks that the table of transitions is the one in the doc comment, and
// that a process never returns to an earlier state.
func TestProcessStates(t *testing.T) {
	table := map[processState][4]processState{
		starting: {serving, draining, ending, exited},
		serving:  {serving, draining, ending, exited},
		draining: {draining, draining, ending, exited},
		ending:   {ending, ending, ending, exited},
		exited:   {exited, exited, exited, exited},
	}
	for from, row := range table {
		for e, want := range row {
			if got := from.after(processEvent(e)); got != want {
				t.Errorf("%v after event %d is %v, want %v", from, e, got, want)
			}
			if got := from.after(processEvent(e)); got < from {
				t.Errorf("%v after event %d goes back to %v", from, e, got)
			}
		}
	}
}
