package calls

// An Owner is the party that a call is made for. It alone knows whether the
// answer is still wanted: the daemon never guesses, and asks again after each
// crash.
//
// A session owns its attended calls: see [Resumed] and [Gone]. The job store owns
// detached calls: the file of a job, or of a task, says whether it was cancelled and
// whether it has its answer. No session's end touches those.
type Owner interface {
	// Wants reports whether the owner may still want the answer to the call.
	Wants(key Key) bool
	// HasConfirmed reports whether the client's proxy holds the answer to line
	// key.N, or will never ask for it again. Whatever could answer the line once
	// more is kept until then.
	HasConfirmed(key Key) bool
}

// Review asks the owner o about the call, and changes the call's claim by the answers: see
// [Claim.After]. It returns true if no owner wants the answer now; then the caller must settle the
// call. The caller must hold the lock that guards c (hub.Mu).
func (c *Call) Review(o Owner) (settle bool) {
	if o.HasConfirmed(c.Key) {
		c.Demand(Confirm)
	}
	if !o.Wants(c.Key) {
		if c.claim.IsDetached() {
			c.Demand(Withdraw)
		} else {
			c.Demand(Close)
		}
	}
	return !c.claim.Wanted()
}

// Resumed is a session whose client is back, with the lines that its proxy lists
// as pending. The proxy holds the answers to all others, or its client has
// cancelled them.
type Resumed map[int64]struct{}

// Wants returns true: the client may still continue a suspended call.
func (Resumed) Wants(Key) bool { return true }

// HasConfirmed reports whether the client's proxy does not list line key.N as pending.
func (r Resumed) HasConfirmed(key Key) bool {
	_, pending := r[key.N]
	return !pending
}

// Gone is a session that is over, or that does not come back in time.
type Gone struct{}

// Wants returns false.
func (Gone) Wants(Key) bool { return false }

// HasConfirmed returns true: no client asks again.
func (Gone) HasConfirmed(Key) bool { return true }
