package upstream

import (
	"slices"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/background"
	"holdline/daemon/hosted/question"
	"holdline/protocol/faultpoint"
)

// makeBackgroundWrites makes the writes to the process that belong to no call, until it
// has exited or the hub closes.
func (u *Process) makeBackgroundWrites() {
	w := u.Worker()
	u.writes.Run(u.hub.Life, u.Exited, func(b *background.Write) {
		id, err := w.Write(u.hub.Life, b.Rec, append(b.Line, '\n')) // its record is on disk before the server can see it
		faultpoint.At("hosted.errand")
		if err == nil {
			u.hub.Mu.Lock()
			u.ranLocked(b.Rec.Kind, id)
			u.hub.Mu.Unlock()
		}
		if b.Done != nil {
			b.Done(err)
		}
	})
}

// maxResponds bounds the records of answers to the server that are kept. The older
// ones belong to requests in output that was acknowledged long ago: no daemon will
// read those again.
const maxResponds = 2 * question.Max

// ranLocked notes that a background write was made, and drops the records that have
// served. Those of cancellations and notifications go at once: no later decision
// needs them. Those of answers to the server stay for a while, so that a request that
// is read again is not answered twice.
func (u *Process) ranLocked(kind string, write int64) {
	switch kind {
	case calls.KindCancel, calls.KindNote:
		u.forget = append(u.forget, write)
		u.nudge()
	case calls.KindRespond:
		if u.ran = append(u.ran, write); len(u.ran) > maxResponds {
			old := len(u.ran) - question.Max
			u.forget = append(u.forget, u.ran[:old]...)
			u.ran = slices.Clone(u.ran[old:])
			u.nudge()
		}
	}
}
