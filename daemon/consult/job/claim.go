package job

import (
	"time"

	"holdline/daemon/calls"
)

// A Claim is a client's right to fetch the answer to its line again. The client has
// asked, and has not yet confirmed that it holds the answer. A nil claim means that no
// client can come back. Claims are not changed after they are shared, except under the
// manager's mutex.
type Claim struct {
	Key     calls.Key
	Expires time.Time // zero while the client is connected
}

// IsOpen reports whether the client may still come back for the answer. It is false for
// a nil claim.
func (c *Claim) IsOpen(now time.Time) bool {
	return c != nil && (c.Expires.IsZero() || now.Before(c.Expires))
}

// Reviewed asks the owner of the call, and returns what remains of the claim. It
// returns nil if the owner has confirmed that it holds the answer. An owner that
// answers is connected, so its claim has no expiry.
func (c *Claim) Reviewed(o calls.Owner) *Claim {
	if c == nil || o.HasConfirmed(c.Key) {
		return nil
	}
	return &Claim{Key: c.Key}
}
