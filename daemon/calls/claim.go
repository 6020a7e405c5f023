package calls

// Claim says whose the answer to a call is. [Claim.After] alone changes it:
//
//	           Ask      Return     Suspend    Detach    Confirm   Store     Close     Withdraw
//	Unclaimed  Awaited  –          Suspended  Promised  Unwanted  –         Unwanted  Unwanted
//	Awaited    –        Unclaimed  Suspended  Promised  Unwanted  –         Unwanted  Unwanted
//	Suspended  Awaited  –          –          –         –         –         Unwanted  Unwanted
//	Promised   –        –          –          –         Detached  Stored    –         Unwanted
//	Detached   –        –          –          –         –         Unwanted  –         Unwanted
//	Stored     –        –          –          –         Unwanted  –         –         Unwanted
//	Unwanted   Awaited  –          –          –         –         –         –         –
//
// A request for a call that is unwanted, but not yet settled, claims it again:
// its client comes back for a suspended call by a new line.
type Claim int8

// The claims to an answer.
const (
	Unclaimed Claim = iota // no request waits, but the client may come back: it has not confirmed the answer
	Awaited                // a request of the client waits for it
	Suspended              // the client was asked something, and is to continue the call by another request
	Promised               // the daemon sent the client an id to fetch it by; the client may not have read that
	Detached               // the client holds the id: the job store owns the call
	Stored                 // the store has the answer; the client may not have read the id
	Unwanted               // no owner wants it
)

// String returns the claim in a word, for tests and logs.
func (c Claim) String() string {
	return [...]string{"unclaimed", "awaited", "suspended", "promised", "detached", "stored", "unwanted"}[c]
}

// Demand is something that changes the claim to an answer.
type Demand int8

// The demands.
const (
	Ask      Demand = iota // a request of the client waits for the answer
	Return                 // that request has returned
	Suspend                // the request is answered with what the server asks, which is on record
	Detach                 // the job's file says detached; the daemon sends the client an id next
	Confirm                // the proxy holds the answer to the line, or lists it as pending no more
	Store                  // the job store has the answer on disk
	Close                  // the session is over, or does not come back in time
	Withdraw               // a user or the client cancels the call
)

// After returns the claim that follows c by the demand d. A demand that does not apply to c
// returns c. The table of [Claim] lists all cases.
//
// These rows hold the rules of detached calls. The store keeps the answer to the call; the record
// of the call stays until the client has read the id, too: it alone tells that the line was made.
// Close leaves a Promised call alone: no session's end may touch what was detached. Withdraw ends
// it: a client that cancels before it has confirmed its line drops the id unread, so the call
// would run under an id that no client has.
func (c Claim) After(d Demand) Claim {
	attended := c == Unclaimed || c == Awaited
	switch d {
	case Ask:
		if !c.IsDetached() {
			return Awaited
		}
	case Return:
		if c == Awaited {
			return Unclaimed
		}
	case Suspend:
		if attended {
			return Suspended
		}
	case Detach:
		if attended {
			return Promised
		}
	case Confirm:
		if c == Promised {
			return Detached
		}
		if attended || c == Stored {
			return Unwanted
		}
	case Store:
		switch c {
		case Promised:
			return Stored
		case Detached:
			return Unwanted
		default:
		}
	case Close:
		if attended || c.IsSuspended() {
			return Unwanted
		}
	case Withdraw:
		return Unwanted
	}
	return c
}

// Wanted reports whether some owner wants the answer. Its result is the field Pending of [Facts].
func (c Claim) Wanted() bool { return c != Unwanted }

// IsSuspended reports whether the client was asked something by the call.
func (c Claim) IsSuspended() bool { return c == Suspended }

// IsDetached reports whether the job store owns the call.
func (c Claim) IsDetached() bool { return c == Promised || c == Detached || c == Stored }
