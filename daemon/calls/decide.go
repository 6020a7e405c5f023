package calls

// Facts are everything that decides what becomes of a call, no matter which
// generation of the daemon made it. They can be read again after any crash:
// Pending from the owner, Recorded and Answered from files, the others from the
// worker.
type Facts struct {
	Pending    bool // its owner still wants the answer: see [Owner]
	Recorded   bool // its write is on record, and not known to have failed
	Taken      bool // the worker has taken the write; of a dead one it counts for private processes alone
	Alive      bool // the worker lives, or its output is not read to the end
	Answered   bool // the answer is in memory, retained by the worker, or in a file
	Convergent bool // the call may run once more
	Call       bool // it can be cancelled: it is not part of a handshake

	// Damaged says that its record may be one of those that cannot be read. Without a record it
	// may have been made. A record of it stands before damaged lines: its number may be another
	// call's by now, so nothing that the process says can be tied to it, and Answered is only true
	// of a file that names the call.
	Damaged bool

	// A private process serves one call, and is started once more only if it was certainly told nothing.
	// The rest is known of those calls alone. Of a dead worker's Taken says whether the process may have
	// been told of the call.
	Private bool
	Started bool // its worker has had its lock, so the process may have run
	Begun   bool // the process noted, before it acted, that it was about to; or that cannot be read
	Killed  bool // its worker was killed, so how the process ended was not seen
	Again   bool // it may be started once more: the machine was not booted since, and it was not tried too often
}

// Action is what the daemon must do about a call.
type Action int

// The actions.
const (
	Forget   Action = iota + 1 // the owner has the answer or wants none: keep nothing
	Cancel                     // it runs, and its owner does not want it: cancel it, then forget it
	Dispatch                   // it was certainly not made, or may be made again: make it
	Wait                       // it is in flight
	Deliver                    // hand over its answer
	Unknown                    // whether it had its effect cannot be known: say so
	Fail                       // its process ended without an answer and is not started again: say so
)

// Decide is the law of recovery: it says what to do about a call, from nothing
// but the facts. Three rules make the facts sufficient:
//
//   - The client's proxy alone knows what is pending. A resume brings that list,
//     and the daemon believes it.
//   - The worker alone knows which writes its child got. Write ids are 1, 2, 3 …, so
//     the highest one says which writes it has taken.
//   - Nothing is forgotten before the owner has it.
//
// The rows, first match first; "–" is any:
//
//	pending  recorded  taken  alive  answered  action
//	no       yes       yes    yes    no        Cancel (a handshake: Forget)
//	no       –         –      –      –         Forget
//	yes      yes       –      –      yes       Deliver
//	yes      yes       yes    yes    no        Wait
//	yes      no        –      –      –         Dispatch
//	yes      yes       no     yes    no        Dispatch: the record is void
//	yes      yes       –      no     no        convergent: Dispatch, else Unknown
//
// Where its record may be damaged ([Facts].Damaged):
//
//	no       –         –      –      –         Forget
//	yes      yes       –      –      yes       Deliver
//	yes      –         –      –      –         convergent: Dispatch, else Unknown
//
// Where the process is private, was started and is gone, its call is delivered if it left an answer, recorded
// or not. Otherwise:
//
//	killed  begun  taken  again  action
//	yes     yes    –      –      Unknown
//	yes     no     no     yes    Dispatch: it was told nothing, and is started once more
//	–       –      –      –      Fail
func Decide(f Facts) Action {
	damaged := f.Damaged && !f.Private // a private process has no calls but its own
	inFlight := f.Recorded && f.Alive && f.Taken && !damaged
	switch {
	case !f.Pending && inFlight && !f.Answered && f.Call:
		return Cancel
	case !f.Pending:
		return Forget
	case f.Answered && (f.Recorded || f.Private):
		return Deliver
	case inFlight:
		return Wait
	case f.Private && f.Started && !f.Alive && f.Killed && f.Begun:
		return Unknown
	case f.Private && f.Started && !f.Alive && f.Killed && !f.Taken && f.Again:
		return Dispatch
	case f.Private && f.Started && !f.Alive:
		return Fail
	case damaged && !f.Convergent:
		return Unknown
	case !f.Recorded, f.Alive, f.Convergent:
		return Dispatch
	}
	return Unknown
}
