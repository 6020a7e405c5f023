// Package output keeps account of what one process of an MCP server writes to stdout: which
// of it was read, and which of it the process's worker must still keep. A worker keeps the
// line of an answer or of a request until that is not needed any more, or is in a file. All
// other output it may forget once it was read.
package output

import (
	"math"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/lines"
)

// Content is what a line is kept for: the answer to a call, or a request of the server. Its
// methods are called with the mutex held that guards it.
type Content interface {
	// NeedsLine reports whether the worker must keep the line.
	NeedsLine() bool
	// BeginWriting reports whether the content must be written to a file now. Once that
	// is done, NeedsLine returns false.
	BeginWriting() bool
}

// An Output is what a process writes to stdout, as far as it was read. It belongs to the
// goroutine that reads it.
type Output struct {
	*lines.Splitter

	last  int64  // highest number received
	until int64  // output below it was written before this daemon attached
	marks []mark // lines that are kept, in order
}

// A mark is a line that the worker must still keep.
type mark struct {
	seq     int64 // of the output in which it begins
	content Content
	at      time.Time // when it was read
}

// New returns the output that s splits into lines.
func New(s *lines.Splitter) Output { return Output{Splitter: s} }

// Resume goes on with the output of a worker that has got acknowledgements up to the number
// last. Output below until was written before this daemon attached.
func (o *Output) Resume(last, until int64) {
	o.last, o.until = last, until
	o.Splitter.Resume(last)
}

// Receive notes that output with that number was received, or another event.
func (o *Output) Receive(seq int64) { o.last = max(o.last, seq) }

// Last returns the highest number that was received.
func (o *Output) Last() int64 { return o.last }

// IsCaughtUp reports whether all output was read that was written before this daemon attached.
func (o *Output) IsCaughtUp() bool { return o.last >= o.until-1 }

// Keep has the line that is being read kept for what it contains.
func (o *Output) Keep(c Content) {
	o.marks = append(o.marks, mark{seq: o.Begin(), content: c, at: time.Now()})
}

// Settle forgets lines that need not be kept any more. It returns what must be written to
// files now, since it has waited for [calls.SpoolAfter], and how long until the next
// content must. The caller holds the mutex of the contents.
func (o *Output) Settle(now time.Time) (due []Content, next time.Duration) {
	next = time.Hour
	kept := o.marks[:0]
	for _, k := range o.marks {
		if !k.content.NeedsLine() {
			continue
		}
		if left := calls.SpoolAfter - now.Sub(k.at); left > 0 {
			next = min(next, left)
		} else if k.content.BeginWriting() {
			due = append(due, k.content)
		}
		kept = append(kept, k)
	}
	clear(o.marks[len(kept):])
	o.marks = kept
	return due, next
}

// Ackable returns up to which number output can be acknowledged: no line that is kept, or
// that has not ended. It may write a file, see [lines.Splitter.Ackable]. If that fails, again
// is the time after which to call Ackable again; else it is 0.
func (o *Output) Ackable() (seq int64, again time.Duration) {
	first := int64(math.MaxInt64)
	if len(o.marks) > 0 {
		first = o.marks[0].seq
	}
	seq, again = o.Splitter.Ackable(o.last, first)
	for _, k := range o.marks {
		seq = calls.AckBefore(seq, k.seq)
	}
	return seq, again
}
