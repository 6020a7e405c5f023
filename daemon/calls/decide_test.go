package calls

import "testing"

// TestDecide checks the action for the facts of each situation.
func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    Facts
		want Action
	}{
		{
			"its client has the answer",
			Facts{Recorded: true, Taken: true, Alive: true, Answered: true, Call: true},
			Forget,
		},
		{"cancelled while no daemon lived", Facts{Recorded: true, Taken: true, Alive: true, Call: true}, Cancel},
		{"a handshake that no client waits for", Facts{Recorded: true, Taken: true, Alive: true}, Forget},
		{"cancelled before it was taken", Facts{Recorded: true, Alive: true, Call: true}, Forget},
		{"cancelled, and the worker is dead", Facts{Recorded: true, Call: true}, Forget},
		{"unknown and not pending", Facts{Call: true}, Forget},
		{"never recorded", Facts{Pending: true, Call: true}, Dispatch},
		{"never recorded, worker alive", Facts{Pending: true, Alive: true, Call: true}, Dispatch},
		{"recorded, not taken", Facts{Pending: true, Recorded: true, Alive: true, Call: true}, Dispatch},
		{"in flight", Facts{Pending: true, Recorded: true, Taken: true, Alive: true, Call: true}, Wait},
		{
			"answer retained",
			Facts{Pending: true, Recorded: true, Taken: true, Alive: true, Answered: true, Call: true},
			Deliver,
		},
		{"answer spooled, worker dead", Facts{Pending: true, Recorded: true, Answered: true, Call: true}, Deliver},
		{"worker dead, may run again", Facts{Pending: true, Recorded: true, Convergent: true, Call: true}, Dispatch},
		{"worker dead, may not", Facts{Pending: true, Recorded: true, Call: true}, Unknown},
		{
			"worker dead, had taken it when last heard of",
			Facts{Pending: true, Recorded: true, Taken: true, Call: true},
			Unknown,
		},
		{"its record may be one that cannot be read", Facts{Pending: true, Damaged: true, Call: true}, Unknown},
		{
			"its record may be one that cannot be read, may run again",
			Facts{Pending: true, Damaged: true, Convergent: true, Call: true},
			Dispatch,
		},
		{
			"in flight by a record that stands before damaged ones",
			Facts{Pending: true, Recorded: true, Taken: true, Alive: true, Damaged: true, Call: true},
			Unknown,
		},
		{
			"answered by a file that names it, behind damaged records",
			Facts{Pending: true, Recorded: true, Answered: true, Damaged: true, Call: true},
			Deliver,
		},
		{
			"not pending, and its number may be another call's",
			Facts{Recorded: true, Taken: true, Alive: true, Damaged: true, Call: true},
			Forget,
		},

		{"private: the queue", Facts{Pending: true, Private: true, Call: true}, Dispatch},
		{
			"private: left its outcome, and its record is lost",
			Facts{Pending: true, Private: true, Started: true, Begun: true, Killed: true, Answered: true},
			Deliver,
		},
		{
			"private: started, and no process is left",
			Facts{Pending: true, Private: true, Started: true, Call: true},
			Fail,
		},
		{
			"private: worker killed before the process began",
			Facts{Pending: true, Private: true, Started: true, Recorded: true, Killed: true},
			Fail,
		},
		{
			"private: worker killed before it has taken the call",
			Facts{Pending: true, Private: true, Started: true, Recorded: true, Killed: true, Again: true},
			Dispatch,
		},
		{
			"private: the same, once too often or before a reboot",
			Facts{Pending: true, Private: true, Started: true, Recorded: true, Killed: true},
			Fail,
		},
		{
			"private: worker killed when it had taken the call",
			Facts{Pending: true, Private: true, Started: true, Recorded: true, Taken: true, Killed: true, Again: true},
			Fail,
		},
		{
			"private: its process ended before it was told anything",
			Facts{Pending: true, Private: true, Started: true, Again: true},
			Fail,
		},
		{
			"private: cancelled, and its worker killed before it has taken the call",
			Facts{Private: true, Started: true, Killed: true, Again: true},
			Forget,
		},
		{
			"private: worker killed after that",
			Facts{Pending: true, Private: true, Started: true, Recorded: true, Begun: true, Killed: true, Again: true},
			Unknown,
		},
		{
			"private: its process ended under a living worker",
			Facts{Pending: true, Private: true, Started: true, Recorded: true, Begun: true},
			Fail,
		},
		{"private: not asked yet", Facts{Pending: true, Private: true, Started: true, Alive: true}, Dispatch},
		{
			"private: cancelled in flight",
			Facts{Private: true, Started: true, Recorded: true, Taken: true, Alive: true, Call: true},
			Cancel,
		},
	} {
		if got := Decide(tc.f); got != tc.want {
			t.Errorf("%s: action %d, want %d", tc.name, got, tc.want)
		}
	}
}

