package stage

import "testing"

// TestProcessStates checks that the table of transitions is the one in the doc comment, and
// that a process never returns to an earlier state.
func TestProcessStates(t *testing.T) {
	table := map[State][4]State{
		Starting: {Serving, Draining, Ending, Exited},
		Serving:  {Serving, Draining, Ending, Exited},
		Draining: {Draining, Draining, Ending, Exited},
		Ending:   {Ending, Ending, Ending, Exited},
		Exited:   {Exited, Exited, Exited, Exited},
	}
	for from, row := range table {
		for e, want := range row {
			if got := from.After(Event(e)); got != want {
				t.Errorf("%v after event %d is %v, want %v", from, e, got, want)
			}
			if got := from.After(Event(e)); got < from {
				t.Errorf("%v after event %d goes back to %v", from, e, got)
			}
		}
	}
}
