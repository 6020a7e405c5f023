package hosted

// Facts are all that decides what becomes of a call, in whatever life of the
// daemon it was made.
type Facts struct {
	Pending    bool // its client waits for the answer
	Recorded   bool // its write to a worker is on record, and not known to have failed
	Taken      bool // the worker has taken the write; counts only while it lives
	Alive      bool // the worker lives
	Answered   bool // the answer is in hand, with the worker or in a file
	Convergent bool // the call may run once more
	Call       bool // it can be cancelled: it is no part of a handshake
}

// Action is what is to be done about a call.
type Action int

// The actions.
const (
	Forget   Action = iota + 1 // its client has the answer or wants none: nothing more is kept
	Cancel                     // it runs for nobody: it is cancelled, and forgotten
	Dispatch                   // it was certainly not made, or may be made again: it is made
	Wait                       // it is under way
	Deliver                    // its answer is given
	Unknown                    // nobody knows whether it had its effect: that is said
)

// Decide is the law of recovery. Three rules stand behind it: the client's
// proxy alone knows what is pending, the worker alone knows what its child was
// told, and nothing is forgotten before the proxy has it.
func Decide(f Facts) Action {
	inFlight := f.Recorded && f.Alive && f.Taken
	switch {
	case !f.Pending && inFlight && !f.Answered && f.Call:
		return Cancel
	case !f.Pending:
		return Forget
	case f.Recorded && f.Answered:
		return Deliver
	case inFlight:
		return Wait
	case !f.Recorded, f.Alive, f.Convergent:
		return Dispatch
	}
	return Unknown
}
