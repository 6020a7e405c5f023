// Package returning says for how long a daemon may trust that it would know of the
// calls of a session which an earlier daemon served, and has the faults for what is lost.
package returning

import "time"

// maxEnded bounds the sessions that are known to have ended. A daemon that had more
// trusts no session that it does not know.
const maxEnded = 4096

// A Window is the time after a daemon's start for which the records of sessions that
// it has not seen are kept. It is not safe for concurrent use.
type Window struct {
	begun  time.Time // by the clock and by the wall
	length time.Duration
	ended  map[string]struct{} // hashes of sessions that have ended here; nil once the window is over
}

// New returns the window of a daemon that began at begun. It is over after length.
func New(begun time.Time, length time.Duration) *Window {
	return &Window{begun: begun, length: length, ended: map[string]struct{}{}}
}

// Ended records that a session has ended, so that its records are discarded. It does nothing once
// the window is over. With more than maxEnded sessions the window is over at once.
func (w *Window) Ended(session string) {
	if w.isOver() {
		return
	}
	w.ended[session] = struct{}{}
	if len(w.ended) > maxEnded {
		w.ended = nil
	}
}

// Discarded reports whether the records of a session that is back, and that this daemon did not
// have, may be gone: the window is over, or the session has ended here.
func (w *Window) Discarded(session string) bool {
	if w.isOver() {
		return true
	}
	_, ended := w.ended[session]
	return ended
}

// isOver reports whether the window is over, and if so, forgets the sessions that have ended. The
// time for which the machine was suspended counts, too: nothing says how long the records lasted.
func (w *Window) isOver() bool {
	wall := time.Now().Round(0).Sub(w.begun.Round(0))
	if time.Since(w.begun) >= w.length || wall >= w.length {
		w.ended = nil
	}
	return w.ended == nil
}