// allFacts returns every combination of facts.
func allFacts() []Facts {
	all := make([]Facts, 0, 1<<13)
	for bits := range 1 << 13 {
		on := func(i int) bool { return bits>>i&1 == 1 }
		all = append(all, Facts{
			on(0), on(1), on(2), on(3), on(4), on(5), on(6), on(7), on(8), on(9), on(10), on(11), on(12),
		})
	}
	return all
}

// TestDecideNeverTwice checks Decide for all facts. A recorded call that may not run twice
// is sent again only if its worker lives and has not taken it, and a private process that
// was started and has ended is started again only if it was told nothing.
func TestDecideNeverTwice(t *testing.T) {
	for _, f := range allFacts() {
		got := Decide(f)
		switch gone := f.Private && f.Started && !f.Alive; {
		case got == Dispatch && gone && f.Pending && f.Killed && f.Again && !f.Begun && !f.Taken && !f.Answered:
		case got == Dispatch && (!f.Pending || f.Recorded && !f.Convergent && (!f.Alive || f.Taken || f.Answered)):
			t.Errorf("%+v: made again", f)
		case got == Dispatch && f.Damaged && !f.Private && !f.Convergent:
			t.Errorf("%+v: made, though it may have been made", f)
		case got == Cancel && f.Damaged && !f.Private, got == Wait && f.Damaged && !f.Private:
			t.Errorf("%+v: what the process does is tied to it", f)
		case got == Dispatch && gone:
			t.Errorf("%+v: a private process is started twice", f)
		case got == Unknown && f.Damaged && !f.Private && !f.Convergent && (!f.Recorded || !f.Answered): // it may have been made
		case got == Unknown && (f.Recorded && f.Answered || f.Alive || !f.Recorded && !gone || f.Convergent && !gone):
			t.Errorf("%+v: said to be unknown", f)
		case got == Fail && (!gone || f.Answered):
			t.Errorf("%+v: said to have failed", f)
		case got == Forget && f.Pending, got == Cancel && (f.Pending || f.Answered):
			t.Errorf("%+v: action %d", f, got)
		}
	}
}

// TestPhaseAndClaimAreTotal checks that every phase and every claim has a row for each
// event, that a call that is over stays over, and that only a new request revives a call
// that its owner does not want.
func TestPhaseAndClaimAreTotal(t *testing.T) {
	for p := New; p <= Over; p++ {
		for e := Sent; e <= Settle; e++ {
			next := p.After(e)
			if p == Over && next != Over || e == Settle && next != Over {
				t.Errorf("%v after %v: %v", e, p, next)
			}
			if p == Answered && next != Answered && next != Over {
				t.Errorf("%v after %v loses the answer: %v", e, p, next)
			}
		}
	}
	for c := Unclaimed; c <= Unwanted; c++ {
		for d := Ask; d <= Withdraw; d++ {
			next := c.After(d)
			if c == Unwanted && next.Wanted() && d != Ask {
				t.Errorf("demand %d revives an unwanted call: %v", d, next)
			}
			if d == Withdraw && next.Wanted() {
				t.Errorf("%v is still wanted after it was withdrawn", c)
			}
			if (c == Promised || c == Detached) && d == Close && next != c {
				t.Errorf("the end of a session makes %v %v", c, next)
			}
		}
	}
}
