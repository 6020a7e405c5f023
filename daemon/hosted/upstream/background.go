package upstream

import (
	"holdline/daemon/hosted/background"
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
			u.records.Made(b.Rec.Kind, id)
			u.nudge()
			u.hub.Mu.Unlock()
		}
		if b.Done != nil {
			b.Done(err)
		}
	})
}
