package hosted

// processState says where a process of a server stands, seen from this daemon.
// [processState.after] alone changes it:
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
type processState int8

const (
	starting processState = iota // no calls yet: it is adopted, or its handshake is under way
	serving                      // it gets calls
	draining                     // no new calls; it is ended once the client of each call has the answer
	ending                       // it is being terminated
	exited                       // nothing is left of its process tree
)

// String returns the state in a word, for tests and logs.
func (s processState) String() string {
	return [...]string{"starting", "serving", "draining", "ending", "exited"}[s]
}

// processEvent is something that changes a process's state.
type processEvent int8

const (
	ready     processEvent = iota // its handshake is over, and what it lists is known
	drain                         // no session uses it any more, or its entry was edited
	terminate                     // it is not wanted any more, or condemned
	exit                          // its worker reported the end, or is gone
)

// after returns the state that follows s by the event.
func (s processState) after(e processEvent) processState {
	switch {
	case e == ready && s == starting:
		return serving
	case e == drain && s < draining:
		return draining
	case e == terminate && s < ending:
		return ending
	case e == exit:
		return exited
	}
	return s
}

// An ender is what made a process exit.
type ender int8

const (
	endedByHoldline ender = iota // also while it runs, and for one that was draining
	endedByItself
	endedByOthers // it, or its worker, was killed by another program
)

// instanceUse says whether calls may reach an instance. It moves down this list
// only: a trial that succeeds is in use, and what is retired stays so.
type instanceUse int8

const (
	onTrial instanceUse = iota - 1 // its server takes another's place once its process is up
	inUse
	retired // it gets no process any more
)

// instanceState says what an instance is doing. It is not stored: see
// [instance.stateLocked]. An instance that is idle and wanted becomes launching,
// perhaps after backingOff, and then running; when its process exits it is idle
// again, or ejected if that happened too often.
type instanceState int8

const (
	idle       instanceState = iota // no process
	adopting                        // the process of an earlier daemon is being adopted, or found dead
	backingOff                      // a start waits for its time
	launching                       // a start is under way, up to the end of the handshake
	running                         // its process serves
	stopping                        // its process is being ended
	ejected                         // no process: the last ones ended, or did not start, too often
)

// stateLocked returns what the instance is doing. It is derived from the fields each
// time, since a stored state would have to be kept in step with the process, the
// guards and the timers. The order of the cases matters: an adoption hides all else,
// and a process that serves hides an ejection.
func (inst *instance) stateLocked() instanceState {
	switch {
	case inst.adopting != nil:
		return adopting
	case inst.up != nil && inst.up.state == serving:
		return running
	case inst.guards.restarts.Ejected():
		return ejected
	case inst.starting != nil && inst.skipBackoff != nil:
		return backingOff
	case inst.starting != nil, inst.up != nil && inst.up.state == starting:
		return launching
	case inst.up != nil:
		return stopping
	}
	return idle
}

// A latch is an event that happens once; closing its channel sets it. Goroutines wait
// by receiving from it. It must be closed only once.
type latch chan struct{}

func newLatch() latch { return make(latch) }

// isSet reports whether the event has happened.
func (l latch) isSet() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}
