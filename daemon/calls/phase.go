package calls

// Phase says where a call stands with its process. [Phase.After] alone changes
// it:
//
//	           Sent   Unsent  Answer    Lose  Settle
//	New        Open   –       –         –     Over
//	Open       –      New     Answered  Lost  Over
//	Lost       Open   New     Answered  –     Over
//	Answered   –      –       –         –     Over
//	Over       –      –       –         –     –
//
// "–" leaves the phase as it is: an answer that comes twice, or after its call
// was settled, changes nothing.
type Phase int8

// The phases of a call.
const (
	New      Phase = iota // no process has it; what was recorded of it is void
	Open                  // its write is on record, and may have been taken
	Lost                  // its process died, and left no answer so far
	Answered              // its answer is in memory, or in a file
	Over                  // nothing is kept of it, and it is not made again
)

// String returns the phase in a word, for tests and logs.
func (p Phase) String() string {
	return [...]string{"new", "open", "lost", "answered", "over"}[p]
}

// Event is something that happens to a call.
type Event int8

// The events of a call.
const (
	Sent   Event = iota // its write is recorded, and goes to a worker next
	Unsent              // the worker has certainly not taken the write, and will not
	Reply               // its answer was read, or a fault stands in its place
	Lose                // nothing is left of its process
	Settle              // its owner has the answer, or wants none
)

// String returns the event in a word, for tests and logs.
func (e Event) String() string {
	return [...]string{"sent", "unsent", "reply", "lose", "settle"}[e]
}

// After returns the phase that follows p when event e happens. An event that does not
// change p, or that makes no sense in it, leaves p as it is.
func (p Phase) After(e Event) Phase {
	switch {
	case p == Over:
	case e == Settle:
		return Over
	case e == Sent && (p == New || p == Lost):
		return Open
	case e == Unsent && (p == Open || p == Lost):
		return New
	case e == Reply && (p == Open || p == Lost):
		return Answered
	case e == Lose && p == Open:
		return Lost
	}
	return p
}

// Made reports whether a process may have got the call: it returns false for phase New only.
func (p Phase) Made() bool { return p != New }

// Facts returns the facts that follow from the phase: Recorded, Taken, Answered and Call. The
// caller fills in the rest. In phase Open the daemon assumes that the worker has taken the write;
// if an attach shows that it has not, the caller applies [Unsent], which makes the phase New.
func (p Phase) Facts() Facts {
	return Facts{
		Recorded: p == Open || p == Answered || p == Lost,
		Taken:    p == Open,
		Answered: p == Answered,
		Call:     true,
	}
}
