package calls

import (
	"time"
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

	phase                Phase
	claim                Claim
	keeping              Keeping
	size                 int64         // bytes of the answer's file
	resultAt, resultSize int64         // where the result is in that; 0 if unknown
	left                 chan struct{} // closed when the phase is not Open
	progress             chan struct{} // holds a token when the child reported progress
}

// NewCall returns a call that no process has.
func NewCall(key Key, name string, repeats bool) *Call {
	left := make(chan struct{})
	close(left)
	return &Call{Key: key, Name: name, Repeats: repeats, left: left, progress: make(chan struct{}, 1)}
}

// Restore returns the call of a record that an earlier daemon wrote. It is Open:
// whether the worker has taken its write is known only after the attach, which
// makes those above the worker's last write New again.
func Restore(r *Record, repeats bool) *Call {
	c := NewCall(r.Key(), r.Name, repeats)
	c.Apply(Sent)
	if r.Detached {
		c.Demand(Detach) // whether its client has read the id, is not known
	}
	c.Deadline.inherit(r)
	return c
}

// Phase returns where the call stands with its process.
func (c *Call) Phase() Phase { return c.phase }

// Apply changes the phase by an event, as [Phase.After] says.
func (c *Call) Apply(e Event) {
	next := c.phase.After(e)
	if c.phase == Open && next != Open {
		close(c.left)
	}
	if c.phase != Open && next == Open {
		c.left = make(chan struct{})
	}
	c.phase = next
}

// Left returns a channel that is closed when the call is not Open any more.
func (c *Call) Left() <-chan struct{} { return c.left }

// Claim returns which owner wants the answer, and how.
func (c *Call) Claim() Claim { return c.claim }

// Demand changes the claim to the answer, as [Claim.After] says.
func (c *Call) Demand(d Demand) { c.claim = c.claim.After(d) }

// Facts returns what is known of the call. alive says whether its worker lives;
// pending whether its owner wants the answer.
func (c *Call) Facts(pending, alive bool) Facts {
	f := c.phase.Facts()
	f.Pending, f.Alive, f.Convergent = pending, alive, c.Repeats && c.Replays == 0
	return f
}

// Progressed records that the child reported progress: the call's time begins anew.
// It never blocks.
func (c *Call) Progressed() {
	select {
	case c.progress <- struct{}{}:
	default:
	}
}

// Progress returns a channel that yields when the child has reported progress.
func (c *Call) Progress() <-chan struct{} { return c.progress }
