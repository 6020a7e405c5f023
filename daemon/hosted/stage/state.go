package stage

// State says where a process of a server stands, seen from this daemon.
// [State.After] alone changes it:
//
//	          ready    drain     terminate  exit
//	starting  serving  draining  ending     exited
//	serving   –        draining  ending     exited
//	draining  –        –         ending     exited
//	ending    –        –         –          exited
//
// No event changes exited, and "–" leaves the state as it is. A process that is
// ended before this daemon is attached to its worker is ending, too; it is
// terminated once that is the case.
type State int8

// The states.
const (
	Starting State = iota // no calls yet: it is adopted, or its handshake is under way
	Serving               // it gets calls
	Draining              // no new calls; it is ended once the client of each call has the answer
	Ending                // it is being terminated
	Exited                // nothing is left of its process tree
)

// String returns the state in a word, for tests and logs.
func (s State) String() string {
	return [...]string{"starting", "serving", "draining", "ending", "exited"}[s]
}

// Event is something that changes a process's state.
type Event int8

// The events.
const (
	Ready     Event = iota // its handshake is over, and what it lists is known
	Drain                  // no session uses it any more, or its entry was edited
	Terminate              // it is not wanted any more, or condemned
	Exit                   // its worker reported the end, or is gone
)

// After returns the state that follows s by the event: s itself if the event changes nothing.
func (s State) After(e Event) State {
	switch {
	case e == Ready && s == Starting:
		return Serving
	case e == Drain && s < Draining:
		return Draining
	case e == Terminate && s < Ending:
		return Ending
	case e == Exit:
		return Exited
	}
	return s
}
