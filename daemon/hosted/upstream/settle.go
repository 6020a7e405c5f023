package upstream

import (
	"math"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
	"holdline/daemon/lines"
	"holdline/daemon/supervisor"
	"holdline/protocol/faultpoint"
)

// settle acknowledges output that the worker need not keep, and removes records and
// files that are not needed any more. Answers that wait too long for their client are
// written to files first. It returns how long the reader may wait before it calls
// settle again. Only the reader calls it.
func (u *Process) settle(w *supervisor.Worker) time.Duration {
	u.recordDeadlines()
	u.hub.Mu.Lock()
	spool, asks, next := u.settleMarks(time.Now())
	u.hub.Mu.Unlock()
	written := func(what string, err error) {
		if err == nil {
			next = 0
			return
		}
		// the server is held up, and nothing is lost
		u.Log.Warn("output of the server cannot be written down", "what", what, "err", err)
		next = min(next, time.Second)
	}
	for _, c := range spool {
		written("an answer", u.spool(c))
	}
	for _, q := range asks {
		written("a request", u.writeQuestion(q))
	}
	safe, again := u.stdout.Ackable(u.last, u.firstMark())
	if again > 0 {
		next = min(next, again)
	}
	ack, forget, files, names := u.dispensable(safe)
	// The records go first: a daemon that found neither an answer nor that its
	// call is done would cancel it.
	if err := w.Forget(forget...); err != nil {
		u.Log.Debug("what is done is not on record yet", "err", err)
	}
	if len(forget) > 0 {
		faultpoint.At("hosted.forgot")
	}
	w.Ack(ack)
	calls.RemoveAnswers(u.Dir, files)
	question.Remove(u.Dir, names, u.Log)
	return next
}

// dispensable returns what is not needed any more: the output up to ack, records, and
// files of answers and, by name, of requests. Output is needed up to safe at most, and
// from the first line that has a mark. The caller must drop the returned records and
// files, since they are taken from their lists here. It also ends a draining process that has no calls
// left.
func (u *Process) dispensable(safe int64) (ack int64, forget, files []int64, names []string) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if u.State == Draining && len(u.Calls) == 0 {
		u.EndLocked()
	}
	forget, files = u.records.Take()
	return u.ackBefore(safe), forget, files, u.questions.TakeSettled()
}

// spool writes the answer of a call to its file.
func (u *Process) spool(c *Call) error {
	u.hub.Mu.Lock()
	a, write := c.Answer, c.write
	u.hub.Mu.Unlock()
	size, err := calls.WriteAnswer(u.Dir, write, a)
	faultpoint.At("hosted.spooled")
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.hub.spooledLocked(c.Key.Session, c.Written(size, err))
	return err
}

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
