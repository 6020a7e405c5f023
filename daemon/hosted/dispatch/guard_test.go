package dispatch

import (
	"testing"
	"time"

	"holdline/daemon/policy"
	"holdline/protocol/fault"
)

// TestLoginCannotBeRenewed_CircuitStaysClosed checks that faults which say when to try again, as that of a
// login which cannot be renewed now, open no circuit: callers would learn of the circuit, and not why.
func TestLoginCannotBeRenewed_CircuitStaysClosed(t *testing.T) {
	ms := int64(4000)
	for _, code := range []fault.Code{fault.TransportFailure, fault.Timeout} {
		for _, later := range []*int64{nil, &ms} {
			b := policy.NewBreaker("s", 3, time.Minute)
			var last error
			for range 5 {
				turn, err := b.Allow(time.Now(), "t")
				if last = err; err != nil {
					break
				}
				f := fault.New(code, fault.Server, "", "the login cannot be renewed").WithReason(fault.Unreachable)
				f.RetryAfterMS = later
				tell(t.Context(), turn, f)
			}
			state, _ := b.State(time.Now())
			if closed := state == policy.Closed && last == nil; closed != (later != nil) {
				t.Errorf("%s, with a next try: %t: the circuit is %s, %v", code, later != nil, state, last)
			}
		}
	}
}
