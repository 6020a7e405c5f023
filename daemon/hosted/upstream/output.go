package upstream

import (
	"math"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
	"holdline/daemon/lines"
)

// An output is what a process writes to stdout, as far as it was read. It belongs to the
// reader, but the lines that are marked change their state under the hub's mutex.
type output struct {
	stdout *lines.Splitter
	last   int64  // highest number received
	until  int64  // output below it was said before this daemon attached
	marks  []mark // lines that are not settled, in order
}

// A mark is a line of output that the worker must still keep: the answer to a call,
// or a request of the server. Exactly one of c and question is set.
type mark struct {
	seq      int64 // of the output in which it begins
	c        *Call
	question *question.Question
	at       time.Time
}

// markLine keeps the line that is being read with the worker: it is the answer to c, or
// the request q.
func (o *output) markLine(c *Call, q *question.Question) {
	o.marks = append(o.marks, mark{seq: o.stdout.Begin(), c: c, question: q, at: time.Now()})
}

// settleMarks drops the marks of lines that the worker need not keep. It returns the
// calls whose answers, and the requests which, must now go to files, and how long
// until the next one must. The caller must hold the hub's mutex.
func (o *output) settleMarks(now time.Time) (spool []*Call, asks []*question.Question, next time.Duration) {
	next = time.Hour
	kept := o.marks[:0]
	for _, k := range o.marks {
		if k.settledLocked() {
			continue
		}
		left := calls.SpoolAfter - now.Sub(k.at)
		switch {
		case left > 0:
			next = min(next, left)
		case k.question != nil:
			asks = append(asks, k.question)
		case k.c.BeginWriting():
			spool = append(spool, k.c)
		}
		kept = append(kept, k)
	}
	clear(o.marks[len(kept):])
	o.marks = kept
	return spool, asks, next
}

// settledLocked reports whether the worker may forget the line: its answer or request
// is in a file, or is not needed any more.
func (k *mark) settledLocked() bool {
	if k.question != nil {
		return k.question.IsSettled()
	}
	return !k.c.NeedsLine()
}

// firstMark returns the number of the output in which the first marked line begins,
// or the largest number if there is none.
func (o *output) firstMark() int64 {
	if len(o.marks) == 0 {
		return math.MaxInt64
	}
	return o.marks[0].seq
}

// ackBefore returns up to which number output may be acknowledged: safe at most, and no
// line with a mark.
func (o *output) ackBefore(safe int64) int64 {
	for _, k := range o.marks {
		safe = calls.AckBefore(safe, k.seq)
	}
	return safe
}
