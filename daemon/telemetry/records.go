package telemetry

import "log/slog"

// Records appends records of any kind to a file of their own, one JSON line
// each, rotated as the call log is. It is safe for concurrent use, and owns the
// file until Close.
type Records struct{ log *callLog }

// NewRecords makes a log at o.Path; of the rest of o, Log, MaxBytes, Keep and
// LogDelay count.
func NewRecords(o Options) *Records {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.fill()
	return &Records{log: newCallLog(o)}
}

// Write adds a record. A failure is told to the daemon's log, when it is the
// first in a row.
func (r *Records) Write(record any) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.write(record)
}

// Bound is [Recorder.Bound].
func (r *Records) Bound(maxBytes int64, keep int) { r.log.bound(maxBytes, keep) }

// Close ends the log; what is written afterwards is lost.
func (r *Records) Close() error { return r.log.close() }
