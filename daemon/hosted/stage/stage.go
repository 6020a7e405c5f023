// Package stage says where a process of a server stands, what the instance of a server is doing,
// and how a server stands by what its instances do.
package stage

import "slices"

// Use says whether calls may reach an instance. It moves down this list only: a trial that
// succeeds is in use, and what is retired stays so.
type Use int8

// The uses.
const (
	OnTrial Use = iota - 1 // its server takes another's place once its process is up
	InUse
	Retired // it gets no process any more
)

// Stage says what an instance is doing. An instance that is idle and wanted becomes launching,
// perhaps after backing off, and then running; when its process exits it is idle again, or
// ejected if that happened too often.
type Stage int8

// The stages.
const (
	Idle       Stage = iota // no process
	Adopting                // the process of an earlier daemon is being adopted, or found dead
	BackingOff              // a start waits for its time
	Launching               // a start is under way, up to the end of the handshake
	Running                 // its process serves
	Stopping                // its process is being ended
	Ejected                 // no process: the last ones ended, or did not start, too often
)

// Facts are what is known of an instance.
type Facts struct {
	Adopting, Starting, BackingOff, Ejected bool

	Up      bool  // it has a process
	Process State // of that
}

// Of returns the stage of an instance. It is derived from the facts each time, since a stored one
// would have to be kept in step with the process, the guards and the timers. The order of the
// cases matters: an adoption hides all else, and a process that serves hides an ejection.
func Of(f Facts) Stage {
	switch {
	case f.Adopting:
		return Adopting
	case f.Up && f.Process == Serving:
		return Running
	case f.Ejected:
		return Ejected
	case f.Starting && f.BackingOff:
		return BackingOff
	case f.Starting, f.Up && f.Process == Starting:
		return Launching
	case f.Up:
		return Stopping
	}
	return Idle
}

// The states of a server that this package names, the better ones first.
const (
	StateIdle        = "idle"
	StateReady       = "ready"
	StateSilent      = "not answering" // a process serves, and leaves a ping without an answer
	StateStarting    = "starting"
	StateRecovering  = "recovering"
	StateUnreachable = "unreachable" // a remote server, which is down
	StateFailed      = "failed"
	StateEjected     = "ejected"
)

// State returns the state of a server by that of one of its instances. up says that the instance
// has a process, recovers that it has failed of late, and failed that its last start has.
func (s Stage) State(up, recovers, failed bool) string {
	switch begins := s == Launching || s == BackingOff; {
	case s == Running:
		return StateReady
	case begins && recovers:
		return StateRecovering
	case begins, up:
		return StateStarting
	case failed:
		return StateFailed
	}
	return StateIdle
}

// Worse returns the worse one of two states.
func Worse(a, b string) string {
	order := []string{StateIdle, StateReady, StateSilent, StateStarting, StateRecovering, StateUnreachable, StateFailed, StateEjected}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}
