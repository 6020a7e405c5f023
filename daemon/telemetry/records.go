package telemetry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdline/daemon/logfile"
)

// LogHealth says whether a log can be written.
type LogHealth struct {
	Written   int64  `json:"written"` // records
	Failed    int64  `json:"failed"`  // records lost
	LastError string `json:"last_error,omitempty"`
}

// maxBuffered is how many bytes of records may wait before they are written.
const maxBuffered = 32 << 10

// Records appends records of any kind to a file, one line of JSON each. A record waits
// up to [Options.LogDelay] for others, so that one system call writes them together.
// Records is safe for concurrent use, and owns the file until Close.
//
// Lock order: writing before mu. A caller that only adds a record takes mu, so it does
// not wait for the disk unless it has to flush.
type Records struct {
	log   *slog.Logger
	delay time.Duration

	// writing is held while the file is written, which may take long. It is taken
	// before mu, and only by those that flush.
	writing sync.Mutex
	file    logfile.File // guarded by writing; with path "" nothing is written

	mu        sync.Mutex // guards the fields that follow
	closed    bool
	unwaiting bool   // each record is written at once, whatever the delay
	buffer    []byte // records that are not written yet
	buffered  int64  // how many they are
	timer     *time.Timer
	health    LogHealth
}

// NewRecords returns a log at o.Path. It creates the directory with mode 0700. Of the
// other options it uses Log, MaxBytes, Keep and LogDelay. The caller must close the
// log.
func NewRecords(o Options) *Records {
	if o.Path != "" {
		_ = os.MkdirAll(filepath.Dir(o.Path), 0o700) // the first write says why it failed
	}
	r := &Records{
		log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), delay: o.LogDelay,
		file: logfile.File{Path: o.Path},
	}
	r.Bound(o.MaxBytes, o.Keep)
	return r
}

// Bound sets the size in bytes at which the log is rotated, and how many rotated files
// are kept. Zero values mean the defaults, as in [Options].
func (r *Records) Bound(maxBytes int64, keep int) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.file.MaxBytes, r.file.Keep = cmp.Or(maxBytes, 8<<20), max(cmp.Or(keep, 3), 0)
}

// Write adds a record. It returns no error: the daemon's work does not depend on this
// log. The first failure in a row goes to the daemon's log, and [Records.Health] counts
// them all.
func (r *Records) Write(record any) {
	line, err := json.Marshal(record)
	r.add(func(b []byte) ([]byte, error) { return append(b, line...), err })
}

// add is [Records.Write] of the record that encode appends to b.
func (r *Records) add(encode func(b []byte) ([]byte, error)) {
	if r.bufferRecord(encode) {
		r.flush()
	}
}

// bufferRecord puts a record into the buffer, and reports whether the caller must
// flush. The first record in an empty buffer starts the timer that will flush.
func (r *Records) bufferRecord(encode func(b []byte) ([]byte, error)) (due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.file.Path == "" {
		return false
	}
	b, err := encode(r.buffer)
	if err != nil {
		r.count(fmt.Errorf("encoding a record: %w", err), 1)
		return false
	}
	r.buffer, r.buffered = append(b, '\n'), r.buffered+1
	switch {
	case r.delay == 0 || r.unwaiting || len(r.buffer) > maxBuffered:
		return true
	case r.timer == nil:
		r.timer = time.AfterFunc(r.delay, r.flush)
	case r.buffered == 1:
		r.timer.Reset(r.delay)
	}
	return false
}

// flush writes the buffer to the file. If the write fails, the records are lost and
// counted. It takes the buffer away before it writes, so that other callers can add
// records meanwhile.
func (r *Records) flush() {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	b, n := r.buffer, r.buffered
	r.buffer, r.buffered = nil, 0
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	if n == 0 {
		return
	}
	err := r.file.Append(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(err, n)
	if r.buffer == nil && cap(b) <= 2*maxBuffered { // it grows beyond maxBuffered, by a record or more
		r.buffer = b[:0] // to be filled again
	}
}

// count counts records that were written, or that were lost with err. It logs only the
// first failure in a row and the recovery. The caller must hold mu.
func (r *Records) count(err error, records int64) {
	if err == nil {
		if r.health.LastError != "" {
			r.health.LastError = ""
			r.log.Info("telemetry log works again")
		}
		r.health.Written += records
		return
	}
	r.health.Failed += records
	if r.health.LastError == "" {
		r.log.Warn("telemetry log cannot be written", "err", err)
	}
	r.health.LastError = err.Error()
}

// Through writes the buffer, and sets whether each record is written at once from now
// on.
func (r *Records) Through(on bool) {
	r.mu.Lock()
	r.unwaiting = on
	r.mu.Unlock()
	r.flush()
}

// Health writes the buffer and returns the state of the log.
func (r *Records) Health() LogHealth {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.health
}

// Close writes the buffer and closes the file. Later records are dropped.
func (r *Records) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.flush()
	r.writing.Lock()
	defer r.writing.Unlock()
	if err := r.file.Close(); err != nil {
		return fmt.Errorf("closing the telemetry log: %w", err)
	}
	return nil
}
