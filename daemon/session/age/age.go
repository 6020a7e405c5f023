// Package age knows how long ago a client sent a request, perhaps to an earlier daemon, and
// until when a daemon looks for what answers it.
package age

import (
	"context"
	"time"

	"holdline/protocol"
	"holdline/protocol/fault"
)

// Sent returns the time at which the client sent a line. again is the control line before a line
// that the proxy sends again, and gives the line's age; for a new line it is nil, and Sent
// returns the present time.
func Sent(again *protocol.Control) time.Time {
	if again == nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(max(again.AgeMS, 0)) * time.Millisecond)
}

// findTime bounds the search for the target of a replayed request, from when the client
// sent it. Executors have the same bound for a request in one daemon: some servers report
// what they offer only after they have started.
const findTime = 8 * time.Second

// findGrace is the least time that a daemon searches for the target of a replayed request.
// It counts if findTime was over before this daemon had the request.
const findGrace = time.Second

// Finding returns a context for the search for the target of a replayed request that the client
// sent at sent. It ends 8 s after that, but not before 1 s from now. The cause of its deadline is
// a timeout fault for the client, which names operation. The caller must call the cancel
// function.
func Finding(ctx context.Context, sent time.Time, operation string) (context.Context, context.CancelFunc) {
	until := sent.Add(findTime)
	if soonest := time.Now().Add(findGrace); until.Before(soonest) {
		until = soonest
	}
	return context.WithDeadlineCause(ctx, until, fault.New(fault.Timeout, fault.Host, operation,
		"no server has said within %v that it offers what is asked for, one may still be starting: try again",
		findTime))
}
