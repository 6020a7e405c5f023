package calls

import "holdline/protocol/faultpoint"

// AckBefore returns up to which number the worker's output can be acknowledged: ack, or line-1 if
// that is lower. ack is the limit that follows from the other lines; line is the number of a line
// that still matters.
//
// The worker forgets what is acknowledged. So a line matters while it holds an answer that its
// owner has not confirmed and that is in no file, or a request of the child that has no answer
// yet. All other lines, such as notifications and answers to cancelled calls, matter only until
// they are handled.
func AckBefore(ack, line int64) int64 {
	if faultpoint.Broken("ack.confirmed") {
		return ack
	}
	return min(ack, line-1)
}

// NeedsLine reports whether the worker must retain the line that holds the answer: the call is not
// Over, and the answer is in no file. The caller must hold the lock that guards c (hub.Mu).
func (c *Call) NeedsLine() bool { return c.phase != Over && c.keeping != InFile }

// MayRemoveDir reports whether the directory of a dead worker can be removed. unconfirmed is the
// number of its calls whose answers no client has confirmed; it must be 0. Only the records in the
// directory say that those calls were made: without them a client that asks again would have them
// made again.
func MayRemoveDir(unconfirmed int) bool {
	return unconfirmed == 0 || faultpoint.Broken("directory.kept")
}
