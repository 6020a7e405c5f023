package hosted

import "testing"

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    Facts
		want Action
	}{
		{"its client has the answer", Facts{Recorded: true, Taken: true, Alive: true, Answered: true, Call: true}, Forget},
		{"cancelled while no daemon lived", Facts{Recorded: true, Taken: true, Alive: true, Call: true}, Cancel},
		{"a handshake nobody waits for", Facts{Recorded: true, Taken: true, Alive: true}, Forget},
		{"cancelled before it was taken", Facts{Recorded: true, Alive: true, Call: true}, Forget},
		{"cancelled, and the worker is dead", Facts{Recorded: true, Call: true}, Forget},
		{"unknown and not pending", Facts{Call: true}, Forget},
		{"never recorded", Facts{Pending: true, Call: true}, Dispatch},
		{"never recorded, worker alive", Facts{Pending: true, Alive: true, Call: true}, Dispatch},
		{"recorded, not taken", Facts{Pending: true, Recorded: true, Alive: true, Call: true}, Dispatch},
		{"under way", Facts{Pending: true, Recorded: true, Taken: true, Alive: true, Call: true}, Wait},
		{"answer retained", Facts{Pending: true, Recorded: true, Taken: true, Alive: true, Answered: true, Call: true}, Deliver},
		{"answer spooled, worker dead", Facts{Pending: true, Recorded: true, Answered: true, Call: true}, Deliver},
		{"worker dead, may run again", Facts{Pending: true, Recorded: true, Convergent: true, Call: true}, Dispatch},
		{"worker dead, may not", Facts{Pending: true, Recorded: true, Call: true}, Unknown},
		{"worker dead, taken as far as anybody knew", Facts{Pending: true, Recorded: true, Taken: true, Call: true}, Unknown},
	} {
		if got := Decide(tc.f); got != tc.want {
			t.Errorf("%s: action %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestDecideNeverTwice holds for all facts: what was recorded and may not run
// again is made again only if its worker lives and has not taken it.
func TestDecideNeverTwice(t *testing.T) {
	for bits := range 1 << 7 {
		on := func(i int) bool { return bits>>i&1 == 1 }
		f := Facts{on(0), on(1), on(2), on(3), on(4), on(5), on(6)}
		switch got := Decide(f); {
		case got == Dispatch && (!f.Pending || f.Recorded && !f.Convergent && (!f.Alive || f.Taken || f.Answered)):
			t.Errorf("%+v: made again", f)
		case got == Unknown && (!f.Recorded || f.Answered || f.Alive || f.Convergent):
			t.Errorf("%+v: said to be unknown", f)
		case got == Forget && f.Pending, got == Cancel && (f.Pending || f.Answered):
			t.Errorf("%+v: action %d", f, got)
		}
	}
}
