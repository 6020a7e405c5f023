package budget

import (
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/lockcheck"
)

// A Window is the latest window of the subscription that a program has reported. The zero Window
// is unknown. It is safe for concurrent use.
type Window struct {
	mu     lockcheck.Mutex
	latest *engine.Window // nil if unknown
}

// Keep keeps a window that a program has reported; nil changes nothing.
func (w *Window) Keep(latest *engine.Window) {
	if latest == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest = latest
}

// KeepEarlier keeps a window of an earlier daemon, unless one that resets later is known.
func (w *Window) KeepEarlier(one *engine.Window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one != nil && (w.latest == nil || one.ResetUnixMS >= w.latest.ResetUnixMS) {
		w.latest = one
	}
}

// Now returns the window. It returns nil if there was none, or if the window has begun anew since.
func (w *Window) Now() *engine.Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil || w.latest.ResetUnixMS > 0 && w.latest.ResetUnixMS < time.Now().UnixMilli() {
		return nil
	}
	return w.latest
}
