package calls

import (
	"time"

	"holdline/protocol"
)

// Key names a call in every generation of the daemon.
type Key struct {
	Session string // hash of the session's uuid
	N       int64  // number of the client's line
	Round   int    // see [Record.Round]
}

// Key returns the key of the call that r records.
func (r *Record) Key() Key { return Key{r.Session, r.N, r.Round} }

// Call is one call, from its first dispatch until its owner has the answer. It
// does no I/O and locks nothing: its holder guards it, and calls every method
// with that lock held but [Call.Progressed], which may be called without.
type Call struct {
	Key      Key
	Name     string // of what is called, as the child knows it
	Answer   Answer // while it is in memory; empty otherwise
	Replays  int    // how often the call was made again after its process died
	Repeats  bool   // its contract lets it run more than once
	Deadline Deadline
	Begun    time.Time // when this daemon dispatched it; zero if it has not
	Doubtful bool      // see [Record]; false again once it is made anew

	phase     Phase
	claim     Claim
	keeping   Keeping
	repeating bool          // see [Repetition]
	size      int64         // bytes of the answer's file
	summed    int64         // how many of these are the answer
	sum       uint32        // [AnswerSum] of the answer in the file; 0 if unknown
	result    protocol.Span // where the result is in that file, without its name; zero if unknown
	left      chan struct{} // closed when the phase is not Open
	progress  chan struct{} // holds a token when the child reported progress
}

// closed is what [Call.Left] returns for all calls that were never open.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// NewCall returns a call in phase [New], without a claim ([Unclaimed]). It has not been written to
// any process. repeats says whether the call may run more than once.
func NewCall(key Key, name string, repeats bool) *Call {
	return &Call{Key: key, Name: name, Repeats: repeats, left: closed, progress: make(chan struct{}, 1)}
}

// Restore returns the call of a record that an earlier daemon wrote, with its recorded deadline.
// repeats says that the call may be made twice. The call is [Open], and also [Promised] if the
// record is detached. Once the daemon has attached, it knows the last write that the worker has
// taken. It must then apply [Unsent] to the calls of all writes behind that one, which makes these
// calls New again.
func Restore(r *Record, repeats bool) *Call {
	c := NewCall(r.Key(), r.Name, repeats)
	c.Apply(Sent)
	if r.Detached {
		c.Demand(Detach) // whether its client has read the id, is not known
	}
	c.Deadline.inherit(r)
	c.Doubtful = r.Doubtful
	c.summed, c.sum = r.FileSize, r.FileSum
	return c
}

// Phase returns where the call stands with its process. The caller must hold the lock that guards
// c (hub.Mu).
func (c *Call) Phase() Phase { return c.phase }

// Apply changes the phase by the event e, as [Phase.After] says. When the call is not Open any
// more, Apply closes the channel of [Call.Left]; when it becomes Open, Left gets a new channel.
// The caller must hold the lock that guards c (hub.Mu).
func (c *Call) Apply(e Event) {
	next := c.phase.After(e)
	if c.phase == Open && next != Open {
		close(c.left)
	}
	if c.phase != Open && next == Open {
		c.left = make(chan struct{})
	}
	if next == New {
		c.Doubtful = false
	}
	c.phase = next
}

// Left returns a channel that is closed when the call stops being Open; it is closed already if
// the call is not Open. Call Left anew after the call was sent again. The caller must hold the
// lock that guards c (hub.Mu), but not while it waits for the channel.
func (c *Call) Left() <-chan struct{} { return c.left }

// Claim returns which owner wants the answer, and how. The caller must hold the lock that guards c
// (hub.Mu).
func (c *Call) Claim() Claim { return c.claim }

// Demand changes the claim to the answer by d, as [Claim.After] says. It wakes no goroutine. The
// caller must hold the lock that guards c (hub.Mu).
func (c *Call) Demand(d Demand) { c.claim = c.claim.After(d) }

// Facts returns what is known of the call, for [Decide]. pending says whether its owner wants the
// answer; alive says whether its worker lives. Convergent is true only if the call may run more
// than once and was not replayed yet. The facts of private processes stay false. The caller must
// hold the lock that guards c (hub.Mu).
func (c *Call) Facts(pending, alive bool) Facts {
	f := c.phase.Facts()
	f.Damaged = c.Doubtful
	f.Pending, f.Alive, f.Convergent = pending, alive, c.Repeats && c.Replays == 0
	return f
}

// Progressed records that the child reported progress, and wakes a receiver of [Call.Progress].
// Reports that come before the receiver has run are joined. It never blocks, and may be called
// with or without a lock.
func (c *Call) Progressed() {
	select {
	case c.progress <- struct{}{}:
	default:
	}
}

// Progress returns a channel that yields a value after [Call.Progressed] was called. It is never
// closed, and is the same for the life of the call.
func (c *Call) Progress() <-chan struct{} { return c.progress }
