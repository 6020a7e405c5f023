package daemoncmd

import (
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// Bounds of the log of a daemon.
const (
	maxQueuedLog = 1 << 20                // bytes that wait to be written; what comes then is dropped
	keptLog      = 64 << 10               // bytes of a buffer that is kept for later lines
	flushLog     = 500 * time.Millisecond // for all that waits to be written
)

// asyncLog is the writer of the daemon's log. A write never blocks: one goroutine, which
// [asyncLog.Close] ends, passes the lines on. Standard error may be a pipe that no process
// reads, or a file on a disk that hangs, and the daemon logs while it holds locks.
//
// If too many bytes wait, a line is dropped, and a line of the log says later how many were.
type asyncLog struct {
	to      io.Writer
	dropped *slog.Logger       // of lines that are written at once
	wake    chan struct{}      // holds a token if there may be something to be written
	flushes chan chan struct{} // each is closed once all that waited is written
	stop    chan struct{}      // closed to end the goroutine

	mu     sync.Mutex // guards all below; nothing is written while it is held
	queued []byte     // lines that wait
	lost   int        // lines that were dropped since the goroutine last took queued
}

// newAsyncLog returns a writer that passes lines on to to. handler returns the handler with
// which that log is written. The caller must call [asyncLog.Close].
func newAsyncLog(to io.Writer, handler func(io.Writer) slog.Handler) *asyncLog {
	l := &asyncLog{
		to: to, dropped: slog.New(handler(to)),
		wake: make(chan struct{}, 1), flushes: make(chan chan struct{}), stop: make(chan struct{}),
	}
	go l.run()
	return l
}

// Write queues one line, or drops it. It never fails and never blocks.
func (l *asyncLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	if len(l.queued)+len(line) > maxQueuedLog {
		l.lost++
	} else {
		l.queued = append(l.queued, line...)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// Flush blocks until all that waits is written, but for [flushLog] at most.
func (l *asyncLog) Flush() {
	limit := time.NewTimer(flushLog)
	defer limit.Stop()
	written := make(chan struct{})
	select {
	case l.flushes <- written:
	case <-limit.C:
		return
	}
	select {
	case <-written:
	case <-limit.C:
	}
}

// Close flushes the log and ends its goroutine. It does not wait for a write that hangs: the
// process is about to end. Lines that are written later are lost.
func (l *asyncLog) Close() {
	l.Flush()
	close(l.stop)
}

// run writes what is queued until the log is closed.
func (l *asyncLog) run() {
	var buffer []byte
	for {
		select {
		case <-l.wake:
			buffer = l.writeQueued(buffer)
		case written := <-l.flushes:
			buffer = l.writeQueued(buffer)
			close(written)
		case <-l.stop:
			return
		}
	}
}

// writeQueued writes what is queued, and then how many lines were dropped. Lines are queued in
// empty from then on. It returns a buffer for the next call.
func (l *asyncLog) writeQueued(empty []byte) []byte {
	l.mu.Lock()
	lines, lost := l.queued, l.lost
	l.queued, l.lost = empty, 0
	l.mu.Unlock()
	if len(lines) > 0 {
		_, _ = l.to.Write(lines) // there is no other place to say that it failed
	}
	if lost > 0 {
		//nolint:sloglint // the number belongs to the sentence
		l.dropped.Warn(strconv.Itoa(lost) + " log lines were dropped, since the log was not written in time")
	}
	if cap(lines) > keptLog {
		return nil
	}
	return lines[:0]
}
