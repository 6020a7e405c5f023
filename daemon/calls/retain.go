package calls

import "holdline/protocol/faultpoint"

// AckBefore returns up to which number output can be acknowledged, given that it
// can up to ack as far as other lines are concerned: less than the number of a line
// that still matters. The worker forgets what is acknowledged, so a line matters
// while it holds an answer that its owner has not confirmed and that is in no file,
// or a request of the child that has no answer yet. Everything else, for example a
// notification or the answer to a cancelled call, matters no more once it was
// handled.
func AckBefore(ack, line int64) int64 {
	if faultpoint.Broken("ack.confirmed") {
		return ack
	}
	return min(ack, line-1)
}

// NeedsLine reports whether the worker must retain the line that holds the answer.
func (c *Call) NeedsLine() bool { return c.phase != Over && c.keeping != InFile }

// MayRemoveDir reports whether the directory of a dead worker can be removed, in
// which so many calls are not confirmed. Its records alone say that those calls
// were made: without them, a client that asks again would have them made again.
func MayRemoveDir(unconfirmed int) bool {
	return unconfirmed == 0 || faultpoint.Broken("directory.kept")
}
